"""A job of several processes (`jax.distributed`): one leads, and all of them decide alike.

Process 0 writes the run folder and owns the refresher; the others read. Whether to stop, and which generation to
search, must be decided by all at the same step boundary: one that went its own way would leave the rest waiting in
their next collective. So each casts a ballot at every boundary, and what all cast is counted on the devices and read
one boundary later: nobody waits for anybody, and nothing is held open while an index is made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from realm.protocols import Arrays

NONE = -1


class Ballot(NamedTuple):
    """stop: whether to stop (counted: any does). newest: the newest generation on the disk (the largest). opened: the
    one that is open and waits to be gone over to (the smallest); NONE for neither."""

    stop: bool = False
    newest: int = NONE
    opened: int = NONE


class Ballots:
    """The ballots of all processes on the mesh's devices."""

    def __init__(self, mesh: Mesh) -> None:
        self.rows = NamedSharding(mesh, PartitionSpec("data"))
        self.local = mesh.local_mesh.size
        self._count = jax.jit(_count, out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._last: jax.Array | None = None

    def turn(self, mine: Ballot) -> Ballot:
        """Casts `mine`; gives the count of the boundary before (NONE of everything at the first). In a job of one
        process what is cast is the count."""
        if not several():
            return mine
        vote_D3 = np.tile(np.asarray(mine, np.int32), (self.local, 1))
        last, self._last = self._last, self._count(jax.make_array_from_process_local_data(self.rows, vote_D3))
        if last is None:
            return Ballot()
        stop, newest, opened = np.asarray(last).tolist()
        return Ballot(bool(stop), newest, opened)


def _count(vote_D3: jax.Array) -> jax.Array:
    return jnp.stack([vote_D3[:, 0].max(), vote_D3[:, 1].max(), vote_D3[:, 2].min()])


def several() -> bool:
    """Whether this job has more than one process."""
    return jax.process_count() > 1


def leads() -> bool:
    """Whether this process writes for all."""
    return jax.process_index() == 0


def agreed(value: int) -> int:
    """Process 0's value, in every process; all of them call it at the same place. Not for long waits: it is a
    collective."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value))) if several() else value


def any_of_all(value: bool) -> bool:
    """Whether it holds in any process; a collective, as `agreed`."""
    return bool(multihost_utils.process_allgather(np.int32(value)).any()) if several() else value


def local_copy(tree: Any) -> Any:
    """A replicated tree as this process can compute with alone; the tree itself in a job of one process."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree) if several() else tree


def own_rows(array: jax.Array) -> np.ndarray:
    """This process's rows of an array that is split over `data`."""
    if array.is_fully_addressable:
        return np.asarray(array)
    shards = {shard.index[0].start or 0: shard.data for shard in array.addressable_shards}
    return np.concatenate([np.asarray(shards[start]) for start in sorted(shards)])


def rows_of_all(arrays: Arrays) -> Arrays:
    """The rows of every process, in the order of processes; a collective."""
    if not several():
        return arrays
    return {name: multihost_utils.process_allgather(np.asarray(array), tiled=True) for name, array in arrays.items()}


def rows_of_this(arrays: Arrays) -> Arrays:
    """The rows of this process again, out of those of all."""
    share = {name: len(array) // jax.process_count() for name, array in arrays.items()}
    index = jax.process_index()
    return {name: array[index * share[name] : (index + 1) * share[name]] for name, array in arrays.items()}


def slots_of_all(ready: Arrays) -> Arrays:
    """Slots into this process's distinct blocks, moved to where those are among the blocks of all processes.

    `slot_BK` points into `block_..._U...`, `NAME_slot_B...` into `NAME_U...`.
    """
    if not several():
        return ready
    moved = {}
    for name in (n for n in ready if n.startswith("slot_B") or "_slot_B" in n):
        stem = name.partition("slot_B")[0] or "block_"
        sizes = {len(a) for n, a in ready.items() if n.startswith(stem) and n.rpartition("_")[2].startswith("U")}
        (size,) = sizes
        moved[name] = ready[name] + np.int32(jax.process_index() * size)
    return ready | moved
