"""The `interleave` engine: the trainer's own devices embed a few batches between its steps.

For a single TPU slice, where one process owns the chips: every step gets longer by the same amount and nothing else
has to be started. It is exact: a generation published at step p is adopted ceil(batches / m) steps later, at a step
that is a function of the corpus and of m. The snapshot stays on disk meanwhile, so that a resumed run catches up and
adopts at the very same step. What is due while the devices are still at an earlier snapshot is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index_refresh import snapshot
from index_refresh.build import make_generation, making
from index_refresh.claim import Claim
from index_refresh.generation import Generation
from index_refresh.heartbeat import Heartbeat, Progress
from index_refresh.recipe import Recipe
from index_refresh.rolling import check_slices, most_batches
from index_refresh.schedule import Schedule, refuse_delayed
from index_refresh.snapshot import SnapshotStore
from index_refresh.store import GenerationStore
from index_refresh.sync import RefresherClosed, check_limits, cost, facts, silent
from realm.protocols import GenerationLike, Params, Report


@dataclass(frozen=True)
class Interleave:
    """batches: how many batches of `recipe.batch_rows` blocks a device embeds between two steps. keep, max_age: as for
    Sync. The retriever of the snapshot lies on the devices a second time while a generation is made."""

    batches: int = 4
    keep: int = 2
    max_age: int | None = None

    def __post_init__(self) -> None:
        check_limits(self.keep, self.max_age)
        if self.batches < 1:
            raise ValueError(f"found batches={self.batches}, wanted 1 or more between two steps")

    def start(
        self, recipe: Recipe, schedule: Schedule, folder: str | Path, *, report: Report = silent
    ) -> InterleavedRefresher:
        """Opens a run folder, new or killed. Raises RefresherTaken, and ScheduleError for a schedule with a latency of
        its own."""
        refuse_delayed(schedule, "interleave")
        return InterleavedRefresher(self, recipe, schedule, Path(folder), report)


class InterleavedRefresher:
    """The running engine; see `realm.protocols.Refresher`."""

    asynchronous = False

    def __init__(self, config: Interleave, recipe: Recipe, schedule: Schedule, folder: Path, report: Report) -> None:
        self.config, self.schedule, self.report = config, schedule, report
        self.max_age, self.step = config.max_age, 0
        self.store, self.snapshots = GenerationStore(folder, recipe), SnapshotStore(folder)
        check_slices(recipe, schedule, lambda: self.store.table.indexed)
        self.claim = Claim(folder)  # after the check, whose error would leave it held
        self.store.recover()
        self.heartbeat = Heartbeat(folder)
        self.steps = -(-most_batches(recipe, self.store.table) // config.batches)
        self.work: Generator[int, None, Generation] | None = None
        self.made_from, self.done = 0, 0  # the step of the snapshot being embedded; its batches so far
        self.published = self.dropped = 0
        self.closed = False
        self._idle()

    def tick(self, step: int) -> None:
        """Embeds what has to be embedded by this step. Raises as `publish` does."""
        self.step = step
        if self.work is None:
            self._take_up()
        if self.work is not None:
            wanted = self.config.batches * (step - self.made_from)
            self._advance(wanted, finish=step >= self.made_from + self.steps)

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        """Whether the schedule wants the parameters of this step published."""
        return self.schedule.due(step, drift)

    def publish(self, step: int, params: Params) -> None:
        """Begins a generation; the first is made at once, because without it nothing can be trained.

        Publishing the newest step again with the same parameters does nothing; a step that comes while an earlier one
        is still being embedded is dropped. Raises StaleSnapshot for any other step that is not after the newest,
        EmbedError for vectors that are not finite.
        """
        if self.closed:
            raise RefresherClosed(f"publish({step}) after close: start the engine again on the same folder")
        self.claim.check()
        self.step = max(self.step, step)
        newest = self.store.newest()
        if newest is None:
            self._make_first(step, params)
            return
        host = snapshot.to_host({"retriever": params["retriever"]})
        if step <= newest.step:
            self.store.refuse_unless_same(newest, step, snapshot.fingerprint(host))
            return
        if self.work is not None and self.snapshots.holds(step, host):
            return
        if step < (self._ready(newest.number, newest.step) if self.work is None else self.made_from + self.steps):
            self.dropped += 1
            return
        self.snapshots.remove(self.snapshots.steps())
        self.snapshots.write(step, host)
        self.published += 1
        self._begin(step, host)

    def newest(self) -> Generation | None:
        """The latest generation whose time has come, None before the first."""
        opened = (self.store.open(number) for number in reversed(self.store.numbers()))
        return next((g for g in opened if self.step >= self._ready(g.number, g.step)), None)

    def open(self, number: int) -> Generation:
        """A published generation by number: the one a checkpoint refers to. Raises GenerationMissing."""
        return self.store.open(number)

    def adopted(self, generation: GenerationLike, step: int, kept: Collection[int] = ()) -> None:
        """The trainer searches this generation from `step` on. Generations that are neither among the newest, nor in
        use, nor in `kept` (those that kept checkpoints refer to) are deleted."""
        self.store.log_adopted(generation, step)
        kept = {*kept, generation.number}
        gone = self.store.retain(self.config.keep, kept | self.store.awaited(kept), generation.number)
        if gone:
            self.report(f"generations {gone} deleted; {self.store.numbers()} stay")

    def rewind(self, step: int) -> None:
        """Called once on resume: what was published or adopted after `step` (-1: everything) is still to come, and is
        set aside until the same parameters are published again."""
        self.work = None
        self.store.rewind(step)
        self.snapshots.remove([s for s in self.snapshots.steps() if s > step])
        self.step = step + 1
        self._idle()

    def status(self) -> dict[str, Any]:
        """Numbers for logs; `steps`: how many steps a generation takes."""
        return {
            "engine": "interleave",
            "state": self.heartbeat.current["state"],
            "published": self.published,
            "dropped_snapshots": self.dropped,
            "steps": self.steps,
            "hopeless": False,
            "last_error": self.heartbeat.current["last_error"],
        } | facts(self.store, self.newest())

    def close(self) -> None:
        """Ends the engine; what is published stays, what is begun is taken up. A second call does nothing."""
        if not self.closed:
            self.closed, self.work = True, None
            self.heartbeat.beat(state="closed")
            self.claim.release()

    def _ready(self, number: int, made: int) -> int:
        """The step from which generation `number`, of step `made`, may be adopted."""
        return made if number == 0 else made + self.steps

    def _make_first(self, step: int, params: Params) -> None:
        with self._told(step):
            progress = Progress(self.heartbeat, self.report, 0, step)
            made = make_generation(self.store, step, params, progress)
        self.published += progress.worked
        self._finished(made)

    def _take_up(self) -> None:
        """After a resume: the snapshot that was being embedded, if it is not published yet."""
        newest, steps = self.store.newest(), self.snapshots.steps()
        if newest is not None and steps and steps[-1] > newest.step:
            self._begin(steps[-1], self.snapshots.read(steps[-1]))
        elif steps:
            self.snapshots.remove(steps)

    def _begin(self, step: int, host: Params) -> None:
        newest = self.store.newest()
        progress = Progress(self.heartbeat, self.report, newest.number + 1, step)
        self.work = making(self.store, step, host, progress, taken=self.snapshots.taken(step))
        self.made_from, self.done = step, 0

    def _advance(self, wanted: int, finish: bool) -> None:
        """Works until `wanted` batches are embedded, or to the end: the trainer waits while the index is built."""
        work, self.work = self.work, None  # where something goes wrong, it is over
        with self._told(self.made_from):
            while finish or self.done < wanted:
                try:
                    self.done += next(work)
                except StopIteration as result:
                    self.snapshots.remove(self.snapshots.steps())
                    self._finished(result.value)
                    return
        self.work = work

    def _finished(self, made: Generation) -> None:
        self.store.log_published()
        self.report(f"{made}, {cost(made)}")
        self.heartbeat.beat(last_error=None)
        self._idle()

    def _told(self, step: int) -> Any:
        return self.heartbeat.telling(f"step {step}")

    def _idle(self) -> None:
        newest = self.store.newest()
        number, step = (newest.number, newest.step) if newest else (None, None)
        self.heartbeat.beat(state="idle", generation=number, step=step)
