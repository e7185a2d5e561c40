"""Which questions measure a fine-tuned job: never one that it learned from, however another file writes it."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from experiments.plan import corpus_of
from experiments.preflight import _check_stage
from experiments.presets import PRESETS
from experiments.questions import QuestionSet, asked_of
from realm.evaluation.table import ResultTable
from realm.objectives.open_qa import OpenQa
from realm.text.question_sets.spec import open_question_set
from realm.text.questions import QuestionsError
from tests.training.jobs import build_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def preset(trained, asked):
    whole = PRESETS["tiny_open"]()
    objective = dataclasses.replace(
        whole.open_qa.objective, questions=trained, batch_lengths=(64,), block_lengths=(64,)
    )
    stage = dataclasses.replace(whole.open_qa, objective=objective)
    return dataclasses.replace(whole, open_qa=stage, questions=asked, max_questions=None)


def test_an_overlapping_set_loses_what_was_trained_on_and_says_so(table):
    job = preset("sample:questions-dev", "sample:questions")
    units = job.open_qa.objective.units(table)
    asked = asked_of(job, table)
    everything = QuestionSet("sample:questions", table)
    assert asked.left_out == len(units) > 0  # the corpus of the test holds no question twice
    assert len(asked.questions) == len(everything.questions) - len(units) > 0
    assert not {units[i].id for i in range(len(units))} & {question.id for question in asked.questions}
    assert asked.setting("exact").split == f"{len(asked.questions)} questions, {asked.left_out} trained on left out"
    assert asked.fingerprint != everything.fingerprint


def test_a_renamed_copy_in_other_writing_has_nothing_to_measure(table, tmp_path):
    job = preset("sample:questions", str(tmp_path / "copy.jsonl"))
    units = job.open_qa.objective.units(table)
    trained = {units[i].id for i in range(len(units))}
    source = [q for q in open_question_set("sample:questions").questions if q.id in trained]
    lines = [{"id": f"c{n}", "question": q.question.upper() + " ?", "answers": q.answers} for n, q in enumerate(source)]
    (tmp_path / "copy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(QuestionsError, match=f"all {len(source)} questions .* among those trained on"):
        asked_of(job, table)
    without = dataclasses.replace(job, open_qa=None, realm=PRESETS["tiny"]().realm)
    assert len(asked_of(without, table).questions) == len(source)


def questions_file(path, rows):
    lines = [json.dumps({"question": f"who is number {n}?", "answer": ["Ada"]}) for n in range(rows)]
    path.write_text("\n".join(lines))
    return str(path)


def test_a_set_that_the_model_was_not_tuned_on_says_so_beside_its_numbers(table, tmp_path):
    """A released model was once reported at half its score, because its file was that of WebQuestions."""
    tuned, asked = questions_file(tmp_path / "nq.jsonl", 3610), questions_file(tmp_path / "web.jsonl", 2032)
    found = asked_of(preset(tuned, asked), table, units=SimpleNamespace(texts=[]))
    said = "the model was tuned on nq-open and is asked webquestions: a score on another set than its own"
    assert found.warnings == [said]
    shown = ResultTable("Retrieval", found.warnings)
    shown.add("bm25", found.setting("bm25"), {"gold@1": 0.5})
    assert f"WARNING {said}" in shown.text(300) and shown.to_json()["notes"] == [said]


def test_a_file_of_no_published_size_says_so(table, tmp_path):
    path = questions_file(tmp_path / "nq.jsonl", 17)
    assert QuestionSet(path, table).warnings == ["17 questions is the size of no published set"]
    assert QuestionSet("sample:questions", table).warnings == []


def test_preflight_makes_the_units_of_a_stage_once(table, monkeypatch):
    stage, made = preset("sample:questions-dev", None).open_qa, []
    units = OpenQa.units
    monkeypatch.setattr(OpenQa, "units", lambda *a, **k: made.append(units(*a, **k)) or made[-1])
    assert _check_stage("open_qa", stage, corpus_of(table)) is made[0] and len(made) == 1
