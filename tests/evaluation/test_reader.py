"""From hits to answers: exact characters, the best of all spans, probabilities that fit together, EM after training."""

import jax
import numpy as np
import pytest

from realm.evaluation.reader import Answer, ReaderError, predictions, read_answers
from realm.evaluation.scores import score
from realm.protocols import Hits
from realm.text.question_units import question_file
from realm.training.feed import collate
from tests.objectives.open_qa_driver import facts_world, trained
from tests.objectives.small import program


@pytest.fixture(scope="module")
def facts():
    return facts_world()


def asked(world):
    return question_file(world.objective.questions)


def hits_of(world, params, questions, k=6) -> Hits:
    """The retriever's own."""
    units = world.objective.units(world.table)
    batch = collate([world.objective.example(units[n], None, 24) for n in range(len(questions))])
    queries = {name: array for name, array in batch.items() if name.startswith("query_")}
    return world.searcher.search(np.asarray(program(world.objective, "embed_queries")(params, queries)), k)


def read(world, params, questions, hits, **settings):
    return read_answers(
        world.objective, params, questions, hits, join=world.join, places=world.places, collate=collate, **settings
    )


@pytest.fixture(scope="module")
def every_span(facts):
    """(questions, hits, all spans of the three blocks that each question reads)"""
    world, params = facts
    questions = asked(world)[:8]
    hits = hits_of(world, params, questions)
    return questions, hits, read(world, params, questions, hits, count=3 * 3 * 62)


def test_an_answer_is_the_exact_characters_of_one_of_the_blocks_read(facts, every_span):
    world, _ = facts
    _, hits, answers = every_span
    for number, spans in enumerate(answers):
        for one in spans:
            assert one.row in hits.id_BK[number, :3]
            assert one.text == world.table.text(one.row)[one.start : one.end] and one.text.strip() == one.text
            assert 1 <= len(world.table.tokenizer.encode(one.text).id_T) <= 3
        sizes = [len(world.table.token_T(row)) for row in hits.id_BK[number, :3]]
        assert len(set(spans)) == len(spans) == sum(size - w for size in sizes for w in range(3))
        assert [one.log_prob for one in spans] == sorted((one.log_prob for one in spans), reverse=True)


def test_probabilities_of_all_spans_sum_to_one_in_all_and_within_each_block(every_span):
    for spans in every_span[2]:
        by_row = {row: [one for one in spans if one.row == row] for row in {one.row for one in spans}}
        assert len(by_row) == 3
        assert np.logaddexp.reduce([one.log_prob for one in spans]) == pytest.approx(0.0, abs=1e-4)
        for inside in by_row.values():
            assert np.logaddexp.reduce([one.span_log_prob for one in inside]) == pytest.approx(0.0, abs=1e-4)
            assert len({one.block_log_prob for one in inside}) == 1
        assert 0.2 < np.exp([inside[0].block_log_prob for inside in by_row.values()]).sum() < 1.0


def test_only_the_hits_count_not_who_found_them(facts):
    """A fixed list of blocks (as BM25 gives) is read in its order, however many columns it has."""
    world, params = facts
    questions = asked(world)[:5]
    own = hits_of(world, params, questions)
    once = read(world, params, questions, own)
    cut = Hits(*(np.asarray(array)[:, :3] for array in own))
    turned = Hits(*(np.asarray(array)[:, 2::-1] for array in own))
    for other in (cut, turned):
        for left, right in zip(once, read(world, params, questions, other), strict=True):
            assert left[0][:4] == right[0][:4] and left[0].log_prob == pytest.approx(right[0].log_prob, abs=1e-4)
    lone = Hits(own.score_BK[:, :1], np.full((5, 1), 7, np.int32), np.ones((5, 1), bool))
    assert {answers[0].row for answers in read(world, params, questions, lone)} == {7}


def test_a_question_without_a_block_has_no_answer_and_counts_as_missing(facts):
    world, params = facts
    questions = asked(world)[:9]
    hits = hits_of(world, params, questions)
    hits.valid_BK[4] = False
    answers = read(world, params, questions, hits)
    assert answers[4] == [] and all(answers[n] for n in range(9) if n != 4)
    given = predictions(questions, answers)
    assert given[questions[4].id] is None
    assert score(questions, given, "orqa").counts()["missing_predictions"] == 1
    with pytest.raises(ReaderError, match="hits of 9 questions, wanted those of 8"):
        read(world, params, questions[:8], hits)


def test_predictions_take_the_first_answer():
    class Asked:
        id, question = "a", "who?"

    best, second = (Answer(text, 0, 0, 3, -1.0, -0.5, -0.5) for text in ("one", "two"))
    assert predictions([Asked], [[best, second]]) == {"a": "one"} and predictions([Asked], [[]]) == {"a": None}


def test_training_lowers_the_loss_and_answers_its_own_questions(facts):
    world, params = facts
    questions = asked(world)

    def em(params):
        answers = read(world, params, questions, hits_of(world, params, questions, 6))
        return score(questions, predictions(questions, answers), "orqa").em().value

    before = em(params)
    after, losses = trained(world, params)
    assert before < 0.2 and em(after) > 0.6
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:10])
    jax.tree.map(np.testing.assert_array_equal, after["retriever"]["block"], params["retriever"]["block"])
