"""Recall at k: gold blocks, answer strings, and no number where nothing was measured."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.evaluation.answers import BlockAnswers
from realm.evaluation.recall import RecallError, answer_recall_at, gold_rows, recall_at
from tests.evaluation.evaluation_fakes import FakeQuestion, FakeTable

TABLE = FakeTable(
    ("a", "A", "red green"),
    ("a", "A", "blue"),
    ("b", "B", "blue and red"),
    ("a", "A", "blue again"),
)


def ask(answers, document):
    return FakeQuestion("q", "?", answers, document)


def test_gold_blocks_hold_an_answer_or_are_the_whole_document_and_all_is_counted():
    counts = Counter()
    gold = gold_rows(
        TABLE,
        [ask(("Blue",), "a"), ask(("pink", ""), "a"), ask(("red",), "b"), ask(("red",), "zzz"), ask(("red",), None)],
        counts=counts,
    )
    assert [row.tolist() for row in gold] == [[1, 3], [0, 1, 3], [2], [], []]
    assert counts == Counter(
        gold=3, no_block_holds_an_answer=1, document_not_in_corpus=1, no_document_named=1, answers_without_a_word=1
    )


def test_recall_by_hand_and_questions_without_gold_are_not_counted():
    gold = [np.array([1, 3]), np.array([2]), np.array([], int)]
    id_QK = np.array([[0, 3, 1], [0, 1, 2], [0, 1, 2]])
    rates = recall_at(id_QK, np.ones((3, 3), bool), gold, [1, 2, 3])
    assert [(rate.hits, rate.questions) for rate in rates.values()] == [(0, 2), (1, 2), (2, 2)]
    assert [str(rate) for rate in rates.values()] == ["0.0", "50.0", "100.0"]


def test_an_invalid_slot_is_no_hit_though_its_id_is_a_gold_row():
    rates = recall_at(np.array([[2, 0]]), np.array([[True, False]]), [np.array([0])], [2])
    assert rates[2].hits == 0


def test_k_above_what_was_retrieved_has_no_value():
    rates = recall_at(np.array([[0, 1, 2, 3, 4]]), np.ones((1, 5), bool), [np.array([0])], [1, 5, 20])
    assert [rates[k].value for k in (1, 5, 20)] == [1.0, 1.0, None]
    assert str(rates[20]) == "n/a (5 retrieved)"
    rates = answer_recall_at(np.array([[2, 0]]), np.ones((1, 2), bool), BlockAnswers(TABLE), [["red"]], [1, 3])
    assert (str(rates[1]), str(rates[3])) == ("100.0", "n/a (2 retrieved)")


def test_no_question_is_no_number():
    assert str(recall_at(np.zeros((0, 2), int), np.ones((0, 2), bool), [], [1])[1]) == "n/a (no questions)"
    assert recall_at(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([], int)], [1])[1].value is None


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_recall_grows_with_k_and_equals_a_loop(seed):
    rng = np.random.default_rng(seed)
    id_QK, valid_QK = rng.integers(0, 9, (6, 5)), rng.random((6, 5)) < 0.7
    gold = [rng.choice(9, rng.integers(0, 4), replace=False) for _ in range(6)]
    rates = recall_at(id_QK, valid_QK, gold, range(1, 6))
    for k, rate in rates.items():
        hits = [
            any(valid and one in row for one, valid in zip(ids[:k], valids[:k], strict=True))
            for ids, valids, row in zip(id_QK, valid_QK, gold, strict=True)
        ]
        assert rate.hits == sum(hits) and rate.questions == sum(len(row) > 0 for row in gold)
    assert sorted(rate.hits for rate in rates.values()) == [rate.hits for rate in rates.values()]


def test_errors_name_both_sides():
    with pytest.raises(RecallError, match=r"ids \(1, 2\), validity \(1, 2\) and 2 questions"):
        recall_at(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([0])] * 2, [1])
    with pytest.raises(RecallError, match="recall at 0"):
        recall_at(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([0])], [0])
