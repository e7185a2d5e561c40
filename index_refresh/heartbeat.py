"""refresher.json: what the refresher is doing, for people and for whoever waits for it.

A stalled or dead refresher is the commonest way for an asynchronous run to go quietly wrong. The file is replaced
atomically; `time` says when it was last written, `pid` and `host` by whom, `last_error` why the last publication
failed, `dropped` how many snapshots were overtaken by a newer one before they could be embedded, `refused` which one
cannot be.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from index_refresh import files
from realm.protocols import Report

NAME = "refresher.json"


class Heartbeat:
    """Writes `{pid, host, state, generation, step, progress: {done, total}, dropped, refused, last_error, time}`.

    state: starting | idle | embedding | building | failed | closed. generation and step: the one being made, else the
    newest (null before the first). Progress inside a state is written at most once in `interval` seconds.
    """

    def __init__(self, run: str | Path, interval: float = 1.0) -> None:
        self.path = files.make_folder(Path(run)) / NAME
        self.interval = interval
        self.current: dict[str, Any] = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "state": "idle",
            "generation": None,
            "step": None,
            "progress": {"done": 0, "total": 0},
            "dropped": 0,
            "refused": None,
            "last_error": None,
            "time": 0.0,
        }
        self._lock = threading.Lock()

    def beat(self, **changes: Any) -> None:
        """Takes over the changes, and writes them if the state or the error changed or the interval has passed."""
        with self._lock:
            now = time.time()
            urgent = any(changes.get(key, self.current[key]) != self.current[key] for key in ("state", "last_error"))
            late = not 0 <= now - self.current["time"] < self.interval
            self.current |= changes
            if urgent or late or "progress" not in changes:
                self.current["time"] = now
                with suppress(OSError):  # a full disk is told of by whoever needs it for more than this
                    files.write_json(self.path, self.current)

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Writes down an error that passes through, and lets it pass."""
        try:
            yield
        except Exception as error:
            self.beat(state="failed", last_error=f"{what}: {type(error).__name__}: {error}")
            raise

    def restart(self) -> None:
        """The first beat of a refresher that takes over: what the last one counted and complained of stays."""
        earlier = read_heartbeat(self.path.parent) or {}
        kept = {name: earlier.get(name, self.current[name]) for name in ("dropped", "last_error", "refused")}
        self.beat(state="starting", **kept)

    @contextmanager
    def pulse(self) -> Iterator[None]:
        """Beats from a thread for as long as this process burns processor time: a compilation or the building of an
        index says nothing of itself for many minutes. One that waits for ever does not burn any, and falls silent."""
        done = threading.Event()

        def beat() -> None:
            used = time.process_time()
            while not done.wait(self.interval):
                burnt, used = time.process_time() - used, time.process_time()
                if burnt > 0.01 * self.interval:
                    self.beat(progress=self.current["progress"])

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Pulsation:
    """Whether somebody else's heartbeat goes on, by our own clock: only that the file changes counts, not its time."""

    def __init__(self, run: str | Path) -> None:
        self.run, self.seen = Path(run), None
        self.changed = time.monotonic()

    def reset(self) -> None:
        """A new refresher begins: its silence counts from now."""
        self.changed = time.monotonic()

    def silence(self) -> float:
        """Seconds since a change was first seen."""
        found = read_heartbeat(self.run)
        if found != self.seen:
            self.seen = found
            self.changed = time.monotonic()
        return time.monotonic() - self.changed


class Progress:
    """Passes row counts on to the heartbeat and, every `interval` seconds, with the time left, to people."""

    def __init__(self, heartbeat: Heartbeat, report: Report, generation: int, step: int, interval: float = 30.0):
        self.heartbeat, self.report, self.interval = heartbeat, report, interval
        self.generation, self.step = generation, step
        self.started = self.told = time.perf_counter()
        self.first: int | None = None
        self.worked = False  # whether anything had to be made at all

    def __call__(self, phase: str, done: int, total: int) -> None:
        """phase 'embedding' or 'building'; rows done of rows in all, those of an interrupted embedding included."""
        self.worked = True
        self.first = done if self.first is None else self.first
        progress = {"done": done, "total": total}
        self.heartbeat.beat(state=phase, generation=self.generation, step=self.step, progress=progress)
        now = time.perf_counter()
        if phase == "embedding" and now - self.told >= self.interval and done > self.first:
            self.told = now
            rate = (done - self.first) / max(now - self.started, 1e-9)
            self.report(
                f"generation {self.generation} of step {self.step}: {done} of {total} blocks embedded, "
                f"{rate:.0f} blocks/s, {(total - done) / rate / 60:.0f} min left"
            )


def read_heartbeat(run: str | Path) -> dict[str, Any] | None:
    """The last heartbeat of a run, None where there never was one that can be read."""
    try:
        return files.read_json(Path(run) / NAME)
    except (FileNotFoundError, ValueError):
        return None
