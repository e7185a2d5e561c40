"""A refresher killed at any write, fsync or rename leaves the old index or the whole new one, and can go on.

Every primitive of `index_refresh.files` counts; the n-th call dies, half done, for every n. To be as bad as a power
cut, at the moment of death a file loses half of what was written to it since its last fsync, and a rename whose folder
was not fsynced has not happened.
"""

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from index_refresh import files
from index_refresh.generation import verify
from index_refresh.schedule import Every
from index_refresh.sync import Sync
from tests.index_refresh.refresh_fakes import contents, make_params, make_recipe


class Killed(BaseException):
    """Not an Exception: no handler of ours gets to tidy up after it."""


class Killer:
    """Replaces the primitives; from call number `at` on nothing reaches the disk any more."""

    NAMES = ("put", "fsync", "rename", "link", "unlink", "remove_tree")

    def __init__(self, monkeypatch, at):
        self.at, self.calls = at, 0
        self.unsynced: dict[Path, int] = {}  # bytes that are safe
        self.renamed: list[tuple[Path, Path, bytes | None]] = []
        for name in self.NAMES:
            monkeypatch.setattr(files, name, self._wrapped(name, getattr(files, name)))

    def _wrapped(self, name, real):
        def call(path, *rest, **named):
            self.calls += 1
            if self.calls == self.at:
                self._half(name, path, rest, named, real)
                self._cut_power()
            if self.calls >= self.at:
                raise Killed
            if name == "put":
                safe = path.stat().st_size if named.get("append") and path.exists() else 0
                self.unsynced.setdefault(path, safe)
            elif name == "rename":
                replaced = rest[0].read_bytes() if rest[0].is_file() else None
                self.renamed.append((path, rest[0], replaced))
            real(path, *rest, **named)
            if name == "fsync":
                self.unsynced.pop(path, None)
                self.renamed = [r for r in self.renamed if r[1].parent != path]
            elif name == "rename":
                self._follow(path, rest[0])

        return call

    def _follow(self, source, target):
        for path in [p for p in self.unsynced if p == source or source in p.parents]:
            self.unsynced[target / path.relative_to(source)] = self.unsynced.pop(path)

    def _cut_power(self):
        for path, safe in self.unsynced.items():
            if path.is_file():
                os.truncate(path, (safe + path.stat().st_size) // 2)
        for source, target, replaced in reversed(self.renamed):
            if target.exists():
                os.replace(target, source)
            if replaced is not None:
                target.write_bytes(replaced)

    def _half(self, name, path, rest, named, real):
        if name == "put":
            content = b"".join(bytes(chunk) for chunk in rest)
            real(path, content[: len(content) // 2], **named)
        elif name == "remove_tree":
            for file in sorted(p for p in path.rglob("*") if p.is_file())[::2]:
                file.unlink()


@pytest.fixture(autouse=True)
def no_waiting_for_disks(monkeypatch):
    """What counts here is which fsync was asked for and when, not the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def start(run):
    return Sync(keep=1).start(make_recipe(), Every(10), run)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A run with generations 0 and 1 (steps 0 and 10), 0 adopted."""
    run = tmp_path_factory.mktemp("before") / "run"
    refresher = start(run)
    refresher.publish(0, make_params(0))
    refresher.adopted(refresher.newest(), 0)
    refresher.publish(10, make_params(10))
    refresher.close()
    return run


@pytest.fixture(scope="module")
def after(before, tmp_path_factory):
    """What an uninterrupted publication of step 20 gives."""
    run = tmp_path_factory.mktemp("after") / "run"
    shutil.copytree(before, run)
    refresher = start(run)
    refresher.publish(20, make_params(20))
    return contents(refresher.newest().path)


def kill_everywhere(before, tmp_path, act, check, stride=1):
    """Runs `act(run)` killed at its 1st, 2nd, ... disk operation (every `stride`-th), and `check(run)` after each; the
    number of disk operations it has."""
    for at in itertools.count(1, stride):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(before, run)
        with pytest.MonkeyPatch.context() as monkeypatch:
            Killer(monkeypatch, at)
            try:
                act(run)
                return at - 1
            except Killed:
                pass
        check(run)


def test_publication(before, after, tmp_path):
    def check(run):
        refresher = start(run)
        newest = refresher.newest()
        assert newest.number in (1, 2)
        logged = [e["generation"] for e in refresher.store.log.events() if e["event"] == "published"]
        assert logged == refresher.store.numbers()
        for generation in refresher.store.all():
            verify(generation)
        refresher.publish(20, make_params(20))
        made = refresher.newest()
        verify(made)
        assert (made.number, made.step) == (2, 20)
        assert contents(made.path) == after  # bit for bit, and nothing left over
        events = [(e["event"], e["step"]) for e in refresher.store.log.events()]
        assert sorted(events) == [("adopted", 0), ("published", 0), ("published", 10), ("published", 20)]
        assert sorted(p.name for p in refresher.store.folder.iterdir()) == ["0-0", "1-10", "2-20"]

    kills = kill_everywhere(before, tmp_path, lambda run: start(run).publish(20, make_params(20)), check)
    assert kills > 40


def test_publication_of_something_else_afterwards(before, tmp_path):
    def check(run):
        refresher = start(run)
        if refresher.newest().step < 20:
            refresher.publish(30, make_params(30))
            assert sorted(p.name for p in refresher.store.folder.iterdir()) == ["0-0", "1-10", "2-30"]
            verify(refresher.newest())
            words = refresher.newest().query_params()["retriever"]["words"]
            np.testing.assert_array_equal(words, make_params(30)["retriever"]["words"])

    kill_everywhere(before, tmp_path, lambda run: start(run).publish(20, make_params(20)), check, stride=3)


def test_adoption_and_deletion(before, tmp_path):
    def act(run):
        refresher = start(run)
        refresher.adopted(refresher.newest(), 11)

    def check(run):
        refresher = start(run)
        assert refresher.newest().number == 1
        for generation in refresher.store.all():
            verify(generation)
        refresher.adopted(refresher.newest(), 11)
        assert [(e["generation"], e["step"]) for e in refresher.store.log.events() if e["event"] == "adopted"] == [
            (0, 0),
            (1, 11),
        ]
        assert [p.name for p in refresher.store.folder.iterdir()] == ["1-10"]

    assert kill_everywhere(before, tmp_path, act, check) > 5


def test_rewind_and_another_course(before, tmp_path):
    def act(run):
        refresher = start(run)
        refresher.rewind(5)
        refresher.publish(10, make_params(77))

    def check(run):
        refresher = start(run)
        assert refresher.newest().number in (0, 1)
        refresher.rewind(5)
        assert refresher.newest().number == 0
        refresher.publish(10, make_params(77))
        verify(refresher.newest())
        words = refresher.newest().query_params()["retriever"]["words"]
        np.testing.assert_array_equal(words, make_params(77)["retriever"]["words"])
        assert sorted(p.name for p in refresher.store.folder.iterdir()) == ["0-0", "1-10"]

    assert kill_everywhere(before, tmp_path, act, check, stride=2) > 40


def test_an_interrupted_embedding_goes_on_shard_by_shard(before, after, tmp_path, monkeypatch):
    """Killed while the third of three shards is written: the first two are not embedded again."""
    from tests.index_refresh.refresh_fakes import PACKED

    run = tmp_path / "run"
    shutil.copytree(before, run)
    real = files.put

    def put(path, *chunks, **named):
        if "shard-00002" in path.name:
            raise Killed
        real(path, *chunks, **named)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(files, "put", put)
        start(run).publish(20, make_params(20))
    damaged = run / "generations" / ".staging-2-20" / "shard-00001.npy"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    PACKED.clear()
    refresher = start(run)
    refresher.publish(20, make_params(20))
    rows = {int(row) for row_N, _ in PACKED for row in row_N if row >= 0}
    assert rows == set(range(10, 23))  # the damaged shard and the missing one
    assert contents(refresher.newest().path) == after
