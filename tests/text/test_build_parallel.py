"""Building in parts: the same bytes from any number of processes, after a kill, and from parts of any size."""

import bz2
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from realm.text import build_parts
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_workers import Workers, WorkersError
from realm.text.corpus import CorpusError
from realm.text.formats import mediawiki, read_documents
from realm.text.sample import sample_path
from realm.text.tokenizer import Tokenizer


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> CorpusConfig:
    """Documents in two roles, their spans in another order, a dump with links, a vocabulary trained on all of it."""
    folder = tmp_path_factory.mktemp("inputs")
    with gzip.open(sample_path("corpus"), "rt", encoding="utf-8") as file:
        lines = list(file)[::12]
    (folder / "a.jsonl").write_text("".join(lines[:150]), "utf-8")
    (folder / "b.jsonl").write_text("".join(lines[150:]), "utf-8")
    with gzip.open(sample_path("spans"), "rt", encoding="utf-8") as file:
        (folder / "spans.jsonl").write_text("".join(reversed(list(file)[::12])), "utf-8")
    pages = []
    for number in range(150):
        text = (
            f"Page {number} is about [[Ada Smith]] and [[Brenn|the town]], built in {1800 + number}. It has a [[port]]."
        )
        redirect = '<redirect title="X" />' if number % 10 == 3 else ""
        pages.append(
            f"<page><title>Page {number}</title><ns>0</ns><id>{number % 140}</id>{redirect}<revision><id>1</id>"
            f"<model>wikitext</model><text>{text}</text></revision></page>"
        )
    (folder / "dump.xml.bz2").write_bytes(bz2.compress(f"<mediawiki>{''.join(pages)}</mediawiki>".encode()))
    return CorpusConfig(
        documents=(str(folder / "a.jsonl"), str(folder / "dump.xml.bz2")),
        only_masked=str(folder / "b.jsonl"),
        spans=str(folder / "spans.jsonl"),
        vocabulary="train:1500",
        block_length=80,
        holdout=0.2,
        lenient=True,
    )


