"""Wordpieces of many texts at once: each distinct word goes through the tokenizer once, the rest is array work.

BERT's pipeline splits at blanks and ASCII punctuation whatever stands around them, and cleans, lowers and strips
accents character by character. So the wordpieces of a text are those of its words put end to end, and a corpus has few
distinct words: the tokenizer's share of the time falls to that of a look-up. Tests compare with `Tokenizer.encode`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np

from realm.text.dates import may_begin
from realm.text.tokenizer import Tokenizer

KEPT_CHARACTERS = 1 << 23  # of the words that are remembered; past it all are forgotten
GROUP = 256  # new words that the tokenizer gets in one string
BLANK, LONE, WORD = 0, 1, 2
# Of each character; one above 127 counts as 127, which is of no kind of its own.
_KIND = bytes(BLANK if chr(n) in " \t\n\r" else LONE if chr(n) in string.punctuation else WORD for n in range(256))


class Encoded(NamedTuple):
    """D texts in one row: `text` is all of them, a line feed after each.

    character_D1, token_D1: int64, where each text begins in `text` and in the wordpieces. id_T, word_T: int32;
    start_T, end_T: int64, characters of `text`. date_C: ascending places in `text` where a date may begin.
    """

    text: str
    code: np.ndarray
    character_D1: np.ndarray
    token_D1: np.ndarray
    id_T: np.ndarray
    start_T: np.ndarray
    end_T: np.ndarray
    word_T: np.ndarray
    date_C: np.ndarray


class WordEncoder:
    """Encodes as its tokenizer does, remembering words. Memory: a few times KEPT_CHARACTERS."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self._forget()

    def _forget(self) -> None:
        self._number: dict[str, int] = {}
        self._characters = 0
        # Wordpieces and date places of word number w are flat[first[w] : first[w] + count[w]].
        self._piece_first, self._date_first = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._piece_count, self._date_count = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._piece_P3 = np.zeros((0, 3), np.int32)  # id, start and end in the word
        self._date = np.zeros(0, np.int32)

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """The wordpieces of `texts`, which hold no half of a surrogate pair."""
        if self._characters > KEPT_CHARACTERS:
            self._forget()
        text = "\n".join([*texts, ""])
        code = np.frombuffer(text.encode("utf-32-le"), "<u4")
        start_W, words = _words(code)
        number_W = self._numbers(words)
        character_D1 = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(one) + 1 for one in texts], out=character_D1[1:])
        count_W = self._piece_count[number_W]
        piece, word_T = _gather(self._piece_first[number_W], count_W)
        dated = np.flatnonzero(self._date_count[number_W])  # few words may begin a date
        date, owner = _gather(self._date_first[number_W[dated]], self._date_count[number_W[dated]])
        pieces_W1 = np.concatenate([[0], np.cumsum(count_W, dtype=np.int64)])
        id_T, at_T, to_T = self._piece_P3[piece].T
        id_T = np.ascontiguousarray(id_T)
        return Encoded(
            text,
            code,
            character_D1,
            pieces_W1[np.searchsorted(start_W, character_D1)],
            id_T,
            start_W[word_T] + at_T,
            start_W[word_T] + to_T,
            self.tokenizer.words(id_T),
            start_W[dated[owner]] + self._date[date],
        )

    def _numbers(self, words: list[str]) -> np.ndarray:
        """The number of each word, int64; those met for the first time get one."""
        number_W = np.fromiter(map(self._number.get, words, repeat(-1)), np.int64, len(words))
        new_W = np.flatnonzero(number_W < 0).tolist()
        if new_W:
            new = [words[w] for w in new_W]
            self._learn(list(dict.fromkeys(new)))
            number_W[new_W] = [*map(self._number.__getitem__, new)]
        return number_W

    def _learn(self, words: list[str]) -> None:
        plain = [word for word in words if word.isascii() and word.isalnum()]
        other = [word for word in words if not (word.isascii() and word.isalnum())]
        rows = [[_in_a_row(some[n : n + GROUP]) for n in range(0, len(some), GROUP)] for some in (plain, other)]
        encodings = [
            *self.tokenizer.encode_plain_batch([text for text, _ in rows[0]]),
            *self.tokenizer.encode_batch([text for text, _ in rows[1]]),
        ]
        words, groups = plain + other, rows[0] + rows[1]
        pieces, counts = [self._piece_P3], []
        for (_, start_W), found in zip(groups, encodings, strict=True):
            word_T = np.searchsorted(start_W, np.maximum.accumulate(found.start_T), side="right") - 1
            shift_T = start_W[word_T]
            pieces.append(np.stack([found.id_T, found.start_T - shift_T, found.end_T - shift_T], 1).astype(np.int32))
            counts.append(np.bincount(word_T, minlength=len(start_W) - 1))
        text, start_W = _in_a_row(words)
        date_C = np.array(may_begin(text), np.int64)
        word_C = np.searchsorted(start_W, date_C, side="right") - 1
        self._number.update(zip(words, range(len(self._number), len(self._number) + len(words)), strict=True))
        self._characters += sum(map(len, words))
        self._piece_P3 = np.concatenate(pieces)
        self._piece_count = np.concatenate([self._piece_count, *counts], dtype=np.int32)
        self._piece_first = np.cumsum(self._piece_count, dtype=np.int64) - self._piece_count
        self._date = np.concatenate([self._date, (date_C - start_W[word_C]).astype(np.int32)])
        self._date_count = np.concatenate([self._date_count, np.bincount(word_C, minlength=len(words))], dtype=np.int32)
        self._date_first = np.cumsum(self._date_count, dtype=np.int64) - self._date_count


def _words(code: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """(first character, int64; string) of each run of word characters and of each punctuation mark."""
    kind = np.frombuffer(np.minimum(code, 127).astype(np.uint8).tobytes().translate(_KIND), np.uint8)
    start = kind == WORD
    start[1:] &= kind[:-1] != WORD
    start |= kind == LONE
    kept = kind != BLANK
    # The words in a row with a blank, which none of them holds, before each, to be split there.
    place = np.cumsum(kept.view(np.int8) + start.view(np.int8), dtype=np.int32)[kept] - 1
    if len(place) == 0:
        return np.zeros(0, np.int64), []
    row = np.full(place[-1] + 1, ord(" "), "<u4")
    row[place] = code[kept]
    return np.flatnonzero(start), row[1:].tobytes().decode("utf-32-le").split(" ")


def _in_a_row(words: list[str]) -> tuple[str, np.ndarray]:
    """The words, a line feed between them, and where each begins and the next would."""
    return "\n".join(words), np.concatenate([[0], np.cumsum([len(word) + 1 for word in words])])


def _gather(begin_W: np.ndarray, count_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places in the flat array, w of each) of values that begin at `begin_W`, `count_W` of them each."""
    owner = np.repeat(np.arange(len(count_W)), count_W)
    before_W = np.cumsum(count_W, dtype=np.int64) - count_W
    return np.arange(len(owner)) + np.repeat(begin_W - before_W, count_W), owner
