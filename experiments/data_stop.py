"""Ctrl-C and SIGTERM as an exception: what runs is closed on its way out, and what is finished stays.

A build that dies of a signal leaves its workers to notice by themselves, and one that is interrupted prints where it
stood. Here both end the same way: workers stop after the part they are at, and one line says how to go on.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_came: list[int] = []  # signals inside `stoppable`


class Stopped(BaseException):
    """A signal came. number: which; its notes say what is left and how to go on."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number

    def told(self) -> str:
        return ": ".join([str(self), *getattr(self, "__notes__", ())])


@contextmanager
def stoppable() -> Iterator[None]:
    """Raises Stopped inside at the first SIGINT or SIGTERM; a second one does what it did before.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    old: dict[int, Any] = {}
    _came.clear()

    def stop(number: int, frame: Any) -> None:
        restore()
        _came.append(number)
        raise Stopped(number)

    def restore() -> None:
        while old:
            signal.signal(*old.popitem())

    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            old[number] = signal.signal(number, stop)
    except ValueError:
        pass
    try:
        yield
    finally:
        restore()


@contextmanager
def going_on(out: Path) -> Iterator[None]:
    """What builds the corpus folder `out`: when it is stopped, says from where the same command goes on.

    Raises Stopped also for a signal that came before and was lost, as exceptions are in callbacks of an import.
    """
    try:
        if _came:
            raise Stopped(_came[0])
        yield
    except Stopped as stop:
        out = out.absolute()
        parts = out.with_name(f"{out.name}.parts")
        if parts.is_dir():
            stop.add_note(f"the same command goes on from the finished parts in {parts}")
        raise
