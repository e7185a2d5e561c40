"""refresher.json: what the refresher is doing, for people and for whoever waits for it.

A stalled or dead refresher is the commonest way for an asynchronous run to go quietly wrong. The file is replaced
atomically; `time` says when it was last written, `pid` by whom, `last_error` why the last publication failed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from index_refresh import files
from realm.protocols import Report

NAME = "refresher.json"


class Heartbeat:
    """Writes `{pid, state, generation, step, progress: {done, total}, last_error, time}`.

    state: idle | embedding | building | failed | closed. generation and step: the one being made, else the newest
    (null before the first). Progress inside a state is written at most once in `interval` seconds.
    """

    def __init__(self, run: str | Path, interval: float = 1.0) -> None:
        self.path = files.make_folder(Path(run)) / NAME
        self.interval = interval
        self.current: dict[str, Any] = {
            "pid": os.getpid(),
            "state": "idle",
            "generation": None,
            "step": None,
            "progress": {"done": 0, "total": 0},
            "last_error": None,
            "time": 0.0,
        }

    def beat(self, **changes: Any) -> None:
        """Takes over the changes, and writes them if the state or the error changed or the interval has passed."""
        now = time.time()
        urgent = any(changes.get(key, self.current[key]) != self.current[key] for key in ("state", "last_error"))
        late = not 0 <= now - self.current["time"] < self.interval
        self.current |= changes
        if urgent or late or "progress" not in changes:
            self.current["time"] = now
            files.write_json(self.path, self.current)


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
    """The last heartbeat of a run, None where there never was one."""
    path = Path(run) / NAME
    return files.read_json(path) if path.exists() else None
