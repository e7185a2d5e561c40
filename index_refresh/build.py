"""From a snapshot to a published generation: embed, build, save, publish.

What every engine runs, in whichever process it runs it. Killed anywhere, it leaves either nothing that a reader can see
or the whole generation; called again with the same snapshot it goes on from the last finished shard.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from index_refresh import files, snapshot
from index_refresh.claim import Claim
from index_refresh.draft import Draft
from index_refresh.embed import Shards, embedding, finish
from index_refresh.embed import Tick as RowTick
from index_refresh.generation import ENCODER, INDEX, Generation
from index_refresh.recipe import Recipe, Table
from index_refresh.rolling import base_of, renewing, take_over
from index_refresh.store import GenerationStore
from index_refresh.vectors import StoredVectors
from realm.protocols import Params

Tick = Callable[[str, int, int], None]


class BuildError(ValueError):
    """An index that does not hold what it was given."""


class Hands(Protocol):
    """Who does the two long pieces of work; what they make is the same."""

    def embedding(
        self, recipe: Recipe, table: Table, params: Params, draft: Draft, tick: RowTick
    ) -> Generator[int, None, Shards]:
        """As `embed.embedding`."""
        ...

    def build(
        self, recipe: Recipe, folder: Path, vectors: StoredVectors, alive: Callable[[], None]
    ) -> tuple[dict[str, Any], float]:
        """As `build`; calls `alive` now and then for as long as whoever builds is seen to work."""
        ...

    def peaks(self) -> dict[str, int | None]:
        """`peak_host_bytes` and `peak_device_bytes` of who worked."""
        ...


@contextmanager
def refreshing(run: str | Path, recipe: Recipe, seconds: float = 0.0) -> Iterator[GenerationStore]:
    """The store of a run folder that nobody else refreshes meanwhile, put in order; what was made in it is logged.

    seconds: how long another refresher gets to leave. Raises RefresherTaken where it stays.
    """
    claim = Claim(run, seconds)
    try:
        store = GenerationStore(run, recipe)
        store.recover()
        yield store
        store.log_published()
    finally:
        claim.release()


def make_generation(
    store: GenerationStore,
    step: int,
    params: Params,
    tick: Tick,
    *,
    taken: float | None = None,
    confirm: Callable[[], None] = lambda: None,
    hands: Hands | None = None,
) -> Generation:
    """`making`, all of it at once."""
    return finish(making(store, step, params, tick, taken=taken, confirm=confirm, hands=hands))


def making(
    store: GenerationStore,
    step: int,
    params: Params,
    tick: Tick,
    *,
    taken: float | None = None,
    confirm: Callable[[], None] = lambda: None,
    hands: Hands | None = None,
) -> Generator[int, None, Generation]:
    """The generation of `params` = {'retriever': tree of arrays} at `step`; taken as it is where it exists already.

    Made in pieces: yields how many batches were embedded since the last time. `tick(phase, done, total)`, phase
    'embedding' or 'building', counts rows. `taken`: when the parameters were handed over, in seconds since the epoch.
    `confirm` may raise to say that these parameters are no longer wanted; it is asked while nobody else can change the
    order of the generations. `hands`: who embeds and builds, this process by default.
    Raises StaleSnapshot, Overtaken, SnapshotError, EmbedError, BuildError. The publication
    is not logged: the owner of the log does that (`store.log_published`).
    """
    hands = hands or Here()
    taken = time.time() if taken is None else taken
    params = snapshot.to_host({"retriever": params["retriever"]})
    draft = store.begin(step, snapshot.fingerprint(params), confirm)
    if isinstance(draft, Generation):
        return draft
    snapshot.write_params(draft.folder / ENCODER, params)
    recipe, rows = store.recipe, store.table.indexed
    base = base_of(store, draft)
    if base is not None:
        take_over(recipe, draft, base)
    shards, dim = yield from hands.embedding(
        recipe, store.table, params, draft, lambda done, total: tick("embedding", done, total)
    )
    tick("building", 0, rows)
    if recipe.slices > 1:
        shards = [{"step": step, "taken": taken} | shard for shard in shards]
    names = tuple(shard["file"] for shard in shards)
    stored = StoredVectors(draft.folder, names, rows, dim, recipe.vector_dtype)
    building = recipe if base is None else renewing(recipe, draft, base, shards)
    settings, seconds_build = hands.build(building, draft.folder / INDEX, stored, lambda: tick("building", 0, rows))
    tick("building", rows, rows)
    seconds_embed = sum(shard["seconds"] for shard in shards)
    embedded = sum(shard["rows"] for shard in shards if shard.get("step", step) == step)
    return store.publish(
        draft,
        {
            "dim": dim,
            "dtype": recipe.vector_dtype,
            "shards": [{key: shard[key] for key in shard if key != "seconds"} for shard in shards],
            "index": settings,
            "taken": taken,
            "seconds_embed": seconds_embed,
            "seconds_build": seconds_build,
            "blocks_per_second": embedded / max(seconds_embed, 1e-9),
            **hands.peaks(),
        },
        confirm,
    )


def peak_host_bytes() -> int:
    """The most memory this process has held so far, whatever for."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def peak_device_bytes() -> int | None:
    """The most that any of this process's devices has held, None where the platform does not say (CPU)."""
    jax = sys.modules.get("jax")
    if jax is None:  # whoever embedded, it was not this process
        return None
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)


def peaks() -> dict[str, int | None]:
    """The most memory that this process has held."""
    return {"peak_host_bytes": peak_host_bytes(), "peak_device_bytes": peak_device_bytes()}


class Here:
    """This process embeds and builds; see Hands."""

    def embedding(
        self, recipe: Recipe, table: Table, params: Params, draft: Draft, tick: RowTick
    ) -> Generator[int, None, Shards]:
        return embedding(recipe, table, params, draft, tick)

    def build(
        self, recipe: Recipe, folder: Path, vectors: StoredVectors, alive: Callable[[], None]
    ) -> tuple[dict[str, Any], float]:
        return build(recipe, folder, vectors)

    def peaks(self) -> dict[str, int | None]:
        return peaks()


def build(recipe: Recipe, folder: Path, vectors: StoredVectors) -> tuple[dict[str, Any], float]:
    """Builds the index and saves it in `folder`; (the searcher's settings, seconds). Raises BuildError."""
    if folder.exists():  # half an index, left by a kill
        files.remove_tree(folder)
    started = time.perf_counter()
    if hasattr(recipe.index, "build_into"):  # which never has the whole of it in memory
        settings = recipe.index.build_into(files.make_folder(folder), vectors, vectors.rows)
        return settings, time.perf_counter() - started
    searcher = recipe.index.build(vectors, rows=vectors.rows)
    if (searcher.rows, searcher.dim) != (vectors.rows, vectors.dim):
        raise BuildError(
            f"{recipe.index} built an index of {searcher.rows} x {searcher.dim}, "
            f"wanted {vectors.rows} x {vectors.dim}: rows must be those of the corpus"
        )
    files.make_folder(folder)
    searcher.save(folder)
    return searcher.settings(), time.perf_counter() - started
