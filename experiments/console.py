"""Where tables are printed, and how far a long phase has come; imports nothing heavy."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console


def wide_console() -> Console:
    """The terminal, or 120 columns where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def progress(unit: str, seconds: float = 15.0) -> Callable[[str, int, int], None]:
    """What says on stderr how far a phase has come, given its name, what is done and the total: every so many seconds,
    and at its end where it took that long."""
    began = last = time.monotonic()

    def tick(phase: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > seconds or (done == total and now - began > seconds):
            last = now
            print(f"{phase} {done} of {total} {unit}, {now - began:.0f} s", file=sys.stderr, flush=True)

    return tick
