"""Answers that are regular expressions, searched in blocks as DPR searches them."""

import unicodedata

import numpy as np
import pytest

from realm.evaluation.answers import AnswerError, BlockPatterns, has_pattern
from realm.evaluation.recall import answer_ranks
from tests.evaluation.evaluation_fakes import FakeTable


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("Mount Everest is high", ["Everest"], True),
        ("it is 20,320 FEET high", [r"20\s?,?\s?320\s*f(oo|ee)t"], True),
        ("USA is big", ["US"], True),
        ("USA is big", [r"\bUS\b"], False),
        ("(", ["("], False),
        ("b", ["(", "b"], True),
        (unicodedata.normalize("NFD", "Beyoncé"), [unicodedata.normalize("NFC", "Beyoncé")], True),
        ("first\nsecond line", ["^second"], True),
        ("x", [], False),
    ],
)
def test_search_rules(text, answers, expected):
    assert has_pattern(text, answers) is expected
    assert BlockPatterns(FakeTable(("d", "t", text))).holds(0, answers) is expected


def test_recall_takes_patterns_in_place_of_answers():
    table = FakeTable(("d", "", "in 1969"), ("d", "", "in 1812"), ("d", "", "never"))
    blocks = BlockPatterns(table)
    id_QK, valid_QK = np.array([[2, 0], [1, 0]]), np.array([[True, True], [False, True]])
    ranks = answer_ranks(id_QK, valid_QK, blocks, [[r"19\d\d"], [r"18\d\d"]])
    assert ranks.rank_Q.tolist() == [2, 0] and [ranks.recall(k).hits for k in (1, 2)] == [0, 1]
    assert table.reads == 2


def test_a_bare_string_is_no_list_of_patterns():
    with pytest.raises(AnswerError, match="wanted a list of strings"):
        has_pattern("x", "x")
