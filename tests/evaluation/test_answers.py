"""Answers are found by whole tokens, composed like decomposed, and each block is cut into tokens once."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.evaluation.answers import AnswerError, BlockAnswers, has_answer, joined
from tests.evaluation.evaluation_fakes import FakeTable

NFC, NFD = (unicodedata.normalize(form, "Beyoncé") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("USA is big", ["US"], False),
        ("the US is big", ["US"], True),
        ("the us, too", ["US"], True),
        (f"by {NFC}.", [NFD], True),
        (f"by {NFD}.", [NFC], True),
        ("by Beyonce.", [NFC], False),
        ("Scarlett O'Hara", ["O'Hara"], True),
        ("Scarlett O’Hara", ["O'Hara"], False),
        ("war of 1914–1918", ["1914-1918"], False),
        ("war of 1914–1918", ["1914 – 1918", "1918"], True),
        ("war of 1914-1918", ["1914 - 1918"], True),
        ("Mount Everest", ["K2", "Everest"], True),
        ("Mount Everest", ["Everest Mount"], False),
        ("snake_case", ["snake"], True),
        ("The A", ["the"], True),
        ("anything", [], False),
        ("anything", [""], False),
        ("anything", [" \u200b\n"], False),
        ("", ["x"], False),
        ("3.5 million", ["3"], True),
        ("ΟΔΟΣ 5", ["οδος"], True),
    ],
)
def test_match_rules(text, answers, expected):
    assert has_answer(text, answers) is expected


def test_tokens_are_letters_digits_and_marks_or_one_other_visible_character():
    assert joined("Hi, it's 3.5_x!") == " hi , it ' s 3 . 5 _ x ! "
    assert joined(" \t\u00a0\u200b") == ""
    for code in range(0, sys.maxunicode + 1, 37):
        kind = unicodedata.category(chr(code))[0]
        token = joined(f"a{chr(code)}b")
        if unicodedata.normalize("NFD", chr(code)) == chr(code):
            assert len(token.split(" ")) - 2 == {"L": 1, "N": 1, "M": 1, "Z": 2, "C": 2}.get(kind, 3), hex(code)


def slow_has_answer(text, answer):
    """DrQA's own loop, token lists side by side."""
    hay, needle = joined(text).split(), joined(answer).split()
    starts = range(len(hay) - len(needle) + 1)
    return bool(needle) and any(hay[start : start + len(needle)] == needle for start in starts)


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="ab .é\u0301-1", max_size=12), st.text(alphabet="ab .é\u0301-1", max_size=3))
def test_substring_of_joined_tokens_is_a_run_of_tokens(text, answer):
    assert has_answer(text, [answer]) == slow_has_answer(text, answer)


def test_blocks_are_marked_where_valid_and_cut_into_tokens_once():
    table = FakeTable(("d", "Rome", "Rome is old"), ("d", "Oslo", "Oslo is cold"), ("e", "Bonn", "nothing"))
    blocks = BlockAnswers(table)
    id_QK, valid_QK = np.array([[1, 0, 2], [2, 0, 0]]), np.array([[True, True, True], [True, True, False]])
    for _ in range(2):
        assert blocks.match(id_QK, valid_QK, [["old", "x"], ["rome"]]).tolist() == [
            [False, True, False],
            [False, True, False],
        ]
    assert table.reads == 3
    assert blocks.holds(1, ["COLD"]) and not blocks.holds(2, ["Bonn"])


def test_the_cache_is_bounded():
    table = FakeTable(*((str(row), "", f"word{row}") for row in range(4)))
    blocks = BlockAnswers(table, capacity=2)
    assert all(blocks.holds(row, [f"word{row}"]) for row in (0, 1, 2, 3, 3, 0))
    assert table.reads == 5


def test_errors_say_what_was_wanted():
    blocks = BlockAnswers(FakeTable(("d", "t", "x")))
    with pytest.raises(AnswerError, match=r"wanted a list of strings: \['US'\]"):
        has_answer("US", "US")
    with pytest.raises(AnswerError, match="row 1, wanted one of the corpus's 1 rows"):
        blocks.holds(1, ["x"])
    with pytest.raises(AnswerError, match=r"\(1, 1\).*2 questions"):
        blocks.match(np.zeros((1, 1), int), np.ones((1, 1), bool), [["x"], ["y"]])
