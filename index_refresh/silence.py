"""A refresher of somebody else's, seen from outside: whether it still gives signs of life, and what it said last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from index_refresh.heartbeat import Pulsation, read_heartbeat
from realm.protocols import Report


class Silence:
    """Tells once when a refresher of somebody else's falls silent, and once when it is back."""

    def __init__(self, run: Path, seconds: float, report: Report) -> None:
        self.run, self.seconds, self.report = run, seconds, report
        self.pulsation, self.silent = Pulsation(run), False

    def check(self) -> None:
        silence = self.pulsation.silence()
        if (silence > self.seconds) != self.silent:
            self.silent = not self.silent
            self.report(
                f"WARNING {describe(self.run)}, silent for {silence:.0f} s" if self.silent else "refresher back"
            )

    def wake(self) -> None: ...

    def end(self) -> None: ...

    def facts(self) -> dict[str, Any]:
        return {"silent": self.silent}


def describe(run: Path) -> str:
    """What is known of a refresher from its last heartbeat, for people."""
    beat = read_heartbeat(run)
    if beat is None:
        return f"no refresher has ever worked on {run}: start `realm refresh` there"
    progress = beat["progress"]
    return (
        f"refresher pid {beat['pid']} on {beat['host']}: {beat['state']}, generation {beat['generation']} of step "
        f"{beat['step']}, {progress['done']} of {progress['total']} blocks, last error: {beat['last_error'] or 'none'}"
    )
