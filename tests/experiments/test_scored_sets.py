"""Question sets as they are given out, scored through the door of `realm evaluate`: read, asked, scored, dumped."""

import dataclasses

import pytest

from experiments.open_answers import AnswerTable, chosen_mode
from experiments.presets import PRESETS
from experiments.questions import QuestionSet
from realm.evaluation.dump import read_dump
from realm.evaluation.scores import ScoreError, score
from realm.text.question_sets.spec import open_question_set
from tests.training.jobs import build_table

# Curated TREC's four columns: id, type, question, one regular expression.
TREC = (
    (r"Who was the first on the moon?", r"Neil\s+(A\.?\s+)?Armstrong"),
    (r"When was that?", r"(July 20 ,? )?1969"),
    (r"How high is Mount Everest?", r"29,?0(28|29|35)( feet)?|8848"),
    (r"Where is Zürich?", r"Switzerland|Schweiz"),
)
# Of the four: from the start of the prediction, anywhere in it.
PREDICTED = (
    (("Neil A. Armstrong", "1969", "29,035 feet", "SWITZERLAND"), 4, 4),
    (("astronaut Neil Armstrong", "in 1969", "8848 m", "in der Schweiz"), 1, 4),
    (("Buzz Aldrin", "1968", "29,036 feet", "Austria"), 0, 0),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def answered(asked, texts, mode, table, folder):
    """The result of a reader that says `texts`, and its dump."""
    stage = PRESETS["tiny_open"]().open_qa
    stage = dataclasses.replace(stage, objective=dataclasses.replace(stage.objective, block_lengths=(64,)))
    answers = AnswerTable(stage, {}, 0, table, asked, mode)
    predicted = {question.id: text for question, text in zip(asked.questions, texts, strict=True)}
    answers.add("own answers", "none", None, predicted, None, folder)
    return answers.results["own answers"], read_dump(folder / "answers-own answers.jsonl")


@pytest.mark.parametrize("mode", ["orqa", "squad", "trivia"])
def test_a_reader_that_says_the_answers_of_the_sample_is_right_on_every_question(mode, table, tmp_path):
    whole = open_question_set("sample:questions").questions
    assert len(whole) == 19410
    for place in (0, -1):
        scores = score(whole, {question.id: question.answers[place] for question in whole}, mode)
        assert scores.em().hits == scores.em().questions == 19410 and scores.counts()["missing_predictions"] == 0
        # An answer of articles alone equals itself and has no word to share.
        assert scores.f1() == pytest.approx(1 - scores.empty_matches / 19410) and scores.empty_matches < 5
    asked = QuestionSet("sample:questions", table)
    found, dump = answered(asked, [question.answers[0] for question in asked.questions], mode, table, tmp_path)
    assert found["em"]["mean"] == found["f1"]["mean"] == 1 and found["mode"] == mode
    assert dump.values().tolist() == [1] * len(asked.questions) and len(asked.questions) > 200


@pytest.mark.parametrize(("texts", "match", "search"), PREDICTED)
def test_patterns_as_those_of_curated_trec_are_matched_from_the_start_or_searched(
    texts, match, search, table, tmp_path
):
    path = tmp_path / "curatedtrec-test.tsv"
    path.write_text("".join(f"{n}\tfactoid\t{q}\t{pattern}\n" for n, (q, pattern) in enumerate(TREC)), "utf-8")
    asked = QuestionSet(str(path), table)
    assert (asked.kind, asked.dataset, chosen_mode(asked)) == ("regex", "curatedtrec", "regex-match")
    for mode, right in (("regex-match", match), ("regex-search", search)):
        found, dump = answered(asked, texts, mode, table, tmp_path)
        assert found["em"]["mean"] == right / 4 and found["f1"] is None and dump.values().sum() == right
    with pytest.raises(ScoreError, match="found regex answers and mode orqa, wanted regex-match or regex-search"):
        chosen_mode(asked, "orqa")
