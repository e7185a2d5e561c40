"""Embeds a corpus into vector shards, so that an interrupted embedding goes on where it stopped.

Row order in the files is row order in the corpus. Inside a shard, blocks are sorted by length and batched at a few
fixed shapes, [batch_rows, length] on each device; what fills the last batch is the null block, and is dropped. Shards
are independent of each other and a device always sees the same shapes, so that a resumed embedding, and one on another
number of devices, is bit-identical. A finished shard is recorded with its checksum; a torn one is done again.
Only the Embedder needs jax, which it imports late: the order of shards can be tried without it.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from index_refresh import files
from index_refresh.draft import Draft
from index_refresh.recipe import Recipe, Table
from index_refresh.vectors import decode, encode, shard_name, write_shard
from realm.protocols import Arrays, Objective, Params

if TYPE_CHECKING:
    import jax
    from jax.sharding import Mesh

    from index_refresh.reuse import Reuse

Tick = Callable[[int, int], None]
Shards = tuple[list[dict[str, Any]], int]
IN_FLIGHT = 2  # batches computing while the host packs the next one


class EmbedError(ValueError):
    """Blocks that could not be turned into vectors."""


class NoSpace(EmbedError):
    """The disk is too full for the vectors; tried again later, it may not be."""


@lru_cache(maxsize=8)
def batch_embedder(objective: Objective, mesh: Mesh) -> Callable[[Params, Arrays], jax.Array]:
    """(params, blocks_NT) -> vector_NE, the rows spread over the mesh: each device runs the same program on its own
    rows."""
    import jax
    from jax.sharding import PartitionSpec

    rows = PartitionSpec("rows")
    return jax.jit(
        jax.shard_map(
            objective.embed_items, mesh=mesh, in_specs=(PartitionSpec(), rows), out_specs=rows, check_vma=False
        )
    )


def plan_batches(length_N: np.ndarray, lengths: tuple[int, ...], rows: int) -> Iterator[tuple[np.ndarray, int]]:
    """(row_N, padded length) batches over blocks of these lengths, shortest first; each `rows` long, -1 where there is
    no block left. A block longer than the last length goes there and is cut."""
    order = np.argsort(length_N, kind="stable")
    bucket = np.minimum(np.searchsorted(lengths, length_N[order]), len(lengths) - 1)
    for ordinal, length in enumerate(lengths):
        row_N = order[bucket == ordinal]
        for start in range(0, len(row_N), rows):
            batch = np.full(rows, -1, np.int64)
            chosen = row_N[start : start + rows]
            batch[: len(chosen)] = chosen
            yield batch, length


def choose_devices(recipe: Recipe, rows: int) -> Mesh:
    """This process's devices, but no more than the corpus can fill: padding a small one out over many is waste."""
    import jax
    from jax.sharding import Mesh

    devices = jax.local_devices()
    filled = rows // (2 * recipe.batch_rows * len(recipe.lengths))
    return Mesh(np.array(devices[: min(len(devices), max(filled, 1))]), ("rows",))


class Embedder:
    """One snapshot on the devices, and the table to embed with it."""

    def __init__(self, recipe: Recipe, table: Table, params: Params) -> None:
        import jax
        from jax.sharding import NamedSharding, PartitionSpec

        self.recipe, self.table = recipe, table
        self.mesh = choose_devices(recipe, table.indexed)
        self.batch_rows = recipe.batch_rows * self.mesh.size
        self.placement = NamedSharding(self.mesh, PartitionSpec("rows"))
        self.params = jax.device_put(params, NamedSharding(self.mesh, PartitionSpec()))
        self.embed = batch_embedder(recipe.objective, self.mesh)
        shape = jax.eval_shape(
            partial(recipe.objective.embed_items, self.params),
            recipe.pack(table, np.full(recipe.batch_rows, -1), recipe.lengths[0]),
        ).shape
        if len(shape) != 2 or shape[0] != recipe.batch_rows:
            raise EmbedError(f"embed_items gave shape {shape} for {recipe.batch_rows} blocks, wanted one vector each")
        self.dim = shape[1]

    def batches(self, low: int, high: int, reuse: Reuse | None = None) -> Iterator[tuple[np.ndarray, int]]:
        """The batches that rows [low, high) are embedded in; row numbers count from `low`. Not those of `reuse`."""
        length_N = np.asarray(self.table.length_N[low:high])
        if reuse is None:
            yield from plan_batches(length_N, self.recipe.lengths, self.batch_rows)
            return
        row_C = np.flatnonzero(reuse.old_row_N[low:high] < 0)
        for place_N, length in plan_batches(length_N[row_C], self.recipe.lengths, self.batch_rows):
            yield np.where(place_N >= 0, row_C[place_N], -1), length

    def shard(
        self, low: int, high: int, tick: Callable[[int], None], reuse: Reuse | None = None
    ) -> Generator[int, None, np.ndarray]:
        """Yields 1 for each batch sent to the devices; returns float32 [high - low, E] of these rows. `tick` hears how
        many of them are done. The rows that `reuse` has are copied."""
        import jax

        vector_NE = np.empty((high - low, self.dim), np.float32)
        waiting: deque[tuple[np.ndarray, jax.Array]] = deque()
        done = 0 if reuse is None else reuse.copy(vector_NE, low)

        def collect() -> None:
            nonlocal done
            row_N, batch_NE = waiting.popleft()
            real = row_N >= 0
            vector_NE[row_N[real]] = np.asarray(batch_NE, dtype=np.float32)[real]
            done += int(real.sum())
            tick(done)

        for row_N, length in self.batches(low, high, reuse):
            blocks = self.recipe.pack(self.table, np.where(row_N >= 0, row_N + low, -1), length)
            blocks = jax.device_put(blocks, self.placement)
            waiting.append((row_N, self.embed(self.params, blocks)))
            if len(waiting) > IN_FLIGHT:
                collect()
            yield 1
        while waiting:
            collect()
        return vector_NE


