"""Who may write into a run folder: one refresher at a time, and never two at once in the order of its generations.

A claim is a lock on `<run>/refresher.lock` for as long as a refresher lives. The kernel gives it back however the
process ends, and a child that inherits the descriptor holds it too: while an orphan of a killed trainer is still
running, no other refresher can begin. `ordered` is the short lock under which generations are named, set aside and
deleted.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from index_refresh import files

OWNER, ORDER = "refresher.lock", "generations.lock"
POLL = 0.05


class RefresherTaken(RuntimeError):
    """Another refresher works on this run folder."""


class OrderBusy(TimeoutError):
    """Somebody holds the lock on the order of the generations for longer than can be waited for."""


def _lock(descriptor: int, seconds: float | None) -> bool:
    """Locks, waiting so long (None: for ever); whether it got the lock."""
    if seconds is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return True
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(POLL)


def _holder(descriptor: int) -> str:
    """What the holder of a claim wrote of itself. It has the lock before it has written: that is waited for."""
    for _ in range(20):
        if name := os.pread(descriptor, 4096, 0).decode(errors="replace").strip():
            return name
        time.sleep(POLL)
    return "an unnamed process"


class Claim:
    """The right to refresh one run folder. Within one process the newest claim wins: the earlier holder is told by
    `on_loss` and refuses to go on, so that an abandoned engine of a notebook does not block its successor."""

    _here: dict[Path, Claim] = {}  # claims of this process

    def __init__(self, run: str | Path, seconds: float = 0.0, on_loss: Callable[[], None] = lambda: None) -> None:
        """Waits `seconds` for another process to let go. Raises RefresherTaken, naming the holder."""
        self.path = (files.make_folder(Path(run)) / OWNER).resolve()
        self.on_loss = on_loss
        self.descriptor: int | None = None
        earlier = self._here.get(self.path)
        if earlier is not None:
            earlier.on_loss()
            earlier.release()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(descriptor, seconds):
            holder = _holder(descriptor)
            os.close(descriptor)
            raise RefresherTaken(
                f"{self.path}: {holder} refreshes this run; two refreshers on one folder would publish over each "
                "other. Stop that one, or wait until it has ended"
            )
        self.descriptor = descriptor
        self._here[self.path] = self
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)

    def check(self) -> None:
        """Raises RefresherTaken where a later claim of this process has taken over."""
        if self.descriptor is None:
            raise RefresherTaken(f"{self.path}: a later refresher on this folder has taken over from this one")

    def release(self) -> None:
        """Lets go; a second call does nothing."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
            if self._here.get(self.path) is self:
                del self._here[self.path]


@contextmanager
def ordered(run: str | Path, seconds: float | None = None) -> Iterator[None]:
    """Alone with the names of the generations of a run, after waiting at most `seconds` (None: for ever).

    Raises OrderBusy: a trainer waits for nobody who may be hung.
    """
    path = files.make_folder(Path(run)) / ORDER
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _lock(descriptor, seconds):
            raise OrderBusy(f"{path}: another process has held this lock for {seconds:.0f} s; is a refresher hung?")
        yield
    finally:
        os.close(descriptor)
