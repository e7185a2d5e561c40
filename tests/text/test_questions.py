"""Question files in the project's own format: what is read, and errors that name file and line."""

import gzip
import json

import pytest

from realm.text.question_sets import read_question_set
from realm.text.questions import Question, QuestionsError

GOOD = {"id": "q1", "question": "Who?", "answers": ["Ada", "Ada Lovelace"], "doc": "d7"}


def written(folder, *records, name="questions.jsonl"):
    path = folder / name
    text = "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["questions.jsonl", "questions.jsonl.gz"])
def test_reads_in_file_order(tmp_path, name):
    more = {"id": "q2", "question": "Où ?", "answers": ["Zürich"], "split": "dev"}
    assert read_question_set(written(tmp_path, GOOD, more, name=name)).questions == (
        Question("q1", "Who?", ("Ada", "Ada Lovelace"), "d7"),
        Question("q2", "Où ?", ("Zürich",), None),
    )


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        ({**GOOD, "id": "q1"}, "the id 'q1', which .*questions.jsonl:1 has already"),
        ({**GOOD, "id": 7}, "the id 7"),
        ({**GOOD, "id": ""}, "the id ''"),
        ({"id": "q2", "answers": ["a"]}, "the question None"),
        ({**GOOD, "id": "q2", "question": "  "}, "the question '  '"),
        ({"id": "q2", "question": "Who?"}, "the answers None"),
        ({**GOOD, "id": "q2", "answers": []}, r"the answers \[\]"),
        ({**GOOD, "id": "q2", "answers": "Ada"}, "the answers 'Ada'"),
        ({**GOOD, "id": "q2", "answers": ["Ada", 1815]}, r"the answers \['Ada', 1815\]"),
        ({**GOOD, "id": "q2", "doc": 3}, "the doc 3"),
        ("[1, 2]", "a JSON list"),
        ("{", "broken JSON"),
        ("", "an empty line"),
    ],
)
def test_bad_lines_name_file_and_line(tmp_path, bad, found):
    path = written(tmp_path, GOOD, bad)
    with pytest.raises(QuestionsError, match=f"questions.jsonl:2: found {found}.*, wanted .+"):
        read_question_set(path)


def test_bad_files(tmp_path):
    with pytest.raises(QuestionsError, match="questions.jsonl:1: found an empty line"):
        read_question_set(written(tmp_path), format="realm")
    with pytest.raises(QuestionsError, match="nowhere.jsonl"):
        read_question_set(tmp_path / "nowhere.jsonl")
    cut = written(tmp_path, GOOD, name="questions.jsonl.gz")
    cut.write_bytes(cut.read_bytes()[:-12])
    with pytest.raises(QuestionsError, match="ends early"):
        read_question_set(cut)
