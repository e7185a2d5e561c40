"""BM25 against its formula in float64, and its hits as a searcher gives them."""

import math
from collections import Counter

import numpy as np
import pytest

from realm.evaluation.bm25 import Bm25, Bm25Error, words
from tests.evaluation.evaluation_fakes import FakeTable

TABLE = FakeTable(
    ("a", "Rome", "The old city of Rome is the capital of Italy."),
    ("b", "Oslo", "Oslo is a cold city"),
    ("c", "Void", "!!"),
    ("d", "Oslo", "Oslo is a cold city"),
    ("e", "", ""),
)


def formula(question, k1=0.9, b=0.4):
    """Lucene's BM25, one block at a time."""
    blocks = [words(f"{title} {text}") for _, title, text in TABLE.blocks]
    mean = sum(map(len, blocks)) / len(blocks)
    holding = Counter(word for block in blocks for word in set(block))
    score = np.zeros(len(blocks))
    for row, block in enumerate(blocks):
        for word in words(question):
            idf = math.log(1 + (len(blocks) - holding[word] + 0.5) / (holding[word] + 0.5))
            often = block.count(word)
            score[row] += idf * often / (often + k1 * (1 - b + b * len(block) / mean))
    return score


@pytest.mark.parametrize("question", ["What is the capital of Italy?", "cold cold Oslo", "void"])
def test_scores_are_those_of_the_formula(question):
    hits = Bm25(TABLE).search([question], TABLE.rows)
    expected = formula(question)
    order = [row for row in np.argsort(-expected, kind="stable") if expected[row] > 0]
    assert hits.id_BK[0][hits.valid_BK[0]].tolist() == order
    np.testing.assert_allclose(hits.score_BK[0][hits.valid_BK[0]], expected[order], rtol=1e-5)


def test_k1_and_b_reach_the_index():
    hits = Bm25(TABLE, k1=2.0, b=0.0).search(["cold Rome"], 3)
    np.testing.assert_allclose(hits.score_BK[0], np.sort(formula("cold Rome", 2.0, 0.0))[::-1][:3], rtol=1e-5)


def test_always_k_columns_and_only_blocks_that_share_a_word_are_hits():
    hits = Bm25(TABLE).search(["oslo", "quux", ""], 8)
    assert hits.score_BK.shape == hits.id_BK.shape == hits.valid_BK.shape == (3, 8)
    assert (hits.score_BK.dtype, hits.id_BK.dtype, hits.valid_BK.dtype) == (np.float32, np.int32, np.bool_)
    assert hits.id_BK[0, :2].tolist() == [1, 3], "equal scores: the lower row first"
    assert hits.valid_BK.sum(axis=1).tolist() == [2, 0, 0]
    assert np.all(np.isneginf(hits.score_BK[~hits.valid_BK])) and not hits.id_BK[~hits.valid_BK].any()
    assert Bm25(TABLE).search([], 3).id_BK.shape == (0, 3)


def test_it_prints_nothing(capfd, caplog):
    with caplog.at_level("DEBUG"):
        Bm25(TABLE).search(["oslo"], 2)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("bm25s")]


def test_words_and_settings():
    assert words("It's Été, 3.5 A_b") == ["it", "s", "été", "3", "5", "a_b"]
    assert Bm25(TABLE).settings() == {"kind": "bm25", "rows": 5, "k1": 0.9, "b": 0.4}


def test_errors_say_what_was_wanted():
    with pytest.raises(Bm25Error, match="no word in any of 1 blocks"):
        Bm25(FakeTable(("a", "", "?")))
    with pytest.raises(Bm25Error, match="k 0, wanted 1"):
        Bm25(TABLE).search(["x"], 0)
    with pytest.raises(Bm25Error, match="wanted a list of strings"):
        Bm25(TABLE).search("x", 1)
