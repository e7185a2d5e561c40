"""The embedded sample is what its README says it is."""

import gzip
import hashlib
import json
import re

import pytest

from realm.text.question_sets.spec import open_question_set
from realm.text.sample import FILES, FOLDER, SampleError, sample_path


def rows(name):
    with gzip.open(sample_path(name), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_readme_table_is_true():
    table = re.findall(
        r"^\| (\S+\.gz) \| ([\d,]+) \| ([\d,]+) \| (\w{64}) \|$", (FOLDER / "README.md").read_text(), re.M
    )
    assert {file for file, *_ in table} == set(FILES.values()) == {path.name for path in FOLDER.glob("*.gz")}
    for name, file in FILES.items():
        stored = sample_path(name).read_bytes()
        count, size, digest = next(row[1:] for row in table if row[0] == file)
        assert int(count.replace(",", "")) == gzip.decompress(stored).count(b"\n")
        assert int(size.replace(",", "")) == len(stored) < 4 * 2**20
        assert digest == hashlib.sha256(stored).hexdigest()
        assert stored[3:8] == bytes(5)  # no file name and no time: the same data is the same file


def test_files_belong_together():
    corpus = {row["id"]: row for row in rows("corpus")}
    assert len(corpus) == 3979 and {row["split"] for row in corpus.values()} == {"dev", "test"}
    questions = open_question_set("sample:questions").questions
    splits = {row["id"]: row["split"] for row in rows("questions")}
    for question in questions:
        gold = corpus[question.document]
        assert splits[question.id] == gold["split"]
        assert any(answer in gold["text"] for answer in question.answers)
    spans = {row["id"]: row["spans"] for row in rows("spans")}
    assert list(spans) == list(corpus)
    for name, found in spans.items():
        assert all(0 <= start < end <= len(corpus[name]["text"]) for start, end, _ in found)


def test_unknown_name():
    with pytest.raises(SampleError, match="wanted one of .*corpus.*questions.*spans"):
        sample_path("articles")
