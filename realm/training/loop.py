"""The one training loop. It knows objectives, searchers and refreshers only by their protocols.

A step: adopt a newer index if there is one; embed the queries and search; join what was found to the batch; update.
With `retrieve_ahead=1` the search for the next batch runs on the host while the device works on this one, so its
queries are one update old. The metrics of a step are read after the next one is dispatched.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax

from realm.protocols import Arrays, Objective, Params, Refresher
from realm.text.table import BlockTable
from realm.training.checkpoint import Checkpoints
from realm.training.diagnosis import Dispatched, require_finite
from realm.training.feed import Feed
from realm.training.lookup import Found, IndexTooOld, Lookup
from realm.training.mesh import data_mesh, replicate, shard_batch
from realm.training.metrics import MetricsLog
from realm.training.optimizer import Optimizer
from realm.training.processes import Ballot, Ballots, any_of_all, leads, several
from realm.training.run_folder import RunFolder
from realm.training.signals import StopSignal
from realm.training.step import init_state, make_step
from realm.training.watch import Watch


@dataclass(frozen=True)
class Training:
    """How an objective is trained.

    batch_size: examples a step over all devices. accumulate: microbatches a step; exact for losses that are means over
    predictions (mlm, realm), but an in-batch softmax (ict) then has fewer negatives; every microbatch embeds all of
    the batch's distinct blocks. retrieve_ahead: 1 searches for the next batch beside this step. query_tower: whose
    parameters embed the queries for search, `current` or those the index was made with (`generation`). rerank: so many
    blocks are searched for, and the current towers choose the candidates among them: the cheapest cure for a stale
    index (0: the index chooses). devices: None = all. threads: that read batches ahead.
    """

    steps: int = 1000
    batch_size: int = 64
    seed: int = 0
    optimizer: Optimizer = field(default_factory=Optimizer)
    accumulate: int = 1
    retrieve_ahead: Literal[0, 1] = 0
    query_tower: Literal["current", "generation"] = "current"
    rerank: int = 0
    log_every: int = 10
    checkpoint_every: int = 500
    keep_checkpoints: int = 2
    devices: int | None = None
    threads: int = 1
    watch: Watch = field(default_factory=Watch)

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise TrainingError(f"found training.{name}={getattr(self, name)}, wanted 1 or more")
        if self.seed < 0 or self.threads < 0 or self.rerank < 0:
            raise TrainingError(f"found seed {self.seed}, threads {self.threads}, rerank {self.rerank}, wanted >= 0")
        if self.batch_size % self.accumulate:
            raise TrainingError(
                f"found batch_size={self.batch_size} and accumulate={self.accumulate}, wanted equal microbatches"
            )


class TrainingError(ValueError):
    """A training config, or a job, that cannot be run as asked."""


class Outcome(NamedTuple):
    """params at the last step; that step; the signal that asked to stop, if one did (what was reached is saved)."""

    params: Params
    step: int
    stopped: signal.Signals | None


def train(
    objective: Objective,
    table: BlockTable,
    training: Training,
    run: RunFolder,
    *,
    init: Callable[[], Params],
    refresher: Refresher | None = None,
    report: Callable[[str], None] = print,
) -> Outcome:
    """Trains from `init()` or, where `run` has a checkpoint, from there, to `training.steps`.

    Raises TrainingDiverged on a non-finite loss, RetrieverCollapse when the watch says so. SIGTERM and SIGINT save a
    checkpoint at the next step boundary and return; the outcome names them.
    """
    return _Loop(objective, table, training, run, init, refresher, report).run()


class _Loop:
    def __init__(self, objective, table, training, run, init, refresher, report):
        if objective.candidates and refresher is None:
            raise TrainingError(
                f"{type(objective).__name__} retrieves {objective.candidates} candidates: needs an index"
            )
        if objective.candidates and several() and not refresher.asynchronous:
            raise TrainingError(
                "a job of several processes cannot wait for an index in one of them: wanted an asynchronous engine "
                "(Process, External or Ray)"
            )
        self.objective, self.table, self.training, self.run_folder = objective, table, training, run
        self.refresher, self.report = refresher, report
        self.mesh = data_mesh(training.devices)
        self.checkpoints = Checkpoints(run.checkpoints, training.keep_checkpoints)
        self.units = objective.units(table)
        self.lookup: Lookup | None = None
        self.compiled = functools.cache(
            functools.partial(
                make_step,
                objective,
                training.optimizer,
                steps=training.steps,
                accumulate=training.accumulate,
                seed=training.seed,
            )
        )
        starts = {group: training.optimizer.rate(group).start for group in objective.groups().values()}
        if min(starts.values()) > 0:
            raise TrainingError(
                f"nothing is trained at step 0: the groups start at {starts}; one of them must start at 0"
            )
        self._restore(init)

    def _restore(self, init: Callable[[], Params]) -> None:
        state = init_state(self.objective, self.training.optimizer, init(), self.training.steps)
        state = replicate(state, self.mesh)
        self.generation, self.pending = None, None
        if self.checkpoints.steps():
            state, self.generation, self.pending = self.checkpoints.restore(state)
            self.report(f"resuming from step {int(state['step'])}")
        self.state, self.start = state, int(state["step"])

    def run(self) -> Outcome:
        training = self.training
        feed = Feed(
            self.objective,
            self.units,
            batch_size=training.batch_size,
            seed=training.seed,
            start=self.start,
            stop=training.steps,
            threads=training.threads,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
        )
        self.report(
            f"{feed.plan.examples} examples, {feed.plan.batches_per_epoch} batches an epoch; {self.units.counts}"
        )
        own = self.run_folder.path if leads() else self.run_folder.path / "processes" / str(jax.process_index())
        own.mkdir(parents=True, exist_ok=True)
        self.log = MetricsLog(own, start=self.start, every=training.log_every, stop=training.steps, report=self.report)
        stop, batches = StopSignal(), iter(feed)
        try:
            if self.objective.candidates:
                self._open_index()
            self._steps(batches, stop)
            # The last step's own boundary has no step after it whose count could tell the others.
            if any_of_all(stop.asked):
                stop.note_of_another()
                self.report(f"stopped by {stop.name} after step {int(self.state['step'])}; go on with --resume")
        finally:
            stop.restore()
            batches.close()
            self.log.close()
            self.checkpoints.close()
        stopped = signal.Signals[stop.name] if stop.asked else None
        return Outcome(self.state["params"], int(self.state["step"]), stopped)

    def _open_index(self) -> None:
        training = self.training
        self.lookup = Lookup(
            self.objective,
            self.table,
            self.refresher,
            mesh=self.mesh,
            query_tower=training.query_tower,
            rerank=training.rerank,
            watch=training.watch,
            seed=training.seed,
            log=self.log,
            report=self.report,
        )
        self.lookup.resume(self.start, self.generation)

    def _steps(self, batches: Iterator[Arrays], stop: StopSignal) -> None:
        training, lookup = self.training, self.lookup
        ahead = (next(batches), Found.of_arrays(self.pending)) if self.pending else None
        ballots = Ballots(self.mesh)
        last: Dispatched | None = None
        for number in range(self.start, training.steps):
            if lookup:
                try:
                    lookup.refresh(number, self.state["params"], self.checkpoints.generations)
                except IndexTooOld:  # what was trained up to here is sound
                    if last:
                        self._read(last)
                    self.log.stopped()
                    self._save(ahead[1] if ahead else None)
                    raise
                if number == self.start:
                    self.log.steps_begin()
            batch, found = ahead or self._next(batches, number)
            ready = self._ready(batch, found)
            upcoming = next(batches) if lookup and training.retrieve_ahead and number + 1 < training.steps else None
            if upcoming:  # asked before the step below takes the parameters' memory
                question = lookup.ask(self.state["params"], upcoming)
            active = training.optimizer.active(self.objective.groups(), number)
            self.state, metrics = self.compiled(active=active)(self.state, ready)
            ahead = (upcoming, lookup.answer(question, upcoming, number)) if upcoming else None
            if last:
                self._read(last)
            facts = lookup.facts(found, number) if found else {}
            last = Dispatched(number + 1, metrics, active, batch, facts)
            count = ballots.turn(lookup.ballot(stop.asked) if lookup else Ballot(stop.asked))
            if lookup:
                lookup.count = count
            if (number + 1) % training.checkpoint_every == 0 or number + 1 == training.steps or count.stop:
                self._read(last)
                last = None
                if count.stop:  # before the checkpoint: of a step that is not kept, a resume drops the record
                    self.log.stopped()
                self._save(ahead[1] if ahead else None)
            if count.stop:
                return

    def _next(self, batches: Iterator[Arrays], number: int) -> tuple[Arrays, Found | None]:
        batch = next(batches)
        if not self.lookup:
            return batch, None
        return batch, self.lookup.answer(self.lookup.ask(self.state["params"], batch), batch, number)

    def _ready(self, batch: Arrays, found: Found | None) -> Arrays:
        return shard_batch(self.lookup.join(self.state["params"], batch, found) if found else batch, self.mesh)

    def _read(self, last: Dispatched) -> None:
        """Logs a step; raises TrainingDiverged where it was not finite."""
        metrics = jax.device_get(last.metrics)
        require_finite(last, metrics, self.state["params"], self.table, self.units, self.checkpoints.steps())
        optimizer, steps = self.training.optimizer, self.training.steps
        for name, group in self.objective.groups().items():
            updates = last.step - 1 - optimizer.rate(group).start
            last.facts[f"rate/{name}"] = float(optimizer.schedule(group, steps)(updates)) if updates >= 0 else 0.0
        self.log.add(last.step, metrics, last.facts)

    def _save(self, ahead: Found | None) -> None:
        number = self.lookup.number if self.lookup else None
        step = self.checkpoints.save(self.state, number, ahead.arrays() if ahead else None)
        self.report(f"checkpoint at step {step}")
