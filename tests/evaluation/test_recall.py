"""Recall at k: gold blocks, answer strings, and no number where nothing was measured."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.evaluation.answers import BlockAnswers
from realm.evaluation.bm25 import Bm25
from realm.evaluation.recall import Ranks, RecallError, answer_ranks, gold_ranks, gold_rows
from realm.evaluation.table import ResultTable, Setting
from realm.index.exact import Exact
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
    ranks = gold_ranks(id_QK, np.ones((3, 3), bool), gold)
    rates = [ranks.recall(k) for k in (1, 2, 3)]
    assert ranks.rank_Q.tolist() == [2, 3, 0] and ranks.mrr(3).value == (1 / 2 + 1 / 3) / 2
    assert [(rate.hits, rate.questions) for rate in rates] == [(0, 2), (1, 2), (2, 2)]
    assert [str(rate) for rate in rates] == ["0.0", "50.0", "100.0"]


def test_an_invalid_slot_is_no_hit_though_its_id_is_a_gold_row():
    id_QK, valid_QK = np.array([[2, 0], [2, 3]]), np.array([[True, False], [True, True]])
    ranks = gold_ranks(id_QK, valid_QK, [np.array([0])] * 2)
    assert (ranks.recall(2).hits, ranks.recall(2).value, ranks.mrr(2).value) == (0, 0.0, 0.0)


def test_k_above_what_was_retrieved_has_no_value():
    ranks = gold_ranks(np.array([[0, 1, 2, 3, 4]]), np.ones((1, 5), bool), [np.array([0])])
    assert [ranks.recall(k).value for k in (1, 5, 20)] == [1.0, 1.0, None]
    assert str(ranks.recall(20)) == str(ranks.mrr(20)) == "n/a (5 retrieved)" and ranks.mrr(20).value is None
    found = answer_ranks(np.array([[2, 0]]), np.ones((1, 2), bool), BlockAnswers(TABLE), [["red"]])
    assert (str(found.recall(1)), str(found.recall(3))) == ("100.0", "n/a (2 retrieved)")


class Eight:
    """A corpus of eight blocks, each a document."""

    table = FakeTable(*((f"d{row}", f"T{row}", f"word{row} and more") for row in range(8)))
    questions = [ask((f"word{row}",), f"d{row}") for row in range(8)]

    def searched(self, kind):
        if kind == "bm25":
            return Bm25(self.table).search([f"word{row} more" for row in range(8)], 100)
        vectors_NE = np.eye(8, dtype=np.float32)
        return Exact().build([vectors_NE]).search(vectors_NE, 100)


@pytest.mark.parametrize("kind", ["exact", "bm25"])
def test_columns_that_a_searcher_fills_up_are_not_retrieved(kind):
    """Every searcher gives k columns, whatever the corpus holds: of 8 blocks recall at 20 is 100 % by definition."""
    eight = Eight()
    hits = eight.searched(kind)
    ranks = gold_ranks(hits.id_BK, hits.valid_BK, gold_rows(eight.table, eight.questions))
    found = answer_ranks(hits.id_BK, hits.valid_BK, BlockAnswers(eight.table), [q.answers for q in eight.questions])
    assert hits.id_BK.shape == (8, 100) and ranks.retrieved == found.retrieved == 8
    for one in (ranks, found):
        assert [str(one.recall(k)) for k in (1, 5, 20, 100)] == ["100.0", "100.0", *["n/a (8 retrieved)"] * 2]
        assert [one.recall(k).value for k in (5, 20, 100)] == [1.0, None, None] and one.mrr(100).value is None


def test_no_question_is_no_number():
    assert str(gold_ranks(np.zeros((0, 2), int), np.ones((0, 2), bool), []).recall(1)) == "n/a (no questions)"
    none = gold_ranks(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([], int)])
    assert none.recall(1).value is None and str(none.mrr(2)) == "n/a (no questions)"


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_recall_grows_with_k_and_both_equal_a_loop(seed):
    rng = np.random.default_rng(seed)
    id_QK, valid_QK = rng.integers(0, 9, (6, 5)), rng.random((6, 5)) < 0.7
    valid_QK[0] = True  # somebody has 5 candidates
    gold = [rng.choice(9, rng.integers(0, 4), replace=False) for _ in range(6)]
    ranks = gold_ranks(id_QK, valid_QK, gold)
    rates = {k: ranks.recall(k) for k in range(1, 6)}
    for k, rate in rates.items():
        hits, reciprocals = [], []
        for ids, valids, row in zip(id_QK, valid_QK, gold, strict=True):
            right = [bool(valid and one in row) for one, valid in zip(ids, valids, strict=True)][:k]
            hits.append(any(right))
            if len(row):
                reciprocals.append(next((1 / place for place, one in enumerate(right, 1) if one), 0.0))
        assert rate.hits == sum(hits) and rate.questions == sum(len(row) > 0 for row in gold)
        assert ranks.mrr(k).value == (pytest.approx(sum(reciprocals) / len(reciprocals)) if reciprocals else None)
    assert sorted(rate.hits for rate in rates.values()) == [rate.hits for rate in rates.values()]


def test_a_mean_prints_and_writes_its_value_or_the_reason():
    ranks = Ranks(np.array([1, 4, 0]), np.ones(3, bool), 5)
    table, setting = ResultTable("t"), Setting("squad", "dev", 8, "c", 100, "exact", fingerprint="f" * 64)
    table.add("exact", setting, {"MRR@5": ranks.mrr(5), "MRR@100": ranks.mrr(100)})
    values = table.to_json()["rows"][0]["values"]
    assert values["MRR@5"] == {"value": 1.25 / 3, "text": "0.417", "questions": 3}
    assert values["MRR@100"] == {"value": None, "text": "n/a (5 retrieved)", "questions": 3}
    assert "fingerprint ffffffffffff" in table.text() and "f" * 13 not in table.text()


def test_errors_name_both_sides():
    with pytest.raises(RecallError, match=r"ids \(1, 2\), validity \(1, 2\) and 2 questions"):
        gold_ranks(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([0])] * 2)
    with pytest.raises(RecallError, match="recall at 0"):
        gold_ranks(np.zeros((1, 2), int), np.ones((1, 2), bool), [np.array([0])]).recall(0)
