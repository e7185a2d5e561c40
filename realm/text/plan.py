"""Batch n is a function of (seed, n): the whole order of training, with nothing to save but an integer.

Each epoch shuffles the examples inside their length buckets, so that a batch is padded to a length near its own; what
does not fill a batch moves up to the next longer bucket, and what is left in the end waits for another epoch. The
batches are then shuffled. Because any batch can be made on its own, resuming, replaying and sharing the work among
processes are exact. Reading ahead in threads is grain's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

_PLAN, _EXAMPLE = 1, 2  # keeps the random streams of plans and of examples apart


class PlanError(ValueError):
    """No batches can be made as asked."""


class PlannedBatch(NamedTuple):
    """One global batch: index_B int64 examples, the `length` to pad them to, and the epoch that it belongs to."""

    index_B: np.ndarray
    length: int
    epoch: int


class BatchPlan:
    """The batches of all epochs over examples of lengths `length_N`.

    Every example is used at most once an epoch and at most batch_size - 1 are left out of one. `lengths` are the
    padded lengths, ascending; each batch has the smallest that all its examples fit in.
    Raises PlanError when no batch can be made, or when an example is longer than the last of `lengths`.
    """

    def __init__(self, length_N: np.ndarray, *, batch_size: int, lengths: tuple[int, ...], seed: int):
        length_N = np.asarray(length_N)
        if batch_size < 1 or seed < 0:
            raise PlanError(f"found batch_size {batch_size} and seed {seed}, wanted at least 1 and at least 0")
        if not lengths or any(a >= b for a, b in zip(lengths, lengths[1:], strict=False)):
            raise PlanError(f"found lengths {lengths}, wanted one or more ascending lengths, such as (64, 128)")
        if len(length_N) < batch_size:
            raise PlanError(
                f"found {len(length_N)} examples, wanted at least one batch of {batch_size}: use a smaller batch_size, "
                "more text, or less strict masking (the counts of the units say what was left out, and why)"
            )
        longest = int(np.argmax(length_N))
        if length_N[longest] > lengths[-1]:
            raise PlanError(
                f"found example {longest} of length {length_N[longest]}, wanted at most {lengths[-1]}: give a longer "
                f"last length than those of {lengths}"
            )
        self.batch_size = batch_size
        self.lengths = tuple(int(length) for length in lengths)
        self.seed = seed
        self.examples = len(length_N)
        self.batches_per_epoch = len(length_N) // batch_size
        bucket_N = np.searchsorted(self.lengths, length_N).astype(np.int16)
        # a stable sort by bucket, cut where the bucket changes: the members of each bucket, in order
        cuts = np.cumsum(np.bincount(bucket_N, minlength=len(lengths)))[:-1]
        self._members = np.split(np.argsort(bucket_N, kind="stable"), cuts)
        self._epochs: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._lock = Lock()

    def batch(self, n: int) -> PlannedBatch:
        """Batch n, n = 0, 1, 2, ... without end; the same whatever was asked for before.

        Raises PlanError for a negative n.
        """
        if n < 0:
            raise PlanError(f"found batch number {n}, wanted 0 or more")
        epoch, slot = divmod(n, self.batches_per_epoch)
        index_PB, length_P = self._epoch(epoch)
        return PlannedBatch(index_PB[slot].astype(np.int64), int(length_P[slot]), epoch)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """All P batches of an epoch. The last two are kept: threads that read ahead cross the border back and forth."""
        with self._lock:
            if epoch not in self._epochs:
                self._epochs = {e: plan for e, plan in self._epochs.items() if abs(e - epoch) == 1}
                self._epochs[epoch] = self._shuffle(np.random.default_rng([_PLAN, self.seed, epoch]))
            return self._epochs[epoch]

    def _shuffle(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        index_PB = np.empty((self.batches_per_epoch, self.batch_size), self._members[0].dtype)
        length_P = np.empty(self.batches_per_epoch, np.int32)
        left, done = self._members[0][:0], 0
        for members, length in zip(self._members, self.lengths, strict=True):
            order = rng.permutation(np.concatenate([left, members]))
            full = len(order) // self.batch_size
            cut = full * self.batch_size
            index_PB[done : done + full] = order[:cut].reshape(full, self.batch_size)
            length_P[done : done + full] = length
            left, done = order[cut:], done + full
        order = rng.permutation(self.batches_per_epoch)
        return index_PB[order], length_P[order]


def example_rng(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of one example in one epoch, whoever makes it and in whatever batch it stands."""
    return np.random.default_rng([_EXAMPLE, seed, epoch, index])


def batches(
    plan: BatchPlan,
    make: Callable[[PlannedBatch, np.ndarray], dict[str, Any]],
    *,
    start: int,
    stop: int,
    process_index: int = 0,
    process_count: int = 1,
    threads: int = 1,
) -> Iterator[dict[str, Any]]:
    """Batches start, start + 1, ..., stop - 1, each made by `make(batch, row)` and read ahead in `threads` threads.

    `row` are this process's positions in batch.index_B, int64 and contiguous; all processes together have each
    position once. With threads = 0 batches are made when they are asked for. `make` must be a pure function; what it
    raises comes out of the iterator. Raises PlanError at once for a range or a division that cannot be.
    """
    if not 0 <= start <= stop or threads < 0:
        raise PlanError(f"found start {start}, stop {stop}, threads {threads}; wanted 0 <= start <= stop, threads >= 0")
    if not 0 <= process_index < process_count or plan.batch_size % process_count:
        raise PlanError(
            f"found process {process_index} of {process_count} and batch_size {plan.batch_size}, wanted a batch_size "
            "that the processes share evenly"
        )
    share = plan.batch_size // process_count
    row = np.arange(process_index * share, (process_index + 1) * share)
    return _read(_Source(plan, make, start, stop, row), threads)


class _Source:
    """A range of batches as a grain data source."""

    def __init__(self, plan: BatchPlan, make: Callable, start: int, stop: int, row: np.ndarray):
        self._plan, self._make, self._start, self._stop, self._row = plan, make, start, stop, row

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self._make(self._plan.batch(self._start + i), self._row)


def _read(source: _Source, threads: int) -> Iterator[dict[str, Any]]:
    if len(source) == 0:
        return
    import grain  # brings jax and orbax along: only for those who read batches

    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    # allow_nones: nothing may be filtered out, or batch n would no longer be batch n
    ahead = iter(grain.MapDataset.source(source).to_iter_dataset(options, allow_nones=True))
    try:
        yield from ahead
    finally:
        ahead.close()
