"""Whether a planned stage fits into the memory there is, and what would make it smaller.

A device tells its own limit; on a CPU devices are host memory, and both are held against what the host has to spare.
What was not compiled counts without activations: such a sum is too small, so what it refuses cannot fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.plan import StagePlan
from experiments.warm_start import PreflightError
from index_refresh.external import External
from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.random_rows import RandomRows
from realm.index.scann import Scann
from realm.index.sharded import Sharded


class DoesNotFit(PreflightError):
    """A stage that needs more memory than there is."""


class Limits(NamedTuple):
    """Bytes that may be used: on each device (None: the devices are the host's processors), and on the host."""

    device: int | None
    host: int | None


def limits() -> Limits:
    """Those of this process's devices and host; None for what does not tell."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    device = min((one["bytes_limit"] for one in stats if "bytes_limit" in one), default=None)
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text("utf-8").splitlines() if meminfo.exists() else []
    host = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)
    return Limits(device, host)


def check_fits(plan: StagePlan, found: Limits) -> None:
    """Raises DoesNotFit with the numbers and the cheaper options."""
    device, host = plan.total("device"), plan.total("host")
    if found.device is None:
        host, device = host + plan.devices * device, 0
    for what, needed, limit in (("each device", device, found.device), ("the host", host, found.host)):
        if limit is not None and needed > limit:
            counted = "" if plan.compiled else " without activations"
            on_host = what == "the host" and found.device is not None
            raise DoesNotFit(
                f"{plan.name} needs {needed / 1e9:.2f} GB on {what}{counted}, which has {limit / 1e9:.2f} GB: `--plan` "
                f"lists what for. Cheaper: {'; '.join(cheaper(plan, on_host))}"
            )


def cheaper(plan: StagePlan, on_host: bool = False) -> list[str]:
    """What would need less, as options to type or, where the type of something changes, as what to write into a preset
    file; on_host: only what helps the host of an accelerator."""
    objective, training, refresh = plan.stage.objective, plan.stage.training, plan.stage.refresh
    field, options = f"--{plan.name}", []
    encoders = {part: getattr(objective, part) for part in ("retriever", "joint") if hasattr(objective, part)}
    if not on_host:
        for part, encoder in encoders.items():
            if not encoder.bert.remat:
                options.append(f"{field}.objective.{part}.bert.remat (layers computed again)")
            if encoder.bert.compute_dtype == "float32":
                options.append(f"{field}.objective.{part}.bert.compute-dtype bfloat16")
        if training.batch_size > training.accumulate:
            options.append(f"{field}.training.accumulate {2 * training.accumulate} (microbatches)")
            options.append(f"a smaller {field}.training.batch-size than {training.batch_size}")
        if objective.candidates > 2:
            options.append(f"fewer {field}.objective.candidates than {objective.candidates}")
    if objective.candidates:
        options.extend(_index_options(f"{plan.name}.refresh", refresh.index, plan, on_host))
        if not isinstance(refresh.engine, External):
            options.append(_typed(f"{plan.name}.refresh.engine", "External", "embedding and building elsewhere"))
    return options or ["a machine with more memory: nothing in this stage can be made smaller"]


def _typed(field: str, kind: str, about: str) -> str:
    return f'in preset.json {field} of "type": "{kind}" ({about})'


def _index_options(where: str, index: Any, plan: StagePlan, on_host: bool) -> Iterator[str]:
    """Indexes of the same vectors that take less room, loaded or while they are built."""
    others: list[tuple[str, Any]] = []
    if isinstance(index, Exact | Alsh):
        others = [(f"--{where}.index.dtype bfloat16", replace(index, dtype="bfloat16"))]
        others.append((_typed(f"{where}.index", "Scann", "quantised, on the host"), Scann()))
    if isinstance(index, Scann):
        lean = replace(index, reorder_dtype="bfloat16")
        others = [(f"--{where}.index.reorder-dtype bfloat16 (quantised codes and half of the vectors)", lean)]
    if not isinstance(index, Sharded | RandomRows):
        others.append((_typed(f"{where}.index", "Sharded", "built part after part"), Sharded(index)))
    now = index.bytes_plan(plan.rows, plan.width)
    for text, other in others:
        then = other.bytes_plan(plan.rows, plan.width)
        places = ("host", "build_host") if on_host else ("device", "host", "build_host")
        if any(getattr(then, place) < getattr(now, place) for place in places):
            yield text