@pytest.fixture(scope="module")
def whole(inputs, tmp_path_factory) -> dict[str, bytes]:
    return files_of(build_corpus(inputs, tmp_path_factory.mktemp("whole") / "out").path)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_builds_the_same_bytes(inputs, whole, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(build_parts, "PART_CHARACTERS", 20_000)
    table = build_corpus(inputs, tmp_path / "out", workers=workers)
    assert files_of(table.path) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    # 15 of the 150 pages redirect, and of the ten last ones, which repeat ids, one does
    assert table.manifest["skips"]["document: redirect"] == 15
    assert table.manifest["skips"]["document: duplicate id"] == 9
    assert table.manifest["counts"]["spans_by_kind"]["ANCHOR"] > 200
    assert table.indexed < table.rows


KILLED = """
    import os, signal, sys
    import cattrs, json
    from realm.text import build_join, build_parts
    from realm.text.blocks import CorpusConfig, build_corpus

    add, seen = build_join.Join.add, []

    def deadly(self, part, role):
        seen.append(role)
        if len(seen) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, part, role)

    if __name__ == "__main__":
        build_parts.PART_CHARACTERS = 20_000
        build_join.Join.add = deadly
        build_corpus(cattrs.structure(json.loads(sys.argv[1]), CorpusConfig), sys.argv[2], workers=int(sys.argv[3]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_build_goes_on_from_its_finished_parts(inputs, whole, tmp_path, monkeypatch, workers):
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    fields = {name: getattr(inputs, name) for name in inputs.__dataclass_fields__}
    command = [sys.executable, str(script), json.dumps(fields), str(tmp_path / "out"), str(workers)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = {path.name for path in (tmp_path / "out.parts").glob("part-*.npz")}
    assert len(left) >= 4 and not (tmp_path / "out").exists()
    assert list((tmp_path / "out.parts").glob("pages-documents-1/0/*.json"))  # of the dump, read for the vocabulary
    damaged = tmp_path / "out.parts" / "part-000001.npz"  # as a machine that lost its power may leave it
    damaged.write_bytes(damaged.read_bytes()[:-100])
    monkeypatch.setattr(build_parts, "PART_CHARACTERS", 20_000)
    monkeypatch.setattr(mediawiki, "clean", None)  # cleaning a page again would fail
    made = []
    assemble = build_parts.assemble
    monkeypatch.setattr(build_parts, "assemble", lambda *arguments: made.append(1) or assemble(*arguments))
    parts = []
    read = build_parts.read_part
    monkeypatch.setattr("realm.text.blocks.read_part", lambda path: parts.append(path) or read(path))
    assert files_of(build_corpus(inputs, tmp_path / "out").path) == whole
    assert len(made) == len(parts) - len(left) + 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.py", "out"]


def test_parts_of_another_source_are_not_used(inputs, tmp_path, monkeypatch):
    monkeypatch.setattr(build_parts, "PART_CHARACTERS", 20_000)

    def stopped(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("realm.text.blocks.read_part", stopped)
        with pytest.raises(KeyboardInterrupt):
            build_corpus(CorpusConfig(inputs.documents[0]), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out.parts").glob("part-*")] == ["part-000000.npz"]
    other = CorpusConfig(inputs.documents[0], block_length=64)
    again = build_corpus(other, tmp_path / "fresh")
    assert files_of(build_corpus(other, tmp_path / "out").path) == files_of(again.path)


def test_a_second_builder_of_the_same_folder_works_beside_the_first(tmp_path):
    with build_parts.parts_folder(tmp_path / "out", {"a": 1}) as first:
        (first / "part-000000.npz").write_bytes(b"")
        with build_parts.parts_folder(tmp_path / "out", {"a": 1}) as second:
            assert second != first and second.is_dir()
        assert not second.exists() and (first / "part-000000.npz").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_input_in_a_later_part_is_named_and_leaves_nothing(inputs, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(build_parts, "PART_CHARACTERS", 20_000)
    path = tmp_path / "bad.jsonl"
    path.write_bytes(Path(inputs.documents[0]).read_bytes() + b"{\n")
    with pytest.raises(CorpusError, match="bad.jsonl:151: found broken JSON"):
        build_corpus(CorpusConfig(str(path)), tmp_path / "out", workers=workers)
    with pytest.raises(CorpusError, match=r"page 141 at byte \d+ \('Page 140'\): found the id '0' once more"):
        build_corpus(CorpusConfig(inputs.documents[1]), tmp_path / "out", workers=workers)
    assert [one.name for one in tmp_path.iterdir()] == ["bad.jsonl"]


def test_a_limit_stops_at_the_same_page_whoever_cleans(inputs, tmp_path):
    config = CorpusConfig(inputs.documents[1], limit=30, lenient=True)
    first, second = (build_corpus(config, tmp_path / str(n), workers=n) for n in (1, 2))
    assert files_of(first.path) == files_of(second.path)
    assert first.manifest["counts"]["documents"] == 30 and first.manifest["skips"]["document: redirect"] == 3


def squared(_, task):
    return task * task


def ended(_, task):
    os._exit(3)


def test_workers_that_end_and_workers_that_cannot_be_are_named():
    with Workers(2, Tokenizer.load()) as pool, pytest.raises(WorkersError, match="ended from outside"):
        list(pool.ordered(ended, range(4)))
    with pytest.raises(WorkersError, match="workers=0"):
        Workers(0, Tokenizer.load())


INTERRUPTED = """
    import os, signal

    from realm.text.build_workers import Workers
    from realm.text.tokenizer import Tokenizer

    if __name__ == "__mp_main__":  # Ctrl-C while a worker imports
        os.kill(os.getpid(), signal.SIGINT)


    def square(_, number):
        return number * number


    if __name__ == "__main__":
        with Workers(2, Tokenizer.load()) as pool:
            print(list(pool.ordered(square, range(4))))
"""


def test_a_worker_does_not_hear_ctrl_c_while_it_starts(tmp_path):
    (tmp_path / "interrupted.py").write_text(textwrap.dedent(INTERRUPTED))
    command = [sys.executable, str(tmp_path / "interrupted.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 4, 9]\n", "")


def test_a_signal_waits_until_a_worker_is_started(monkeypatch):
    submit, started = ProcessPoolExecutor.submit, []

    def interrupted(*given):
        os.kill(os.getpid(), signal.SIGINT)
        started.append(submit(*given))
        return started[-1]

    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Workers(2, Tokenizer.load()) as pool:
        list(pool.ordered(squared, range(4)))
    assert len(started) == 1
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_dump_is_read_as_the_plain_reader_reads_it(inputs, tmp_path):
    shutil.copytree(Path(inputs.documents[1]).parent, tmp_path / "dumps", ignore=shutil.ignore_patterns("*.jsonl"))
    table = build_corpus(CorpusConfig(f"mediawiki:{tmp_path / 'dumps'}", lenient=True), tmp_path / "out")
    counts = Counter()
    found = list(read_documents(inputs.documents[1], lenient=True, counts=counts))
    assert [(table.document_id(row), table.title(row), table.text(row)) for row in range(table.rows)] == [
        (one.id, one.title, one.text) for one in found
    ]
    assert table.manifest["skips"].items() >= {f"document: {reason}": n for reason, n in counts.items()}.items()
