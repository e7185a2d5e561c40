"""Held-out statements: ranks of gold blocks, and whether a guess counts as right, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from realm.evaluation.clozes import ClozeScores, cloze_ranks, cloze_rows, cloze_scores, ranks
from realm.protocols import Hits


def collate(examples):
    return {name: np.stack([one[name] for one in examples]) for name in examples[0]}


class Plain:
    """Query vectors are given, and guesses are what the example says they are."""

    def embed_queries(self, params, batch):
        return batch["query_vector"] * params["retriever"]

    def found(self, batch, retrieved):
        return batch | {"searched": retrieved}

    def guesses(self, params, batch):
        return (
            batch["guess_BM"],
            batch["null_guess_BM"],
            batch["guess_BM"].sum(axis=1),
            jnp.zeros(len(batch["guess_BM"])),
        )


class Nearest:
    """Rows in the order of the first number of the query: row i first, then i + 1, ..."""

    rows = 5

    def search(self, query_BE, k):
        first = query_BE[:, :1].astype(np.int32)
        id_BK = (first + np.arange(k)) % self.rows
        valid_BK = np.broadcast_to(np.arange(k) < 3, id_BK.shape)
        return Hits(np.where(valid_BK, 1.0, -np.inf), id_BK, valid_BK)


class Given:
    def search(self, searcher, query_BE, own_B):
        return query_BE

    def retrieved(self, candidates):
        return candidates[:, 0]


def example(row, guess, null_guess, target, weight):
    return {
        "query_vector": np.array([row, 0.0], np.float32),
        "own_B": np.int32(-1),
        "guess_BM": np.array(guess),
        "null_guess_BM": np.array(null_guess),
        "target_BM": np.array(target),
        "weight_BM": np.array(weight, np.float32),
    }


EXAMPLES = [
    example(0, [7, 8, 0], [7, 8, 0], [7, 8, 0], [1, 1, 0]),
    example(3, [7, 8, 9], [7, 8, 0], [7, 8, 9], [1, 1, 1]),  # of more places than most: scored apart, told in its place
    example(1, [7, 9, 0], [0, 0, 0], [7, 8, 0], [1, 1, 0]),  # one of two wordpieces wrong
    example(2, [7, 9, 0], [7, 1, 0], [7, 0, 0], [1, 0, 0]),  # the wrong one is no masked place
]
GOLD = [np.array([1]), np.array([0]), np.array([4]), np.array([2, 3])]


def test_the_rank_is_that_of_the_first_valid_gold_row():
    id_QK = np.array([[5, 3, 1], [2, 2, 7], [0, 0, 0]])
    valid_QK = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0]], bool)
    found = ranks(id_QK, valid_QK, [np.array([1, 3]), np.array([9]), np.array([0])])
    assert found.tolist() == [1, 3, 3]  # a slot that is not valid carries row 0, which is nobody's hit


@pytest.mark.parametrize("batch_size", [2, 3, 8])
def test_scores_by_hand_whatever_the_batch(batch_size):
    scores = cloze_scores(
        Plain(),
        {"retriever": jnp.float32(1.0)},
        EXAMPLES,
        GOLD,
        collate=collate,
        retrieval=Given(),
        searcher=Nearest(),
        search=4,
        batch_size=batch_size,
    )
    assert scores.rank_Q.tolist() == [1, 2, 4, 0]
    assert scores.correct_Q.tolist() == [True, True, False, True]
    assert scores.correct_null_Q.tolist() == [True, False, False, True]
    assert scores.log_prob_Q.tolist() == [15, 24, 16, 16] and scores.log_prob_null_Q.tolist() == [0] * 4
    assert scores.recall(1).tolist() == [False, False, False, True] and scores.recall(4).sum() == 3


def test_ranks_and_rows_without_a_reader_agree_with_the_scores():
    shared = {"collate": collate, "searcher": Nearest(), "batch_size": 2}
    params = {"retriever": jnp.float32(1.0)}
    assert cloze_ranks(Plain(), params, EXAMPLES, GOLD, search=4, **shared).tolist() == [1, 2, 4, 0]
    found = cloze_rows(Plain(), params, EXAMPLES, k=4, **shared)
    assert found.tolist() == [[0, 1, 2, -1], [3, 4, 0, -1], [1, 2, 3, -1], [2, 3, 4, -1]]


def test_recall_beyond_what_was_searched_does_not_exist():
    scores = ClozeScores(np.array([0]), 4, *(np.zeros(1) for _ in range(4)))
    for k in (0, 5):
        with pytest.raises(ValueError, match="wanted 1 to the 4 blocks"):
            scores.recall(k)
