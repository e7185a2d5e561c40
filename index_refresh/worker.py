"""The refresher's own loop, in whichever process it runs: take the newest snapshot, embed, build, publish, again.

REALM's poller looked for exports without pause, could take an older one after a newer, lost the export it crashed on,
and never ended. Here steps only go up, a snapshot stays until its generation is published, a failure is told and tried
again with growing pauses, and the loop ends when the trainer's run is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from index_refresh.build import BuildError, Hands, make_generation
from index_refresh.claim import RefresherTaken
from index_refresh.embed import EmbedError, NoSpace
from index_refresh.generation import Generation
from index_refresh.heartbeat import Heartbeat, Progress
from index_refresh.recipe import Recipe
from index_refresh.snapshot import SnapshotError, SnapshotStore
from index_refresh.store import GenerationStore, Overtaken, StaleSnapshot
from index_refresh.sync import cost, silent
from realm.protocols import Report

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds before a failed snapshot is tried again


class Undone(RuntimeError):
    """The snapshot being embedded is gone or another one: its trainer resumed from before it."""


class Stopped(RuntimeError):
    """The refresher was asked to end; what is embedded so far is taken up by the next one."""


class Worker:
    """One refresher over one run folder; its caller holds the claim. `stop` is asked often and ends it when true.
    `hands`: who embeds and builds, this process by default. `held`: raises RefresherTaken where the claim is lost,
    which ends the work at once; asked before each round, beside `stop`, and before publishing."""

    def __init__(
        self,
        run: str | Path,
        recipe: Recipe,
        *,
        stop: Callable[[], bool],
        report: Report = silent,
        poll: float = 0.5,
        hands: Hands | None = None,
        held: Callable[[], None] = lambda: None,
    ) -> None:
        self.store, self.snapshots = GenerationStore(run, recipe, report), SnapshotStore(run)
        self.stop, self.report, self.poll, self.hands = stop, report, poll, hands
        self.held = held
        self.heartbeat = Heartbeat(run)
        self.heartbeat.restart()
        self.failures = 0

    def run(self, until_idle: bool = False) -> None:
        """Works until `stop`; with `until_idle` also ends when there is no snapshot left to embed."""
        try:
            self.held()
            self.store.clear()
            self._beat_idle()
            with self.heartbeat.pulse():
                while not self.stop():
                    self.held()
                    worked = self._round()
                    if not worked and until_idle:
                        break
                    if not worked:
                        self.heartbeat.beat(progress=self.heartbeat.current["progress"])
                        self._sleep(self.poll)
        except RefresherTaken:  # not even a heartbeat: the folder is another's
            raise
        except Exception as error:
            self.heartbeat.beat(state="failed", last_error=f"{type(error).__name__}: {error}")
            raise
        self.heartbeat.beat(state="closed")

    def _round(self) -> bool:
        """One snapshot, if there is one to embed; whether there was. Raises RefresherTaken."""
        step = None
        try:
            step = self._next()
            if step is None:
                return False
            made, worked = self._make(step)
        except Stopped:
            return True
        except RefresherTaken:
            raise
        except (Undone, Overtaken, StaleSnapshot) as reason:
            self.held()  # a snapshot that is gone, or a file in the error below, may have gone with its run
            self.report(f"snapshot of step {step} left: {reason}")
            return True
        except Exception as error:
            self.held()
            self._failed(step, error)
            return True
        self.failures = 0
        self.report(f"{made}, {cost(made)}" if worked else f"{made}, already there")
        self.snapshots.remove([step])
        self.heartbeat.beat(last_error=None)
        self._beat_idle()
        return True

    def _next(self) -> int | None:
        """The newest snapshot, unless it is published already or known to be unfit. Older ones go: the newest wins."""
        newest = self.store.sound()
        *older, step = self.snapshots.steps() or [None]
        if step is None or (newest is not None and step <= newest.step):
            return None
        if self.snapshots.identity(step) == self.heartbeat.current["refused"]:
            return None
        overtaken = [s for s in self.snapshots.remove(older) if newest is None or s > newest.step]
        if overtaken:
            self.report(f"snapshots of steps {overtaken} dropped for that of step {step}")
        self.heartbeat.beat(dropped=self.heartbeat.current["dropped"] + len(overtaken))
        return step

    def _make(self, step: int) -> tuple[Generation, bool]:
        wanted = self.snapshots.identity(step)
        told = time.monotonic()

        def confirm() -> None:
            self.held()
            if wanted is None or self.snapshots.identity(step) != wanted:
                raise Undone(f"the trainer went back to before step {step}, or has a newer one")

        number = self.store.next_number()
        # Told before anything is read: the trainer removes waiting snapshots, but not the one at work.
        nothing_yet = {"done": 0, "total": self.store.table.indexed}
        self.heartbeat.beat(state="embedding", generation=number, step=step, progress=nothing_yet)
        progress = Progress(self.heartbeat, self.report, number, step)

        def tick(phase: str, done: int, total: int) -> None:
            nonlocal told
            self.held()  # before the heartbeat is written
            progress(phase, done, total)
            if self.stop():
                raise Stopped
            if time.monotonic() - told > 1.0:
                told = time.monotonic()
                confirm()

        try:
            taken, params = self.snapshots.taken(step), self.snapshots.read(step)
        except FileNotFoundError:
            raise Undone(f"the trainer removed it for a newer one, or went back to before step {step}") from None
        made = make_generation(self.store, step, params, tick, taken=taken, confirm=confirm, hands=self.hands)
        return made, progress.worked

    def _failed(self, step: int | None, error: Exception) -> None:
        """Some errors lie in the snapshot, and only a newer one can be better; all others may pass."""
        self.failures += 1
        text = ("" if step is None else f"step {step}: ") + f"{type(error).__name__}: {error}"
        self.heartbeat.beat(state="failed", last_error=text)
        hopeless = (
            step is not None
            and isinstance(error, (EmbedError, BuildError, SnapshotError))
            and not isinstance(error, NoSpace)
        )
        if hopeless:
            self.heartbeat.beat(refused=self.snapshots.identity(step))
            self.report(f"{text}; waiting for a newer snapshot")
            return
        pause = min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)
        self.report(f"{text}; trying again in {pause:.0f} s")
        self._sleep(pause)

    def _beat_idle(self) -> None:
        newest = self.store.sound()
        number, step = (newest.number, newest.step) if newest else (None, None)
        self.heartbeat.beat(state="idle", generation=number, step=step)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stop() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self.poll))
