"""From a batch number to host arrays: plan, units, examples, collation.

Batch n is a function of (seed, n) alone; the plan decides which units it holds and how long they are padded, and each
example draws from its own generator f(seed, epoch, unit).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from realm.protocols import Arrays, Objective, Units
from realm.text.plan import BatchPlan, PlannedBatch, batches, example_rng


def collate(examples: list[Arrays]) -> Arrays:
    """Stacks examples; `token_T` becomes `token_BT`, a scalar `length` becomes `length_B`."""
    return {batch_name(name): np.stack([e[name] for e in examples]) for name in examples[0]}


def batch_name(name: str) -> str:
    """The name of a stacked array: B goes before the shape letters."""
    stem, _, shape = name.rpartition("_")
    return f"{stem}_B{shape}" if stem and shape.isupper() else f"{name}_B"


class Feed:
    """The batches of one objective over one corpus, from step `start` on. Iterates over dicts of numpy arrays.

    `host_unit_B` (int64) names each example's unit; it stays on the host.
    """

    def __init__(
        self,
        objective: Objective,
        units: Units,
        *,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        threads: int = 1,
        process_index: int = 0,
        process_count: int = 1,
    ):
        self.plan = BatchPlan(units.length_N, batch_size=batch_size, lengths=objective.batch_lengths, seed=seed)

        def make(planned: PlannedBatch, row_B: np.ndarray) -> Arrays:
            index_B = planned.index_B[row_B]
            examples = [
                objective.example(units[int(i)], example_rng(seed, planned.epoch, int(i)), planned.length)
                for i in index_B
            ]
            return collate(examples) | {"host_unit_B": index_B}

        self._batches: Iterator[Any] = batches(
            self.plan,
            make,
            start=start,
            stop=stop,
            threads=threads,
            process_index=process_index,
            process_count=process_count,
        )

    def __iter__(self) -> Iterator[Arrays]:
        return self._batches
