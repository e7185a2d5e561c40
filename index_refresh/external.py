"""The trainer's side of an asynchronous refresher: publish snapshots, read generations, and know how the other is.

`External` is for a refresher that somebody else runs over the same folder, for instance `realm refresh RUN` as a job of
its own on other machines; `Process` adds a child of its own. Nothing here ever waits for the refresher: no collective,
no lock, no queue. A snapshot is copied off the device at the step boundary and written from a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from index_refresh import snapshot
from index_refresh.generation import Generation
from index_refresh.heartbeat import read_heartbeat
from index_refresh.recipe import Recipe
from index_refresh.rolling import check_slices
from index_refresh.schedule import Schedule, refuse_delayed
from index_refresh.silence import Silence, describe
from index_refresh.snapshot import SnapshotStore
from index_refresh.store import GenerationStore
from index_refresh.sync import RefresherClosed, check_limits, cost, facts, silent
from realm.protocols import GenerationLike, Params, Report

DEATHS = 3  # of a child that has never published anything, or snapshots not written: it is not bad luck
LOOK = 0.2  # seconds between two looks at the folder and at the refresher
RETRY = 10.0  # seconds until a snapshot that could not be written is written again


class Other(Protocol):
    """Who does the work, seen from the trainer; all calls are short."""

    def check(self) -> None:
        """Notices that it died or hangs, tells, and does what can be done."""
        ...

    def wake(self) -> None:
        """There is work."""
        ...

    def end(self) -> None:
        """Ends it, where it is ours."""
        ...

    def facts(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class External:
    """A refresher that runs elsewhere over the same run folder.

    keep: newest generations kept on disk, besides those that kept checkpoints refer to. max_age: steps after which
    training stops rather than search so old an index (None: never), with a warning at half of it. hang_seconds: a
    refresher that is silent for so long is reported.
    """

    keep: int = 2
    max_age: int | None = None
    hang_seconds: float = 300.0

    def __post_init__(self) -> None:
        check_limits(self.keep, self.max_age)
        if self.hang_seconds <= 0:
            raise ValueError(f"found hang_seconds={self.hang_seconds}, wanted seconds above 0")

    def start(self, recipe: Recipe, schedule: Schedule, folder: str | Path, *, report: Report = silent) -> TrainerSide:
        """Opens a run folder, new or killed. Raises ScheduleError for a schedule that only `sync` can keep."""
        return TrainerSide(
            self, recipe, schedule, folder, report, Silence(Path(folder), self.hang_seconds, report), "external"
        )


class TrainerSide:
    """The running engine; see `realm.protocols.Refresher`. Only the trainer's main thread calls it."""

    asynchronous = True

    def __init__(
        self,
        config: Any,
        recipe: Recipe,
        schedule: Schedule,
        folder: str | Path,
        report: Report,
        other: Other,
        name: str,
    ) -> None:
        refuse_delayed(schedule, name)
        self.config, self.schedule, self.report, self.name = config, schedule, report, name
        self.max_age = config.max_age
        self.store, self.snapshots, self.other = GenerationStore(folder, recipe, report), SnapshotStore(folder), other
        check_slices(recipe, schedule, lambda: self.store.table.indexed)
        self.store.log_published()
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self.writing: Future | None = None
        self.latest: tuple[int, Params] | None = None  # what is being written, until it is on the disk
        self.failures, self.again = 0, 0.0  # tries to write it that failed, and when to try again
        self.unwritten: str | None = None  # why the last snapshot is not on the disk
        self.handed: int | None = None  # the last step that was published
        self.published = self.dropped = 0
        self.closed = False
        self.seen: Generation | None = self.store.sound()
        self.looked = 0.0

    def tick(self, step: int) -> None:
        """Looks after the refresher, tells what went wrong while a snapshot was written, and tries it again."""
        if self.writing is not None and self.writing.done():
            self._end_writing(self.writing.exception())
        if self.writing is None and self.latest is not None and time.monotonic() >= self.again:
            self.writing = self.writer.submit(self._write, *self.latest)
        if time.monotonic() - self.looked >= LOOK:
            self.looked = time.monotonic()
            self.other.check()
            self._look()

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        """Whether the schedule wants the parameters of this step published."""
        return self.schedule.due(step, drift)

    def publish(self, step: int, params: Params) -> None:
        """Copies the parameters to the host and leaves it to a thread to write them; the newest snapshot wins.

        Publishing the newest step again with the same parameters does nothing. Raises StaleSnapshot for any other step
        that is not after the newest.
        """
        if self.closed:
            raise RefresherClosed(f"publish({step}) after close: start the engine again on the same folder")
        host = snapshot.to_host({"retriever": params["retriever"]})
        if self._already(step, host):
            return
        if self.writing is not None and self.writing.cancel():
            self.dropped += 1
        if self.handed is not None and (self.seen is None or self.seen.step < self.handed):
            where = describe(self.store.run)
            self.report(f"slow: step {step} is due before there is a generation of step {self.handed}. {where}")
        self.latest, self.failures = (step, host), 0
        self.writing = self.writer.submit(self._write, step, host)
        self.handed = step
        self.published += 1
        self.other.wake()

    def newest(self) -> Generation | None:
        """The latest published generation, None before the first; looked for on the disk a few times a second."""
        if self.seen is None:
            self._look()
        return self.seen

    def open(self, number: int) -> Generation:
        """A published generation by number: the one a checkpoint refers to. Raises GenerationMissing."""
        return self.store.open(number)

    def adopted(self, generation: GenerationLike, step: int, kept: Collection[int] = ()) -> None:
        """The trainer searches this generation from `step` on. Generations that are neither among the newest, nor in
        use, nor in `kept` (those that kept checkpoints refer to) are deleted, from a thread."""
        self.store.log_adopted(generation, step)
        self.writer.submit(self.store.retain, self.config.keep, {*kept, generation.number}, generation.number)

    def rewind(self, step: int) -> None:
        """Called once on resume: what was published or adopted after `step` (-1: everything) is still to come, and is
        set aside until the same parameters are published again. A refresher at work on such a snapshot leaves it."""
        self._written()
        self.writing = self.latest = self.unwritten = None
        self.snapshots.remove([s for s in self.snapshots.steps() if s > step])
        self.store.rewind(step)
        self.seen, self.handed = self.store.sound(), None
        waiting = self.snapshots.steps()
        if waiting and (self.seen is None or waiting[-1] > self.seen.step):
            self.other.wake()

    def status(self) -> dict[str, Any]:
        """Numbers for logs; `state` and `last_error` are the refresher's own, as of its last heartbeat."""
        lost, newest = self._lost(), self.newest()
        beat, other = read_heartbeat(self.store.run) or {}, self.other.facts()
        refused = self.handed is not None and beat.get("refused") == self.snapshots.identity(self.handed) is not None
        deaths = max(self.failures, 0 if newest else other.get("deaths", 0))
        return (
            {
                "engine": self.name,
                "state": "failed" if self.unwritten else beat.get("state", "absent"),
                "published": self.published,
                "dropped_snapshots": self.dropped + beat.get("dropped", 0),
                "last_error": self.unwritten or beat.get("last_error") or (self.store.damage if lost else None),
                "hopeless": refused or lost or deaths >= DEATHS,
            }
            | other
            | facts(self.store, newest)
        )

    def close(self) -> None:
        """Ends the engine; snapshots and generations stay. A second call does nothing."""
        if not self.closed:
            self.closed = True
            self.writer.shutdown()
            self.other.end()

    def _already(self, step: int, host: Params) -> bool:
        """Whether exactly this was published before. Raises StaleSnapshot where something later or else was."""
        newest = self.store.sound()
        if newest is not None and step <= newest.step:
            self.store.refuse_unless_same(newest, step, snapshot.fingerprint(host))
            return True
        if self.handed is not None and step <= self.handed:
            self._written()
        return self.snapshots.holds(step, host)

    def _write(self, step: int, host: Params) -> None:
        """In the thread: the snapshot, and then away with those that wait and are overtaken. What is being embedded
        stays: a generation that is nearly there is worth more than one that begins anew."""
        self.snapshots.write(step, host)
        beat = read_heartbeat(self.store.run) or {}
        working = beat.get("step") if beat.get("state") in ("embedding", "building") else None
        overtaken = [s for s in self.snapshots.steps() if s < step and s != working]
        newest = self.store.sound()
        self.dropped += sum(newest is None or s > newest.step for s in self.snapshots.remove(overtaken))

    def _written(self) -> None:
        if self.writing is not None:
            wait([self.writing])

    def _end_writing(self, error: BaseException | None) -> None:
        """What could not be written is kept: a disk that has room again goes on, without waiting for the next step."""
        self.writing = None
        if error is None:
            self.latest, self.unwritten, self.failures = None, None, 0
            return
        self.failures, self.again = self.failures + 1, time.monotonic() + RETRY
        told, self.unwritten = self.unwritten, f"snapshot not written: {type(error).__name__}: {error}"
        if self.unwritten != told:
            self.report(f"WARNING {self.unwritten}; training goes on, it is tried again every {RETRY:.0f} s")

    def _lost(self) -> bool:
        """Whether the snapshot handed over last is neither to be written nor waiting, and no generation came of it that
        can be read: its generation is damaged."""
        if self.handed is None or self.latest is not None or self.snapshots.identity(self.handed) is not None:
            return False
        self._look()  # after that: a snapshot goes when its generation is there
        return self.seen is None or self.seen.step < self.handed

    def _look(self) -> None:
        """Takes over a later generation. Where the newest is damaged, training goes on with what it has, and the store
        tells of it."""
        later = self.store.later(self.seen)
        if later is not None:
            self.store.log_published()
            self.report(f"{later}, {cost(later)}")
            self.seen = later
