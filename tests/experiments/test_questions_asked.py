"""Which questions measure a fine-tuned job: never one that it learned from, however another file writes it."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.plan import corpus_of
from experiments.preflight import _check_stage
from experiments.presets import PRESETS
from experiments.questions import QuestionSet, asked_of
from experiments.recall_rows import RecallRows
from experiments.searching import search_all
from realm.evaluation.answers import BlockPatterns
from realm.evaluation.bm25 import Bm25
from realm.evaluation.dump import read_dump
from realm.evaluation.table import ResultTable
from realm.index.exact import Exact
from realm.objectives.open_qa import OpenQa
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.question_sets.spec import open_question_set
from realm.text.questions import QuestionsError
from realm.text.sample import sample_path
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


def own_file(path, number, rows=5):
    lines = [{"id": number.format(n), "question": f"who is number {n}?", "answers": ["Ada"]} for n in range(rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_sets_in_the_own_format_are_told_apart_too(table, tmp_path):
    squad, own = own_file(tmp_path / "a.jsonl", "squad-1-{}"), own_file(tmp_path / "c.jsonl", "c{}")
    entities = own_file(tmp_path / "b.jsonl", "eq-test-P106-{}")
    nobody = SimpleNamespace(texts=[])

    def said(trained, asked):
        return [one for one in asked_of(preset(trained, asked), table, units=nobody).warnings if "tuned on" in one]

    other = "the model was tuned on squad and is asked entityquestions: a score on another set than its own"
    assert said(squad, entities) == said("sample:questions-dev", entities) == [other]
    assert said(f"{own}#squad", entities) == [other]
    assert said(squad, f"{own}#squad") == said(f"{own}#mine", f"{squad}#mine") == []
    (unsure,) = said(squad, own)
    assert unsure.startswith("the model was tuned on squad and is asked questions of no known set: perhaps")


def test_a_table_names_the_set_that_the_user_names(table, tmp_path):
    path = own_file(tmp_path / "a.jsonl", "{}")
    assert QuestionSet(path, table).dataset == "a.jsonl"
    named = QuestionSet(f"{path}#nq-open:dev", table)
    assert (named.dataset, named.split, named.kind) == ("nq-open", "dev 5 questions", "text")
    assert named.warnings[0].startswith("5 questions is no published size of nq-open dev (dev 3,610")
    patterns = QuestionSet(f"{path}#regex", table)
    assert (patterns.dataset, patterns.kind) == ("a.jsonl", "regex") and isinstance(patterns.blocks, BlockPatterns)
    assert QuestionSet("sample:questions", table).dataset == "sample:questions"


def test_a_file_of_no_published_size_says_so(table, tmp_path):
    path = questions_file(tmp_path / "nq.jsonl", 17)
    assert QuestionSet(path, table).warnings == ["17 questions is the size of no published set"]


def test_questions_about_documents_that_the_corpus_lacks_are_counted_and_said(table):
    """60 of the sample's 3,979 paragraphs can be asked 268 of its 19,410 questions."""
    whole, half = (
        QuestionSet("sample:questions", table, limit, heldout) for limit, heldout in ((None, None), (9, True))
    )
    said = "19,142 of 19,410 questions are about documents that the corpus lacks and are left out"
    assert whole.warnings == half.warnings == [said]
    counts = whole.counts
    assert (counts["in_file"], counts["document_not_in_corpus"], counts["asked"], counts["gold"]) == (
        19410,
        19142,
        268,
        268,
    )
    assert counts["no_block_holds_an_answer"] < 30 and counts["no_document_named"] == counts["trained_on"] == 0
    assert half.counts["of_the_other_part"] > half.counts["not_sampled"] > 0 and half.counts["asked"] == 9
    parts = ("document_not_in_corpus", "of_the_other_part", "trained_on", "not_sampled", "asked")
    assert sum(half.counts[part] for part in parts) == half.counts["in_file"] == 19410


def test_questions_without_a_document_are_told_of_by_answer_strings_alone(table, tmp_path):
    asked = QuestionSet(own_file(tmp_path / "a.jsonl", "{}"), table)
    shown = ResultTable("Retrieval", asked.warnings)
    rows = RecallRows(asked, shown, tmp_path)
    rows.add("bm25", "bm25", Bm25(table).search([q.question for q in asked.questions], 100))
    values = shown.to_json()["rows"][0]["values"]
    assert asked.counts["no_document_named"] == 5 and asked.counts["gold"] == 0
    assert values["gold@5"]["text"] == values["MRR@100"]["text"] == "n/a (no questions)"
    assert values["answer@5"]["value"] == 0 and rows.intervals["bm25"]["gold@5"] is None
    assert rows.intervals["bm25"]["answer@5"]["units"] == 5


def test_a_corpus_of_fewer_blocks_than_k_has_no_recall_at_k(tmp_path):
    few = build_corpus(
        CorpusConfig(documents=str(sample_path("corpus")), limit=2, block_length=160), tmp_path / "corpus"
    )
    asked, shown = QuestionSet("sample:questions", few), ResultTable("Retrieval")
    rows = RecallRows(asked, shown, tmp_path)
    vectors_NE = np.random.default_rng(0).normal(size=(few.indexed, 8)).astype(np.float32)
    q_QE = vectors_NE[[rows_of[0] for rows_of in asked.gold]]
    rows.add("exact", "exact", search_all(Exact().build([vectors_NE]), q_QE, 100))
    values, none = shown.to_json()["rows"][0]["values"], f"n/a ({few.indexed} retrieved)"
    assert few.indexed < 20 and values["gold@1"]["value"] is not None
    for column in ("gold@20", "gold@100", "answer@20", "answer@100", "MRR@100"):
        assert (values[column]["text"], values[column]["value"]) == (none, None)
    assert none in shown.text(300) and rows.intervals["exact"]["gold@20"] is None
    assert read_dump(tmp_path / "recall-exact.jsonl").header["retrieved"] == few.indexed
    approximate = search_all(Exact().build([vectors_NE]), -q_QE, 5)
    rows.add("realm scann", "scann", approximate, shown_as="realm", more={"ANN recall": "1.0%"}, step=7)
    row, header = shown.to_json()["rows"][1], read_dump(tmp_path / "recall-realm-scann.jsonl").header
    assert (row["name"], row["setting"]["generation_step"], row["values"]["ANN recall"]["text"]) == ("realm", 7, "1.0%")
    assert (header["row"], header["index"], header["step"]) == ("realm scann", "scann", 7)


def test_preflight_makes_the_units_of_a_stage_once(table, monkeypatch):
    stage, made = preset("sample:questions-dev", None).open_qa, []
    units = OpenQa.units
    monkeypatch.setattr(OpenQa, "units", lambda *a, **k: made.append(units(*a, **k)) or made[-1])
    assert _check_stage("open_qa", stage, corpus_of(table)) is made[0] and len(made) == 1
