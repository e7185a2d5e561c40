"""Answers in blocks: tokens with their characters, matches as wordpieces, and wordpieces as exact characters."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.evaluation.answers import BlockAnswers, has_answer
from realm.evaluation.answers import joined as joined_text
from realm.text.answer_places import AnswerPlaces, AnswerPlacesError, wanted
from realm.text.answer_tokens import answer_tokens, joined, token_runs
from realm.text.tokenizer import Tokenizer
from tests.text.text_tables import small_table

COMBINING = "\u0301\u0327\u0323"
LETTERS = st.sampled_from("aB1 .-_’'$€\u00a0\u200b\u0130ßΣσς한글語éÅ\u1fc1" + COMBINING)
TEXT = st.text(LETTERS, max_size=12) | st.text(max_size=8)


class OneBlock:
    """A table of one block. pieces, sentences: as its document was cut, where that is not how the text is alone."""

    def __init__(self, text: str, pieces: list[str] | None = None, sentences: list[tuple[int, ...]] = ()):
        self.tokenizer, self.rows = Tokenizer.load(None), 1
        self._text, self._pieces, self._sentences = text, pieces, sentences

    def text(self, row: int) -> str:
        return self._text

    def token_T(self, row: int) -> np.ndarray:
        if self._pieces is None:
            return self.tokenizer.encode(self._text).id_T
        return np.concatenate([self.tokenizer.encode(piece).id_T for piece in self._pieces])

    def sentences(self, row: int) -> np.ndarray:
        return np.array(self._sentences, np.int32)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return small_table(tmp_path_factory.mktemp("answers"), documents=40)


@settings(deadline=None)
@given(TEXT)
def test_tokens_are_those_of_evaluation(text):
    assert joined(answer_tokens(text).token) == joined_text(text)


@settings(deadline=None)
@given(TEXT)
def test_characters_of_a_token_hold_it_and_are_in_order(text):
    token, start, end = answer_tokens(text)
    for one, begin, stop in zip(token, start, end, strict=True):
        plain = unicodedata.normalize("NFD", text[begin:stop])
        # marks may be reordered together with their neighbours, so compare without their order
        assert sorted(one) == sorted(plain.lower()) or one in plain.lower()
    assert list(start) == sorted(start) and all(b < e for b, e in zip(start, end, strict=True))


def test_runs_overlap_and_an_empty_run_is_nowhere():
    assert list(token_runs(("a", "a", "a"), ("a", "a"))) == [(0, 2), (1, 3)]
    assert list(token_runs(("a",), ("a", "b"))) == list(token_runs(("a",), ())) == []


@pytest.mark.parametrize(
    ("text", "answers", "matches"),
    [
        ("USA is big.", ["US"], []),
        ("The U.S. and the US.", ["us"], ["US"]),
        ("The U.S. and the US.", ["U.S."], ["U.S."]),
        ("Beyonce\u0301 sang.", ["Beyonc\u00e9"], ["Beyonce\u0301"]),
        ("Beyonc\u00e9 sang.", ["Beyonce\u0301"], ["Beyonc\u00e9"]),
        ("Beyonc\u00e9 sang.", ["Beyonce"], []),
        ("O’Hara met O'Hara.", ["O'Hara"], ["O'Hara"]),
        ("1914–1918, not 1914-1918", ["1914-1918"], ["1914-1918"]),
        ("Paris, paris and PARIS", ["Paris"], ["Paris", "paris", "PARIS"]),
        ("New York, York", ["York", "New York"], ["New York", "York", "York"]),
        ("It cost 50% more.", ["50%", "50"], ["50", "50%"]),
        ("new  \t york", ["New York"], ["new  \t york"]),
        ("unaffable", ["affable"], []),
        ("nothing here", ["", "  "], []),
        ("aa aa aa", ["aa aa"], ["aa aa", "aa aa"]),
        ("10€ or 10 €", ["10"], ["10", "10"]),
        ("Σίσυφος ran", ["ΣΊΣΥΦΟΣ"], ["Σίσυφος"]),
    ],
)
def test_matches_by_hand(text, answers, matches):
    places = AnswerPlaces(OneBlock(text))
    spans = places.spans(0, answers)
    assert sorted(places.text(0, *span) for span in spans) == sorted(matches)
    held = places.match(np.zeros((1, 1), int), np.ones((1, 1), bool), [answers])
    assert held.item() == has_answer(text, answers) and (held.item() or not spans)


def test_a_match_that_ends_inside_a_wordpiece_is_no_span_yet_its_block_holds_it():
    """BERT has no wordpiece for this digit: one [UNK] covers it and the sign behind it."""
    places = AnswerPlaces(OneBlock("a \u0e51€ b"))
    assert places.spans(0, ["\u0e51"]) == []
    assert places.match(np.zeros((1, 1), int), np.ones((1, 1), bool), [["\u0e51"]]).all()
    assert places.text(0, 1, 2) == "\u0e51€"


def test_a_sentence_that_begins_inside_a_word_keeps_its_characters():
    """The block's text alone is one word; its document had made two sentences of it."""
    places = AnswerPlaces(OneBlock("playing fields", ["play", "ing", "fields"], [(0, 1, 0, 4), (1, 3, 4, 14)]))
    assert [places.text(0, n, n + 1) for n in range(3)] == ["play", "ing", "fields"]
    assert places.spans(0, ["fields"]) == [(2, 3)] and places.spans(0, ["playing"]) == [(0, 2)]
    assert places.spans(0, ["ing"]) == []


