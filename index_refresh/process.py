"""The `process` engine: a child on the same host embeds and builds while training goes on.

The child is a fresh interpreter with its own device. It shares nothing with the trainer but the run folder, the claim
on it, and a pipe whose end tells it that the trainer is gone. A dead or silent child is named with its last error and
started again after a pause that doubles; what it had embedded is taken up. Training never waits for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from index_refresh.child import SETTINGS, Order, write_order
from index_refresh.claim import Claim
from index_refresh.device import DeviceError, environment, refuse_tpu
from index_refresh.external import TrainerSide
from index_refresh.heartbeat import Heartbeat, Pulsation
from index_refresh.recipe import Recipe
from index_refresh.schedule import Schedule
from index_refresh.silence import describe
from index_refresh.store import GenerationStore
from index_refresh.sync import check_limits, silent
from realm.protocols import Report

LOG = "refresher.log"
LONGEST_PAUSE = 300.0
CLAIM_SECONDS = 30.0  # an orphan of a killed trainer is dead long before


@dataclass(frozen=True)
class Process:
    """A child process on this host.

    device: `cpu`, `gpu:N`, or `gpu:N:0.3` for a share of a GPU's memory. cores: the processors the child may use (None:
    all). hang_seconds: a child whose heartbeat and processor time stand still for so long is killed and started again.
    restart_seconds: pause before the first restart; it doubles up to five minutes until a generation is published.
    keep, max_age: as for External. poll_seconds: how often the child looks for snapshots.
    """

    device: str = "cpu"
    cores: tuple[int, ...] | None = None
    keep: int = 2
    max_age: int | None = None
    hang_seconds: float = 300.0
    restart_seconds: float = 1.0
    poll_seconds: float = 0.25

    def __post_init__(self) -> None:
        check_limits(self.keep, self.max_age)
        environment(self.device)
        if min(self.hang_seconds, self.restart_seconds, self.poll_seconds) <= 0:
            raise ValueError(f"found {self}, wanted seconds above 0")
        if self.cores is not None and not (self.cores and set(self.cores) <= _processors()):
            raise DeviceError(f"found cores {self.cores}, wanted some of this host's {sorted(_processors())}, or none")

    def start(self, recipe: Recipe, schedule: Schedule, folder: str | Path, *, report: Report = silent) -> TrainerSide:
        """Opens a run folder, new or killed; the child starts with the first snapshot.

        Raises DeviceError on TPU, RefresherTaken where another refresher works on the folder, ScheduleError for a
        schedule that only `sync` can keep.
        """
        refuse_tpu(jax.default_backend())
        child = Child(self, recipe, Path(folder), report)
        try:
            return TrainerSide(self, recipe, schedule, folder, report, child, "process")
        except BaseException:
            child.end()
            raise


def _processors() -> set[int]:
    return set(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


class Child:
    """The child and its restarts; see `external.Other`. `hands`: who embeds and builds for it, None for itself."""

    def __init__(self, config: Any, recipe: Recipe, run: Path, report: Report, hands: Any = None) -> None:
        self.config, self.recipe, self.run, self.report, self.hands = config, recipe, run, report, hands
        self.claim = Claim(run, CLAIM_SECONDS, on_loss=self.end)
        self.pulsation = Pulsation(run)
        self.process: subprocess.Popen | None = None
        self.deaths = self.hangs = 0
        self.failures = 0  # deaths since the last generation
        self.store = GenerationStore(run, recipe)
        self.made = self.store.next_number()  # a heartbeat tells of the generation being made, which is none yet
        self.again: float | None = None  # when to start it again
        self.last_error: str | None = None
        self.ended = False

    def wake(self) -> None:
        """Starts the child where it was never started; after a death `check` does, when its pause is over."""
        if self.process is None and self.again is None and not self.ended:
            self._try_to_start()

    def check(self) -> None:
        if self.ended:
            return
        if self.again is not None and time.monotonic() >= self.again:
            self._try_to_start()
        if self.process is None:
            return
        silence = self.pulsation.silence()
        if (made := self.store.next_number()) != self.made:
            self.made, self.failures = made, 0
        code = self.process.poll()
        if code is not None:
            self.deaths += 1
            self._restart_later(f"died ({_named(code)})")
        elif silence > self.config.hang_seconds:
            self.hangs += 1
            self.process.kill()
            self.process.wait()
            self._restart_later(f"killed after {silence:.0f} s of silence")

    def end(self) -> None:
        """Asks the child to stop, and makes it after ten seconds; lets the folder go."""
        self.ended = True
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process.stdin.close()
            self.process = None
        self.claim.release()

    def facts(self) -> dict[str, Any]:
        return {
            "device": self.config.device,
            "pid": self.process.pid if self.process else None,
            "deaths": self.deaths,
            "hangs": self.hangs,
            "last_death": self.last_error,
        }

    def _try_to_start(self) -> None:
        try:
            self._start()
        except OSError as error:  # no memory, no descriptors, no disk: not for training to die of
            self._restart_later(f"did not start ({error})")

    def _start(self) -> None:
        self.again = None
        self.claim.check()
        Heartbeat(self.run).restart()
        with open(self.run / LOG, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "index_refresh.child"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self.config.device) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                pass_fds=(self.claim.descriptor,),
            )
        config = {name: getattr(jax.config, name) for name in SETTINGS}
        order = Order(
            os.getpid(), str(self.run), self.claim.descriptor, self.config.poll_seconds, self.config.cores, config
        )
        try:
            write_order(self.process.stdin, order, self.recipe, self.hands)
        except BrokenPipeError:
            pass  # it died at once; `check` will find it so, and refresher.log says why
        self.pulsation.reset()
        cores = "all processors" if self.config.cores is None else f"processors {list(self.config.cores)}"
        self.report(f"refresher: pid {self.process.pid} on {self.config.device}, {cores}; {self.run / LOG}")

    def _restart_later(self, what: str) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process = None
        pause = min(self.config.restart_seconds * 2**self.failures, LONGEST_PAUSE)
        self.failures += 1
        self.again = time.monotonic() + pause
        self.last_error = f"{what}; {describe(self.run)}{_last_line(self.run / LOG)}"
        self.report(f"WARNING refresher {self.last_error}. Training goes on; it starts again in {pause:.0f} s")


def _named(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    """The last thing a child said, which for a crash is its exception."""
    lines = log.read_text("utf-8", errors="replace").splitlines() if log.exists() else []
    return f", last line of {log.name}: {lines[-1].strip()}" if lines else ""
