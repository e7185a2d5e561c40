"""Per-question dumps: everything comes back, a half or a strange file does not, and two runs are matched by id."""

import json

import numpy as np
import pytest

from realm.evaluation.bootstrap import compare
from realm.evaluation.dump import DumpError, compare_dumps, read_dump, write_dump
from realm.evaluation.scores import score
from realm.text.questions import Question

QUESTIONS = [
    Question("q1", "Où ?", ("Zürich",), "d1"),
    Question("q2", "Who?", ("Ada", "Ada Lovelace"), "d2"),
    Question("q3", "When?", ("1815",), "d2"),
]
SET = dict(dataset="squad", split="dev", fingerprint="f" * 64)


def dumped(path, predictions, questions=QUESTIONS, **changed):
    scores = score(questions, predictions, "orqa")
    write_dump(path, questions, predictions, scores, **{**SET, **changed})
    return path


def test_everything_comes_back(tmp_path):
    extra = {"q1": {"top": [3, 1]}, "q2": {"article": "Ada"}}
    path = dumped(
        tmp_path / "a.jsonl", {"q1": "zürich", "q2": "Lovelace"}, header={"k": 5, "index": "exact"}, extra=extra
    )
    dump = read_dump(path)
    assert dump.header == {"questions": 3, "mode": "orqa", **SET, "k": 5, "index": "exact"}
    assert dump.records[0] == {
        **{"id": "q1", "question": "Où ?", "answers": ["Zürich"], "kind": "text"},
        **{"prediction": "zürich", "em": 1, "f1": 1.0, "top": [3, 1]},
    }
    assert dump.records[2]["prediction"] is None
    assert dump.values().tolist() == [1, 0, 0]
    np.testing.assert_allclose(dump.values("f1"), [1, 2 / 3, 0])
    assert "zürich" in path.read_text("utf-8") and [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]


def test_two_runs_are_matched_by_id(tmp_path):
    first = read_dump(dumped(tmp_path / "a.jsonl", {"q1": "Zürich", "q2": "x", "q3": "1815"}))
    lines = dumped(tmp_path / "b.jsonl", {"q2": "Ada", "q3": "1815"}).read_text("utf-8").splitlines()
    (tmp_path / "b.jsonl").write_text("\n".join([lines[0], *reversed(lines[1:])]), "utf-8")
    found = compare_dumps(first, read_dump(tmp_path / "b.jsonl"))
    assert (found.better, found.worse, found.equal) == (1, 1, 1)
    assert found == compare([1, 0, 1], [0, 1, 1])


def test_groups_come_from_a_field(tmp_path):
    extra = {"q1": {"article": "A"}, "q2": {"article": "B"}, "q3": {"article": "B"}}
    dumps = [
        read_dump(dumped(tmp_path / name, predictions, extra=extra))
        for name, predictions in (("a", {}), ("b", {"q2": "Ada", "q3": "1815"}))
    ]
    assert compare_dumps(*dumps, group="article").difference.units == 2
    with pytest.raises(DumpError, match="without 'doc'"):
        compare_dumps(*dumps, group="doc")


def test_runs_over_other_questions_are_not_compared(tmp_path):
    first = read_dump(dumped(tmp_path / "a", {}))
    with pytest.raises(DumpError, match="fingerprint"):
        compare_dumps(first, read_dump(dumped(tmp_path / "b", {}, fingerprint="0")))
    other = [QUESTIONS[0], QUESTIONS[1], QUESTIONS[2]._replace(id="q9")]
    with pytest.raises(DumpError, match="other ids"):
        compare_dumps(first, read_dump(dumped(tmp_path / "c", {}, questions=other)))


def test_a_regex_set_has_no_f1_to_compare(tmp_path):
    questions = [Question("q", "?", ("a|b",), None, "regex")]
    write_dump(tmp_path / "a", questions, {"q": "b"}, score(questions, {"q": "b"}, "regex-match"), **SET)
    dump = read_dump(tmp_path / "a")
    assert dump.values().tolist() == [1] and dump.records[0]["kind"] == "regex"
    with pytest.raises(DumpError, match="the f1 None of 'q'"):
        dump.values("f1")


def edited(path, edit):
    lines = path.read_text("utf-8").splitlines()
    path.write_text("".join(line + "\n" for line in edit(lines)), "utf-8")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: lines[:-1], "2 questions, wanted the 3 of its header"),
        (lambda lines: [], "an empty file"),
        (lambda lines: lines[1:], "a.jsonl:1: found no header"),
        (lambda lines: [lines[0].replace("orqa", "bleu"), *lines[1:]], "mode 'bleu'"),
        (lambda lines: [*lines[:3], lines[1]], "a.jsonl:4: found the id 'q1' again"),
        (lambda lines: [*lines[:2], "{", lines[3]], "a.jsonl:3: found broken JSON"),
        (lambda lines: [*lines[:2], json.dumps({"id": "q2"}), lines[3]], "a.jsonl:3: found no question, answers"),
    ],
)
def test_a_strange_file_is_not_read(tmp_path, edit, message):
    path = dumped(tmp_path / "a.jsonl", {})
    edited(path, edit)
    with pytest.raises(DumpError, match=message):
        read_dump(path)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    scores = score(QUESTIONS, {}, "orqa")
    for more, message in [
        (dict(header={"mode": "x"}), "the names mode"),
        (dict(extra={"q1": {"em": 1}}), "the names em"),
        (dict(extra={"q1": {"p": float("nan")}}), "JSON has not"),
        (dict(extra={"q1": {"p": "\ud800"}}), "JSON has not"),
    ]:
        with pytest.raises(DumpError, match=message):
            write_dump(tmp_path / "a", QUESTIONS, {}, scores, **SET, **more)
    with pytest.raises(DumpError, match="3 scores for 2 questions"):
        write_dump(tmp_path / "a", QUESTIONS[:2], {}, scores, **SET)
    assert not list(tmp_path.iterdir())
