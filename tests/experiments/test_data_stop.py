"""A build that is stopped says in one line how to go on, and goes on; its workers and semaphores go with it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from experiments.cli import main
from experiments.data_stop import Stopped, going_on, stoppable
from realm.text import build_join, build_parts
from realm.text.table import BlockTable

BUILD = ["data", "build", "sample:corpus", "--limit", "200", "--block-length", "96"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(build_parts, "PART_CHARACTERS", 20_000)


def stopped_at_the_second_part(monkeypatch, number):
    add, seen = build_join.Join.add, []

    def stopping(self, part, role):
        seen.append(role)
        if len(seen) == 2:
            os.kill(os.getpid(), number)
        add(self, part, role)

    monkeypatch.setattr(build_join.Join, "add", stopping)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    assert main([*BUILD, "--workers", "1", "--out", str(out)]) == 0
    return BlockTable.open(out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_build_names_its_parts_and_goes_on_from_them(whole, tmp_path, monkeypatch, capsys, number):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    given = [*BUILD, "--workers", "1", "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        stopped_at_the_second_part(patch, number)
        assert main(given) == 128 + number
    goes_on = f"the same command goes on from the finished parts in {tmp_path / 'out.parts'}"
    assert capsys.readouterr().err == f"realm: stopped by {number.name}: {goes_on}\n"
    assert len(list((tmp_path / "out.parts").glob("part-*.npz"))) >= 2
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
    assert main(given) == 0
    assert BlockTable.open(tmp_path / "out").fingerprint == whole.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_so_does_a_stopped_edit(whole, tmp_path, monkeypatch, capsys):
    (tmp_path / "add.jsonl").write_text('{"id": "new", "text": "Ada came in 1969."}\n')
    given = ["data", "edit", str(whole.path), "--add", str(tmp_path / "add.jsonl"), "--workers", "1"]
    given += ["--out", str(tmp_path / "new")]
    with monkeypatch.context() as patch:
        stopped_at_the_second_part(patch, signal.SIGTERM)
        assert main(given) == 143
    assert f"goes on from the finished parts in {tmp_path / 'new.parts'}" in capsys.readouterr().err
    assert main(given) == 0 and not (tmp_path / "new.parts").exists()


def test_before_there_are_parts_none_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("realm.text.blocks.fingerprint_of", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assert main([*BUILD, "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "realm: stopped by SIGINT\n"


def test_a_signal_that_was_lost_before_the_work_still_stops_it(tmp_path):
    with pytest.raises(Stopped), stoppable():
        with contextlib.suppress(Stopped):  # as a callback would
            os.kill(os.getpid(), signal.SIGTERM)
        with going_on(tmp_path / "out"):
            pytest.fail("the work began")


def test_a_second_signal_does_what_it_did_before():
    with pytest.raises(KeyboardInterrupt), stoppable():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except Stopped:
            os.kill(os.getpid(), signal.SIGINT)


STOPPED = """
    import os, signal, sys

    from experiments.cli import main
    from realm.text import build_join, build_parts

    add, seen = build_join.Join.add, []

    def stopping(self, part, role):
        seen.append(role)
        if len(seen) == 2:
            os.kill(os.getpid(), int(sys.argv[1]))
        add(self, part, role)

    if __name__ == "__main__":
        build_parts.PART_CHARACTERS = 20_000
        build_join.Join.add = stopping
        sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_and_what_they_share_are_gone_when_it_ends(tmp_path, number):
    (tmp_path / "stopped.py").write_text(textwrap.dedent(STOPPED))
    command = [sys.executable, str(tmp_path / "stopped.py"), str(int(number))]
    given = [*BUILD, "--workers", "2", "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, *given], capture_output=True, text=True)
    assert done.returncode == 128 + number, done.stderr
    assert done.stderr.splitlines() == [
        f"realm: stopped by {number.name}: the same command goes on from the finished parts in {tmp_path / 'out.parts'}"
    ]
