"""Searching with parameters as they are now: every block embedded afresh, so no index age and no approximation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from experiments.config import Stage
from experiments.console import progress
from experiments.recipe_of import recipe_of
from index_refresh.embed import Embedder, finish
from index_refresh.generation import verify
from index_refresh.recipe import Recipe
from index_refresh.reuse import other_tower, retriever_of
from index_refresh.store import GenerationStore
from realm.index.exact import Exact
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
    embedder, tick = Embedder(recipe, table, {"retriever": params["retriever"]}), progress("blocks")
    for low in range(0, table.indexed, refresh.shard_rows):
        high = min(low + refresh.shard_rows, table.indexed)
        yield finish(embedder.shard(low, high, lambda done: None))
        tick("embedding", high, table.indexed)


def block_vectors(
    stage: Stage, params: Params, table: BlockTable, runs: Iterable[tuple[Stage, Path]]
) -> Iterable[np.ndarray]:
    """Every block's vector by the towers in `params`, as float32 shards in row order: read where a generation of one of
    the `runs` (stage, folder) was made by the very block tower of `params`, at whatever padded lengths; embedded now
    where none was.

    Raises GenerationCorrupt where the files of such a generation are damaged.
    """
    wanted, tower = retriever_of(recipe_of(stage, table).settings()["objective"]), {"retriever": params["retriever"]}
    for own, folder in runs:
        for generation in GenerationStore(folder, recipe_of(own, table)).all():
            made = generation.manifest["recipe"]
            if made["vector_dtype"] != "float32" or len(generation.documents()) > 1:  # rounded, or of several steps
                continue
            if retriever_of(made["objective"]) == wanted and not other_tower(generation, tower):
                verify(generation)
                return generation.vectors()
    return embedded(stage, params, table)


def exact_searcher(stage: Stage, params: Params, table: BlockTable) -> Searcher:
    """Exact search over every block embedded now: no index age, no approximation."""
    return Exact().build(embedded(stage, params, table))


def search_all(searcher: Searcher, q_QE: np.ndarray, k: int, size: int = 1024) -> Hits:
    """The hits of every question, searched `size` at a time: memory does not grow with the question set."""
    parts = [searcher.search(q_QE[at : at + size], k) for at in range(0, len(q_QE), size)]
    return Hits(*(np.concatenate([np.asarray(array) for array in arrays]) for arrays in zip(*parts, strict=True)))
