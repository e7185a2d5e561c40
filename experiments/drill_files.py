"""Drills of the disk: files cut short or with a flipped bit, and a disk that is full."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from experiments.drill_crash import is_right
from experiments.drill_fakes import make_params, make_recipe
from experiments.drill_scenarios import publish
from experiments.drill_table import Row
from index_refresh import files
from index_refresh.generation import GenerationCorrupt, GenerationMismatch
from index_refresh.snapshot import SnapshotError, SnapshotStore
from index_refresh.store import GenerationStore
from realm.protocols import Params


def same(left: Params, right: Params) -> bool:
    """Whether two trees are one: keys of the same kinds, arrays of the same bits."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return not isinstance(left, dict) and not isinstance(right, dict) and left.tobytes() == right.tobytes()
    return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)


def damage_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """Any file of a generation or a snapshot cut short or with one bit flipped: refused with an error that says which,
    unless the bit means nothing (white space in JSON)."""
    row = Row("damaged files: cut short, one bit flipped")
    run = scratch / "damage"
    publish(0, 0, run)
    SnapshotStore(run).write(10, make_params(10))
    paths = [path for folder in ("generations", "snapshots") for path in (run / folder).rglob("*") if path.is_file()]
    for _ in range(tries):
        row.tries += 1
        path = sorted(paths)[rng.integers(len(paths))]
        whole = path.read_bytes()
        if rng.random() < 0.5:
            what, torn = "cut", whole[: rng.integers(len(whole))]
        else:
            what, torn = "flipped", bytearray(whole)
            torn[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(torn)
        try:
            generation = GenerationStore(run, make_recipe()).newest()
            generation.searcher()
            generation.query_params()
            params = SnapshotStore(run).read(10)
            if not is_right(generation, 0) or not same(params, make_params(10)):
                row.missed(f"{path.relative_to(run)}, {what}: nobody complained")
        except (GenerationCorrupt, GenerationMismatch, SnapshotError) as error:
            if path.name not in str(error):
                row.missed(f"{path.relative_to(run)}, {what}: the error does not name it: {error}")
        except Exception as error:
            row.missed(f"{path.relative_to(run)}, {what}: {type(error).__name__} instead of an error of ours: {error}")
        path.write_bytes(whole)
    if not is_right(GenerationStore(run, make_recipe()).newest(), 0):
        row.wrong("the mended generation is not right")
    return row


@contextmanager
def quota(run: Path, left: int) -> Iterator[None]:
    """A disk with so many bytes left: a write that passes them is done in part and fails."""
    real = files.put

    def put(path: Path, *chunks: bytes | memoryview, append: bool = False) -> None:
        nonlocal left
        content = b"".join(bytes(chunk) for chunk in chunks)
        fits, left = min(len(content), left), max(0, left - len(content))
        real(path, content[:fits], append=append)
        if fits < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    files.put = put
    try:
        yield
    finally:
        files.put = real


def full_disk_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """A publication that runs out of disk anywhere leaves the old index, and works when there is room again."""
    row, fsync = Row("full disk: quota"), files.fsync
    files.fsync = lambda path: None  # waits for the disk, and tells nothing here
    try:
        _fill(row, scratch, rng, tries)
    finally:
        files.fsync = fsync
    return row


def _fill(row: Row, scratch: Path, rng: np.random.Generator, tries: int) -> None:
    before = scratch / "before-full"
    publish(0, 0, before)
    used = sum(path.stat().st_size for path in before.rglob("*") if path.is_file())
    for number in range(tries):
        row.tries += 1
        run = scratch / f"full-{number}"
        shutil.copytree(before, run)
        bytes_left = int(rng.integers(0, 2 * used))
        try:
            with quota(run, bytes_left):
                publish(10, 10, run)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        store = GenerationStore(run, make_recipe())
        newest = store.newest()
        if not is_right(newest, newest.step):
            row.torn_seen(f"{bytes_left} bytes: {newest}")
        publish(10, 10, run)
        if store.newest().step != 10 or not is_right(store.newest(), 10):
            row.wrong(f"{bytes_left} bytes: {store.newest()} after there was room again")
        left = sorted(path.name for path in store.folder.iterdir())
        if left != ["0-0", "1-10"]:
            row.wrong(f"{bytes_left} bytes: left {left}")
        shutil.rmtree(run)


def file_limit_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """The kernel itself refuses to write (RLIMIT_FSIZE), in a process of its own."""
    row = Row("full disk: RLIMIT_FSIZE")
    for number in range(tries):
        row.tries += 1
        run, limit = scratch / f"limit-{number}", int(rng.integers(50, 1200))
        publish(0, 0, run)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            status = 0
            try:
                publish(10, 10, run)
            except OSError as error:
                status = 0 if error.errno == errno.EFBIG else 1
            except BaseException:
                status = 1
            os._exit(status)
        if os.waitpid(child, 0)[1]:
            row.missed(f"limit {limit}: an error that is not the kernel's")
        newest = GenerationStore(run, make_recipe()).newest()
        if not is_right(newest, newest.step):
            row.torn_seen(f"limit {limit}: {newest}")
        publish(10, 10, run)
        if not is_right(GenerationStore(run, make_recipe()).newest(), 10):
            row.wrong(f"limit {limit}: not right with the limit gone")
    return row
