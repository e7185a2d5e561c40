"""What a main job needs in bytes, on each device, on the host and on disk.

Parameters, moments, vectors and indexes are counted; what a step needs besides is XLA's own figure for the compiled
program, on the backend at hand (a CPU widens bfloat16, so it is told too much there). Nothing is allocated, so the plan
of a cluster can be made on a laptop. Preflight counts with the same lines, and refuses what cannot fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import jax

from experiments.config import Preset, Stage
from experiments.step_bytes import EmbedBytes, StepBytes, embed_bytes, step_bytes
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from realm.index.index_bytes import itemsize
from realm.protocols import Units
from realm.text.table import BlockTable

PROCESS = 700_000_000  # a Python process with jax loaded and its programs compiled, about


class PlanError(ValueError):
    """A plan that cannot be made as asked."""


class Line(NamedTuple):
    """One thing that takes room: bytes on each device, on the host and on disk. unless: a word that it shares with what
    is not there at the same time; of those only the largest counts."""

    what: str
    device: int = 0
    host: int = 0
    disk: int = 0
    unless: str | None = None


@dataclass(frozen=True)
class StagePlan:
    """The lines of one stage. compiled: the step's own figure is among them. rows, width: of its index, 0 for none."""

    name: str
    stage: Stage
    devices: int
    compiled: bool
    rows: int = 0
    width: int = 0
    lines: list[Line] = field(default_factory=list)

    def total(self, where: str) -> int:
        """Bytes on each `device`, on the `host` or on `disk`, at the worst moment."""
        shared: dict[str, int] = {}
        for line in self.lines:
            if line.unless:
                shared[line.unless] = max(shared.get(line.unless, 0), getattr(line, where))
        return sum(shared.values()) + sum(getattr(line, where) for line in self.lines if not line.unless)


class Corpus(NamedTuple):
    """rows: blocks of the index. table: any corpus that the stages can make examples of. disk: bytes of the folder."""

    rows: int
    table: BlockTable
    disk: int


def corpus_of(table: BlockTable, rows: int | None = None) -> Corpus:
    """The corpus as it is, or as if it had `rows` blocks of the same kind."""
    size = sum(path.stat().st_size for path in table.path.resolve().rglob("*") if path.is_file())
    if rows is None:
        return Corpus(table.indexed, table, size)
    return Corpus(rows, table, round(size * rows / max(table.indexed, 1)))


def plan(preset: Preset, corpus: Corpus, devices: int | None = None, compiled: bool = True) -> list[StagePlan]:
    """The plans of all stages. devices: how many share a batch; those of the stage, or of this process, by default.

    Raises PlanError where a batch does not divide over them.
    """
    return [plan_stage(name, stage, corpus, devices, compiled) for name, stage in preset.stages().items()]


def plan_stage(
    name: str,
    stage: Stage,
    corpus: Corpus,
    devices: int | None = None,
    compiled: bool = True,
    units: Units | None = None,
) -> StagePlan:
    """The plan of one stage; see `plan`. units: its units over the corpus's table, where they were made already."""
    training = stage.training
    devices = devices or training.devices or jax.device_count()
    if training.batch_size % devices:
        raise PlanError(f"{name}.training.batch_size={training.batch_size} does not split over {devices} devices")
    step = step_bytes(stage, corpus.table, devices, compiled, units)
    embed = embed_bytes(stage, compiled) if stage.objective.candidates else EmbedBytes(0, None)
    found = StagePlan(name, stage, devices, step.step is not None, corpus.rows, embed.width)
    found.lines.extend(_training(stage, step, corpus))
    if stage.objective.candidates:
        found.lines.extend(_index(stage, step, embed, corpus.rows))
    return found


def _training(stage: Stage, step: StepBytes, corpus: Corpus) -> Iterator[Line]:
    state, kept = step.params + step.moments, stage.training.keep_checkpoints
    yield Line("parameters, float32", device=step.params)
    yield Line("optimiser moments", device=step.moments)
    if step.step is None:
        yield Line("gradients (activations are not counted)", device=step.gradients)
    else:
        yield Line("activations, gradients, temporary", device=step.step, unless="a program at work")
    yield Line("a batch, and the one read ahead", device=2 * step.batch, host=4 * step.batch * stage.training.threads)
    yield Line("checkpoints", host=state, disk=kept * state)
    yield Line("block table, memory-mapped (not counted as memory)", disk=corpus.disk)
    yield Line("Python and jax", host=PROCESS)


def _index(stage: Stage, step: StepBytes, embed: EmbedBytes, rows: int) -> Iterator[Line]:
    refresh, training, width = stage.refresh, stage.training, embed.width
    index, keep = refresh.index.bytes_plan(rows, width), getattr(refresh.engine, "keep", 1)
    vectors = rows * width * itemsize("float32")
    shard = 2 * min(refresh.shard_rows, rows) * width * itemsize("float32")
    at = "the index anew"
    yield Line("index in use", device=index.device, host=index.host)
    yield Line("second index during a swap", device=index.device, host=index.host, unless=at)
    yield Line(f"{keep} + 1 generations on disk: vectors", disk=(keep + 1) * vectors)
    yield Line(f"{keep} + 1 generations on disk: index, towers", disk=(keep + 1) * (index.disk + step.retriever))
    if training.query_tower == "generation":
        yield Line("query tower of the generation", device=step.retriever)
    yield Line("snapshot handed over", host=step.retriever)
    own = isinstance(refresh.engine, Process)
    work = embed.temporary or 0
    if refresh.elsewhere:
        return  # the refresher's own machines hold what embedding and building need
    if own and refresh.engine.device == "cpu":
        needs = step.retriever + max(work + shard, index.build_host + index.build_device)
        yield Line("refresher's process: towers, a batch or the index", host=PROCESS + needs)
    elif own:
        yield Line("refresher's process, on its own GPU", host=PROCESS + max(shard, index.build_host))
    else:
        again = step.retriever * (2 if isinstance(refresh.engine, Interleave) else 1)
        yield Line("embedding blocks: towers, a batch", device=again + work, host=shard, unless="a program at work")
        yield Line("index while it is built", device=index.build_device, host=index.build_host, unless=at)
