"""The synchronous engine: the trainer waits while its own devices embed the corpus and build the index.

The simplest engine and the one the others are measured against: nothing is ever stale by more than the refresh
interval, and a run is a function of its seed alone. The index is always loaded from disk, never handed over in memory,
so that a resumed run searches exactly what the uninterrupted one did. Under a schedule that delays adoption (`latency`,
`recorded`) it imitates an asynchronous engine step for step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index_refresh.build import make_generation
from index_refresh.claim import Claim
from index_refresh.generation import Generation
from index_refresh.heartbeat import Heartbeat, Progress
from index_refresh.recipe import Recipe
from index_refresh.rolling import check_slices
from index_refresh.schedule import Delayed, Schedule
from index_refresh.store import GenerationStore
from realm.protocols import GenerationLike, Params, Report


def silent(line: str) -> None:
    """Reports nothing."""


def cost(generation: Generation) -> str:
    """What a generation took, for people."""
    manifest = generation.manifest
    return (
        f"embedded in {manifest['seconds_embed']:.1f} s ({manifest['blocks_per_second']:.0f} blocks/s), "
        f"built in {manifest['seconds_build']:.1f} s"
    )


def newest_visible(store: GenerationStore, schedule: Schedule, step: int) -> Generation | None:
    """The latest generation that the schedule lets be adopted at `step`."""
    opened = (store.open(number) for number in reversed(store.numbers()))
    return next((generation for generation in opened if schedule.visible(generation.step, step)), None)


def facts(store: GenerationStore, newest: Generation | None) -> dict[str, Any]:
    """What every engine's status says of its generations."""
    adopted = store.log.last_adopted()
    manifest = newest.manifest if newest else {}
    costs = ("seconds_embed", "seconds_build", "blocks_per_second", "peak_host_bytes", "peak_device_bytes", "index")
    return {
        "generations": len(store.numbers()),
        "newest": newest.number if newest else None,
        "newest_step": newest.step if newest else None,
        "adopted": adopted["generation"] if adopted else None,
        "adopted_step": adopted["generation_step"] if adopted else None,
    } | {name: manifest.get(name) for name in costs}


class RefresherClosed(RuntimeError):
    """Something was asked of an engine after `close`."""


def check_limits(keep: int, max_age: int | None) -> None:
    """Refuses, with a ValueError, what no engine could keep to."""
    if keep < 1:
        raise ValueError(f"found keep={keep}, wanted 1 or more: the generation in use cannot go")
    if max_age is not None and max_age < 1:
        raise ValueError(f"found max_age={max_age}, wanted 1 step or more, or none")


@dataclass(frozen=True)
class Sync:
    """Refreshes in the training process. `keep`: how many of the newest generations stay on disk, besides those that
    kept checkpoints refer to; 2, so that whoever is still loading the last but one can finish. `max_age`: steps after
    which training stops rather than search so old an index (None: never), with a warning at half of it."""

    keep: int = 2
    max_age: int | None = None

    def __post_init__(self) -> None:
        check_limits(self.keep, self.max_age)

    def start(
        self, recipe: Recipe, schedule: Schedule, folder: str | Path, *, report: Report = silent
    ) -> SyncRefresher:
        """Opens a run folder, new or killed. Nothing is embedded before the first `publish`."""
        return SyncRefresher(self, recipe, schedule, Path(folder), report)


class SyncRefresher:
    """The running engine; see `realm.protocols.Refresher`. Raises RefresherTaken where another process refreshes."""

    asynchronous = False

    def __init__(self, config: Sync, recipe: Recipe, schedule: Schedule, folder: Path, report: Report) -> None:
        self.config, self.schedule, self.report = config, schedule, report
        self.max_age, self.step = config.max_age, 0
        self.store = GenerationStore(folder, recipe)
        check_slices(recipe, schedule, lambda: self.store.table.indexed)
        self.claim = Claim(folder)  # after the check, whose error would leave it held
        self.store.recover()
        self.heartbeat = Heartbeat(folder)
        self.published = 0
        self.closed = False
        self._idle()

    def tick(self, step: int) -> None:
        """Step boundaries matter only to schedules that delay adoption."""
        self.step = step

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        """Whether the schedule wants the parameters of this step published."""
        return self.schedule.due(step, drift)

    def publish(self, step: int, params: Params) -> None:
        """Embeds the corpus with these parameters, builds the index and publishes both; returns when it is done.

        Publishing the newest step again with the same parameters does nothing. Raises StaleSnapshot for any other step
        that is not after the newest, EmbedError for vectors that are not finite; then the newest generation stays.
        """
        if self.closed:
            raise RefresherClosed(f"publish({step}) after close: start the engine again on the same folder")
        self.claim.check()
        self.step = max(self.step, step)
        newest = self.store.newest()
        progress = Progress(self.heartbeat, self.report, newest.number + 1 if newest else 0, step)
        with self.heartbeat.telling(f"step {step}"):
            made = make_generation(self.store, step, params, progress)
            self.store.log_published()
        self.published += progress.worked
        self.report(f"{made}, {cost(made)}" if progress.worked else f"{made}, already there")
        self.heartbeat.beat(last_error=None)
        self._idle()

    def newest(self) -> Generation | None:
        """The latest published generation that may be adopted by now, None before the first."""
        return newest_visible(self.store, self.schedule, self.step)

    def open(self, number: int) -> Generation:
        """A published generation by number: the one a checkpoint refers to. Raises GenerationMissing."""
        return self.store.open(number)

    def adopted(self, generation: GenerationLike, step: int, kept: Collection[int] = ()) -> None:
        """The trainer searches this generation from `step` on. Generations that are neither among the newest, nor in
        use, nor in `kept` (those that kept checkpoints refer to) are deleted."""
        self.store.log_adopted(generation, step)
        kept = {*kept, generation.number}
        awaited = self.store.awaited(kept) if isinstance(self.schedule, Delayed) else set()
        gone = self.store.retain(self.config.keep, kept | awaited, generation.number)
        if gone:
            self.report(f"generations {gone} deleted; {self.store.numbers()} stay")

    def rewind(self, step: int) -> None:
        """Called once on resume: what was published or adopted after `step` (-1: everything) is still to come, and is
        set aside until the same parameters are published again."""
        self.store.rewind(step)
        self.step = step + 1
        self._idle()

    def status(self) -> dict[str, Any]:
        """Numbers for logs: state, what is newest and adopted, seconds and blocks/s of the newest, last error."""
        return {
            "engine": "sync",
            "state": self.heartbeat.current["state"],
            "published": self.published,
            "dropped_snapshots": 0,
            "hopeless": False,
            "last_error": self.heartbeat.current["last_error"],
        } | facts(self.store, self.newest())

    def close(self) -> None:
        """Ends the engine; what is published stays. A second call does nothing."""
        if not self.closed:
            self.closed = True
            self.heartbeat.beat(state="closed")
            self.claim.release()

    def _idle(self) -> None:
        newest = self.store.newest()
        number, step = (newest.number, newest.step) if newest else (None, None)
        self.heartbeat.beat(state="idle", generation=number, step=step)
