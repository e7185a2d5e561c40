"""A refresher as a job of its own over a run folder on shared storage, as REALM ran it: what `realm refresh RUN` does.

It may start before the trainer and outlive its restarts. It ends when the run is done (the stage's done.json), when
there is nothing left to embed and it was told to go then, or when a signal asks it to.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from index_refresh.claim import Claim
from index_refresh.device import DeviceError
from index_refresh.recipe import Recipe
from index_refresh.worker import Worker
from realm.protocols import Report

DONE = "done.json"


def refresh_run(
    run: str | Path,
    recipe: Recipe,
    *,
    report: Report = print,
    poll: float = 2.0,
    until_idle: bool = False,
    stop: Callable[[], bool] | None = None,
) -> None:
    """Embeds and publishes what the trainer of `run` snapshots, until the run is done.

    poll: seconds between looks at the folder. until_idle: end when no snapshot is waiting, instead of waiting for the
    next. stop: asked often, ends the work when true; by default SIGTERM and SIGINT do. The devices are those that jax
    finds. Raises RefresherTaken where another refresher works on this run, RunReplaced when the folder was emptied for
    another run meanwhile (--overwrite), into which nothing is published; the recipe must be the trainer's own, and a
    generation that does not fit the corpus is refused (GenerationMismatch).
    """
    run = Path(run)
    if not run.is_dir():
        raise FileNotFoundError(f"{run}: no such folder, wanted the run folder of a stage that retrieves")
    claim = Claim(run)
    try:
        with _Signals(report) as signals:
            asked = stop or signals.asked

            def ended() -> bool:
                return asked() or (run / DONE).exists()

            _say_where(report)
            Worker(run, recipe, stop=ended, report=report, poll=poll, held=claim.check).run(until_idle)
    finally:
        claim.release()


class _Signals:
    """SIGTERM and SIGINT ask, where this is the main thread; what handled them before handles them afterwards."""

    def __init__(self, report: Report) -> None:
        self.report, self.event = report, threading.Event()
        self.earlier: dict[int, object] = {}

    def asked(self) -> bool:
        return self.event.is_set()

    def __enter__(self) -> _Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self.earlier[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.earlier.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: object) -> None:
        self.event.set()
        self.report(f"{signal.Signals(number).name}: ending; what is embedded so far is kept")


def _say_where(report: Report) -> None:
    import jax

    try:
        report(f"embedding on {json.dumps([str(device) for device in jax.local_devices()])}")
    except RuntimeError as error:
        raise DeviceError(
            f"jax finds no device ({error}): set JAX_PLATFORMS, or start this on the refresher's host"
        ) from error
