"""Who may write into a run folder: one refresher at a time, and never two at once in the order of its generations.

A claim is a lock on `<run>/refresher.lock` for as long as a refresher lives. The kernel gives it back however the
process ends, and a child that inherits the descriptor holds it too: while an orphan of a killed trainer is still
running, no other refresher can begin. Where the file is deleted under its holder, as `--overwrite` does, the lock
keeps nobody out, and what the holder writes by path goes into another run: `Claim.check` tells. `ordered` is the short
lock under which generations are named, set aside and deleted.
"""

from __future__ import annotations

import errno
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


class RunReplaced(RefresherTaken):
    """The run folder was emptied or made anew under its refresher."""


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


def _in_place(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at `path`, and not one that was deleted or replaced since."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError as error:  # ESTALE: on shared storage, deleted by another machine
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return False
        raise


def _locked_file(path: Path, seconds: float) -> tuple[int, bool]:
    """The file at `path`, opened, made where there is none; whether it was got and locked. One that was replaced while
    it was waited for is let go, for the one that is there now."""
    end = time.monotonic() + seconds
    while True:
        descriptor = os.open(files.make_folder(path.parent) / path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not _lock(descriptor, end - time.monotonic()):
            return descriptor, False
        if _in_place(descriptor, path):
            return descriptor, True
        os.close(descriptor)


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
        descriptor, got = _locked_file(self.path, seconds)
        if not got:
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
        """Raises RefresherTaken where a later claim of this process has taken over, and RunReplaced where the file that
        is held is no longer the one at its path: there is another run now, which this refresher knows nothing of."""
        if self.descriptor is None:
            raise RefresherTaken(f"{self.path}: a later refresher on this folder has taken over from this one")
        if not _in_place(self.descriptor, self.path):
            raise RunReplaced(
                f"{self.path}: found it deleted or another file, wanted the one this refresher holds: the run folder "
                "was emptied or made anew (--overwrite), and this refresher has the settings of the run before. "
                "Nothing more is written; start it anew for the run that is there now"
            )

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
