"""Searching with parameters as they are now: every block embedded afresh, so no index age and no approximation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import jax
import numpy as np

from experiments.config import Stage
from experiments.recipe_of import recipe_of
from index_refresh import snapshot
from index_refresh.embed import Embedder, finish
from index_refresh.generation import verify
from index_refresh.recipe import Recipe
from index_refresh.store import GenerationStore
from realm.index.exact import Exact
from realm.models.tree_hash import tree_hash
from realm.protocols import Hits, Params, Searcher
from realm.text.table import BlockTable


def embedded(stage: Stage, params: Params, table: BlockTable) -> Iterator[np.ndarray]:
    """Every block embedded now by `params`, as float32 shards in row order."""
    refresh = stage.refresh
    recipe = Recipe(
        objective=stage.objective,
        corpus=str(table.path),
        index=Exact(),
        batch_rows=refresh.batch_rows,
        lengths=refresh.block_lengths,
    )
    embedder = Embedder(recipe, table, {"retriever": params["retriever"]})
    for low in range(0, table.indexed, refresh.shard_rows):
        yield finish(embedder.shard(low, min(low + refresh.shard_rows, table.indexed), lambda done: None))


def frozen_vectors(stage: Stage, params: Params, table: BlockTable, folder: Path) -> list[np.ndarray] | None:
    """The vectors of the newest generation in the stage's `folder`, where its block tower has the very bits of that of
    `params` and stays frozen: they are what embedding would give. None where they are not, or were rounded.

    Raises GenerationCorrupt where the files are damaged.
    """
    wanted = stage.objective.frozen(params) if hasattr(stage.objective, "frozen") else {}
    if not wanted:
        return None
    newest = GenerationStore(folder, recipe_of(stage, table)).newest()
    if newest is None or newest.recipe.vector_dtype != "float32":
        return None
    if tree_hash(stage.objective.frozen(newest.query_params())) != tree_hash(wanted):
        return None
    verify(newest)
    return [np.asarray(shard, np.float32) for shard in newest.vectors()]


def stored_vectors(params: Params, table: BlockTable, runs: Iterable[tuple[Stage, Path]]) -> list[np.ndarray] | None:
    """The vectors of a generation in one of the runs (stage, folder) that was made with the very retriever of `params`:
    they are what embedding would give. None where there is none, or only rounded ones.

    Raises GenerationCorrupt where the files are damaged.
    """
    wanted = snapshot.fingerprint({"retriever": jax.device_get(params["retriever"])})
    for stage, folder in runs:
        for generation in GenerationStore(folder, recipe_of(stage, table)).all():
            whole = generation.recipe.vector_dtype == "float32" and len(generation.documents()) == 1
            if whole and generation.manifest["encoder_fingerprint"] == wanted:
                verify(generation)
                return [np.asarray(shard, np.float32) for shard in generation.vectors()]
    return None


def exact_searcher(stage: Stage, params: Params, table: BlockTable) -> Searcher:
    """Exact search over every block embedded now: no index age, no approximation."""
    return Exact().build(embedded(stage, params, table))


def search_all(searcher: Searcher, q_QE: np.ndarray, k: int, size: int = 1024) -> Hits:
    """The hits of every question, searched `size` at a time: memory does not grow with the question set."""
    parts = [searcher.search(q_QE[at : at + size], k) for at in range(0, len(q_QE), size)]
    return Hits(*(np.concatenate([np.asarray(array) for array in arrays]) for arrays in zip(*parts, strict=True)))
