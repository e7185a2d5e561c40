"""What a non-finite step says before it ends the run: its loss, the first bad gradient, its blocks, what is saved.

The update itself was thrown away on the device (`make_step`); the host learns of it here, when it reads the metrics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from realm.protocols import Arrays, Metrics, Params, Units
from realm.text.table import BlockTable
from realm.training.step import gradient_names


class TrainingDiverged(RuntimeError):
    """A loss or gradient was not finite; nothing was saved over the last good checkpoint."""


class Dispatched(NamedTuple):
    """A step whose metrics have not been read yet: the step it leads to, what was trained, on what, facts to log."""

    step: int
    metrics: Metrics
    active: tuple[str, ...]
    batch: Arrays
    facts: dict[str, Any]


def require_finite(
    dispatched: Dispatched, metrics: Metrics, params: Params, table: BlockTable, units: Units, saved: list[int]
) -> None:
    """Raises TrainingDiverged where `metrics`, those of `dispatched` on the host, say that it was not finite.

    saved: steps with a checkpoint.
    """
    if metrics["finite"]:
        return
    names = gradient_names(params, dispatched.active)
    bad = [name for name, finite in zip(names, metrics["finite_P"], strict=True) if not finite]
    blocks = [units.name(int(i)) for i in dispatched.batch["host_unit_B"]]
    raise TrainingDiverged(
        f"step {dispatched.step}: loss {metrics['loss']}, first non-finite gradient: {bad[0] if bad else 'none'} "
        f"({len(bad)} of {len(names)}). Examples are from blocks {', '.join(blocks)}. The last good checkpoint is "
        f"of step {max(saved, default=0)}; lower the learning rate or compute in float32"
    )