def test_a_sentence_whose_pieces_cannot_be_told_apart_reads_as_a_whole():
    pieces, sentences = ["fields", "here", "some", "more"], [(0, 2, 0, 12), (2, 4, 13, 22)]
    places = AnswerPlaces(OneBlock("fields here. some more", pieces, sentences))
    assert places.text(0, 0, 1) == places.text(0, 1, 2) == "fields here."
    assert places.spans(0, ["fields"]) == [] and places.spans(0, ["some more"]) == [(2, 4)]


def test_every_run_of_tokens_is_found_where_it_was_taken_from(table):
    places, rng = AnswerPlaces(table), np.random.default_rng(0)
    for row in range(table.rows):
        text = table.text(row)
        token, start, end = answer_tokens(text)
        first = int(rng.integers(len(token)))
        after = min(len(token), first + int(rng.integers(1, 5)))
        answer = text[start[first] : end[after - 1]]
        spans = places.spans(row, [answer])
        assert (start[first], end[after - 1]) in [places.characters(row, *span) for span in spans]
        assert {answer_tokens(places.text(row, *span)).token for span in spans} == {token[first:after]}
        for begin, stop in spans:
            pieces = table.tokenizer.encode(places.text(row, begin, stop)).id_T
            np.testing.assert_array_equal(pieces, table.token_T(row)[begin:stop])


def test_blocks_match_as_in_evaluation(table):
    rng = np.random.default_rng(1)
    id_BL = rng.integers(0, table.rows, (6, 30)).astype(np.int32)
    valid_BL = rng.random(id_BL.shape) < 0.8
    answers = [["the"], ["of the", "1990"], ["and"], ["zyx"], ["a", "an"], ["in"]]
    found = AnswerPlaces(table).match(id_BL, valid_BL, answers)
    np.testing.assert_array_equal(found, BlockAnswers(table).match(id_BL, valid_BL, answers))
    assert 0.1 < found.mean() < 0.9 and not found[3].any() and not found[~valid_BL].any()


def test_errors_name_what_was_found(table):
    places = AnswerPlaces(table)
    with pytest.raises(AnswerPlacesError, match=r"'us' as answers.*\['us'\]"):
        wanted("us")
    with pytest.raises(AnswerPlacesError, match=r"ids \(1, 2\).*wanted \[B, L\]"):
        places.match(np.zeros((1, 2), int), np.ones((1, 1), bool), [["a"]])
    with pytest.raises(AnswerPlacesError, match="wordpieces 3 to 3 of block 0"):
        places.characters(0, 3, 3)
    with pytest.raises(IndexError):
        places.spans(table.rows, ["a"])