def check_finite(table: Table, vector_NE: np.ndarray, low: int) -> None:
    """Raises EmbedError naming the blocks with vectors that are not finite: they would be found never or always."""
    bad = np.flatnonzero(~np.isfinite(vector_NE).all(axis=1)) + low
    if len(bad):
        named = ", ".join(f"row {row} (block {table.block_id(int(row))})" for row in bad[:5])
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise EmbedError(
            f"vectors with NaN or infinity at {named}{more}; nothing was published. Look at the retriever's "
            "parameters of this step and at the text of these blocks"
        )


def embed(recipe: Recipe, table: Table, params: Params, draft: Draft, tick: Tick) -> Shards:
    """`embedding`, all of it at once."""
    return finish(embedding(recipe, table, params, draft, tick))


def finish(work: Generator[int, None, Any]) -> Any:
    """Runs work that is given in pieces to its end; its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


def embedding(
    recipe: Recipe, table: Table, params: Params, draft: Draft, tick: Tick, reuse: Reuse | None = None
) -> Generator[int, None, Shards]:
    """Writes every vector shard of a draft in pieces; returns ([{file, rows, bytes, sha256, seconds}], E).

    `params` is {'retriever': tree}. `tick(done, total)` counts rows. Yields the number of batches done since the last
    time, shards that were there already counting with all of theirs: those that an earlier, interrupted call finished
    and whose bytes are still those it recorded. `reuse`: vectors of the same parameters that need not be made again.
    Raises EmbedError.
    """
    starts = range(0, table.indexed, recipe.shard_rows)
    shards = finished_shards(recipe, table, draft)
    embedder = recipe.embedder(table, params)
    check_space(recipe, table, embedder.dim, draft, sum(shard["bytes"] for shard in shards.values()))
    for ordinal, low in enumerate(starts):
        name, high = shard_name(ordinal), min(low + recipe.shard_rows, table.indexed)
        if name not in shards:
            started = time.perf_counter()
            vector_NE = yield from embedder.shard(
                low, high, lambda done, low=low: tick(low + done, table.indexed), reuse
            )
            written = write_vectors(recipe, table, draft.folder / name, vector_NE, low)
            shards[name] = written | {"seconds": time.perf_counter() - started}
            files.write_json(draft.progress, {"identity": draft.identity, "shards": shards})
        else:
            taken_over = "step" in shards[name]  # by a rolling refresh, which has no work with them
            yield 0 if taken_over else sum(1 for _ in embedder.batches(low, high))
        tick(high, table.indexed)
    return [shards[shard_name(ordinal)] for ordinal in range(len(starts))], embedder.dim


def write_vectors(recipe: Recipe, table: Table, path: Path, vector_NE: np.ndarray, low: int) -> dict[str, Any]:
    """Stores the vectors [n, E] of the rows from `low` on; {file, rows, bytes, sha256}. Raises EmbedError."""
    stored_NE = encode(vector_NE, recipe.vector_dtype)
    check_finite(table, decode(stored_NE, recipe.vector_dtype), low)
    return {"file": path.name} | write_shard(path, stored_NE)


def finished_shards(recipe: Recipe, table: Table, draft: Draft) -> dict[str, dict[str, Any]]:
    """{file: record} of the shards that are done already. Raises EmbedError where there is nothing to embed."""
    if table.indexed == 0:
        raise EmbedError(f"the corpus {recipe.corpus} holds 0 blocks: there is nothing to retrieve")
    recorded = files.read_json(draft.progress)["shards"]
    return {name: shard for name, shard in recorded.items() if _intact(draft, name, shard)}


def _intact(draft: Draft, name: str, shard: dict[str, Any]) -> bool:
    path = draft.folder / name
    return path.is_file() and files.describe(path).items() <= shard.items()


def check_space(recipe: Recipe, table: Table, dim: int, draft: Draft, done: int) -> None:
    """Raises NoSpace where the disk cannot take the vectors, `done` bytes of which are there."""
    needed = table.indexed * dim * (4 if recipe.vector_dtype == "float32" else 2) - done
    free = shutil.disk_usage(draft.folder).free
    if needed > free:
        raise NoSpace(
            f"{table.indexed} vectors of width {dim} as {recipe.vector_dtype} need {needed / 1e9:.1f} GB more, "
            f"{draft.folder} has {free / 1e9:.1f} GB: free some, keep fewer generations, or store bfloat16"
        )
