"""Questions as units: who may be an example, and what is counted of the rest."""

import json

import numpy as np
import pytest

from realm.text.plan import BatchPlan
from realm.text.question_units import QuestionUnits, question_file, question_unit
from realm.text.questions import Question, QuestionsError
from tests.text.text_tables import small_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return small_table(tmp_path_factory.mktemp("questions"), documents=40)


@pytest.fixture(scope="module")
def documents(table):
    """(a held-out document's id, another one's)"""
    heldout = [bool(table.heldout_N[row]) for row in range(table.rows)]
    return table.document_id(heldout.index(True)), table.document_id(heldout.index(False))


def test_each_question_is_taken_or_left_out_for_its_first_reason(table, documents):
    held, free = documents
    questions = [
        Question("good", "Who wrote it?", ("Anna",), free),
        Question("regex", "Who?", ("An+a",), free, "regex"),
        Question("wordless", "Who?", ("", " "), free),
        Question("one-word", "Who?", ("", "Anna"), free),
        Question("blank", "\u200b", ("Anna",), free),
        Question("long", "who " * 20, ("Anna",), free),
        Question("fits", "who " * 14, ("Anna",), None),
        Question("elsewhere", "Who?", ("Anna",), "no-such-document"),
        Question("held", "Who?", ("Anna",), held),
    ]
    units = QuestionUnits(table, questions, max_tokens=16)
    assert [units[i].id for i in range(len(units))] == ["good", "one-word", "fits"]
    assert units.counts == {
        "taken": 3,
        "regular expressions": 1,
        "answers without a word": 1,
        "nothing to tokenize": 1,
        "too long": 1,
        "document not in the corpus": 1,
        "held out": 1,
    }
    np.testing.assert_array_equal(units.length_N, [table.tokenizer.encode("Who wrote it?").id_T.size + 2, 4, 16])
    assert units.name(0) == "question good" and units[1].answers == ("", "Anna")
    heldout = QuestionUnits(table, questions, max_tokens=16, heldout=True)
    assert [heldout[0].id, len(heldout), heldout.counts["not held out"]] == ["held", 1, 3]


def test_held_out_and_other_questions_are_all_questions(table):
    own = {table.document_id(row) for row in range(table.rows)}
    questions = [question for question in question_file("sample:questions") if question.document in own]
    parts = [QuestionUnits(table, questions, max_tokens=64, heldout=which) for which in (False, True, None)]
    ids = [[part[i].id for i in range(len(part))] for part in parts]
    assert ids[0] and ids[1] and sorted(ids[0] + ids[1]) == sorted(ids[2]) and not set(ids[0]) & set(ids[1])
    by_id = {question.id: question for question in questions}
    for which, names in zip((False, True), ids, strict=False):
        assert {bool(table.heldout_N[table.rows_of_document(by_id[n].document)[0]]) for n in names} == {which}
    plan = BatchPlan(parts[0].length_N, batch_size=4, lengths=(32, 64), seed=0)
    assert plan.batch(3).index_B.max() < len(parts[0])


def test_any_known_format_is_read(table, tmp_path):
    path = tmp_path / "nq.jsonl"
    path.write_text(json.dumps({"question": "who is it", "answer": ["Anna", "Bob"]}) + "\n")
    units = QuestionUnits.read(path, table, max_tokens=16)
    assert len(units) == 1 and units[0].answers == ("Anna", "Bob")
    with pytest.raises(QuestionsError, match="missing.jsonl"):
        QuestionUnits.read(tmp_path / "missing.jsonl", table, max_tokens=16)


def test_a_question_from_anywhere_has_the_same_wordpieces(table):
    taken = QuestionUnits(table, [Question("q", "Where is Paris?", ("France",), None)], max_tokens=16)[0]
    asked = question_unit("Where is Paris?", table.tokenizer)
    np.testing.assert_array_equal(taken.token_T, asked.token_T)
    assert asked.answers == () and asked.special is table.tokenizer


def test_no_unit_outside(table):
    units = QuestionUnits(table, [Question("q", "Who?", ("Anna",), None)], max_tokens=16)
    for index in (-1, 1):
        with pytest.raises(IndexError, match=f"found unit {index}, wanted 0 to 0"):
            units[index]
