"""From a snapshot to a published generation: embed, build, save, publish.

What every engine runs, in whichever process it runs it. Killed anywhere, it leaves either nothing that a reader can see
or the whole generation; called again with the same snapshot it goes on from the last finished shard.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from index_refresh import files, snapshot
from index_refresh.embed import embed
from index_refresh.generation import ENCODER, INDEX, Generation
from index_refresh.recipe import Recipe
from index_refresh.store import Draft, GenerationStore
from index_refresh.vectors import StoredVectors
from realm.protocols import Params

Tick = Callable[[str, int, int], None]


class BuildError(ValueError):
    """An index that does not hold what it was given."""


def make_generation(store: GenerationStore, step: int, params: Params, tick: Tick) -> Generation:
    """The generation of `params` = {'retriever': tree of arrays} at `step`; taken as it is where it exists already.

    `tick(phase, done, total)`, phase 'embedding' or 'building', counts rows. Raises StaleSnapshot, SnapshotError,
    EmbedError, BuildError. The publication is not logged: the owner of the log does that (`store.log_published`).
    """
    params = snapshot.to_host({"retriever": params["retriever"]})
    draft = store.begin(step, snapshot.fingerprint(params))
    if isinstance(draft, Generation):
        return draft
    snapshot.write_params(draft.folder / ENCODER, params)
    recipe, rows = store.recipe, store.table.rows
    shards, dim = embed(recipe, store.table, params, draft, lambda done, total: tick("embedding", done, total))
    tick("building", 0, rows)
    names = tuple(shard["file"] for shard in shards)
    settings, seconds_build = build(recipe, draft, StoredVectors(draft.folder, names, rows, dim, recipe.vector_dtype))
    tick("building", rows, rows)
    seconds_embed = sum(shard["seconds"] for shard in shards)
    return store.publish(
        draft,
        {
            "dim": dim,
            "dtype": recipe.vector_dtype,
            "shards": [{key: shard[key] for key in shard if key != "seconds"} for shard in shards],
            "index": settings,
            "seconds_embed": seconds_embed,
            "seconds_build": seconds_build,
            "blocks_per_second": rows / max(seconds_embed, 1e-9),
        },
    )


def build(recipe: Recipe, draft: Draft, vectors: StoredVectors) -> tuple[dict[str, Any], float]:
    """Builds the index and saves it in the draft; (the searcher's settings, seconds). Raises BuildError."""
    folder = draft.folder / INDEX
    if folder.exists():  # half an index, left by a kill
        files.remove_tree(folder)
    started = time.perf_counter()
    searcher = recipe.index.build(vectors, rows=vectors.rows)
    if (searcher.rows, searcher.dim) != (vectors.rows, vectors.dim):
        raise BuildError(
            f"{recipe.index} built an index of {searcher.rows} x {searcher.dim}, "
            f"wanted {vectors.rows} x {vectors.dim}: rows must be those of the corpus"
        )
    files.make_folder(folder)
    searcher.save(folder)
    return searcher.settings(), time.perf_counter() - started
