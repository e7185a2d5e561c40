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
_KIND = np.full(128, WORD, np.uint8)  # a character above 127 counts as 127, which is of no kind of its own
_KIND[[ord(one) for one in " \t\n\r"]] = BLANK
_KIND[[ord(one) for one in string.punctuation]] = LONE


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
        # For word number w: wordpieces and date places are flat[first[w] : first[w + 1]].
        self._first, self._date_first = np.zeros(1, np.int64), np.zeros(1, np.int64)
        self._piece_P3 = np.zeros((0, 3), np.int32)  # id, start and end in the word
        self._date = np.zeros(0, np.int32)

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """The wordpieces of `texts`, which hold no half of a surrogate pair."""
        if self._characters > KEPT_CHARACTERS:
            self._forget()
        text = "\n".join([*texts, ""])
        code = np.frombuffer(text.encode("utf-32-le"), "<u4")
        start_W, end_W = _words(code)
        words = [text[a:b] for a, b in zip(start_W.tolist(), end_W.tolist(), strict=True)]
        number_W = self._numbers(words)
        character_D1 = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(one) + 1 for one in texts], out=character_D1[1:])
        piece, word_T = _gather(self._first, number_W)
        date, owner = _gather(self._date_first, number_W)
        pieces_W1 = np.concatenate([[0], np.cumsum(self._first[number_W + 1] - self._first[number_W])])
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
            start_W[owner] + self._date[date],
        )

    def _numbers(self, words: list[str]) -> np.ndarray:
        """The number of each word, int64; those met for the first time get one."""
        number_W = np.fromiter(map(self._number.get, words, repeat(-1)), np.int64, len(words))
        new_W = np.flatnonzero(number_W < 0).tolist()
        if new_W:
            self._learn(list(dict.fromkeys(words[w] for w in new_W)))
            number_W[new_W] = [self._number[words[w]] for w in new_W]
        return number_W

    def _learn(self, words: list[str]) -> None:
        groups = [words[n : n + GROUP] for n in range(0, len(words), GROUP)]
        pieces, counts = [self._piece_P3], []
        for group, found in zip(
            groups, self.tokenizer.encode_batch(["\n".join(group) for group in groups]), strict=True
        ):
            start_W = np.concatenate([[0], np.cumsum([len(word) + 1 for word in group])])
            word_T = np.searchsorted(start_W, np.maximum.accumulate(found.start_T), side="right") - 1
            shift_T = start_W[word_T]
            pieces.append(np.stack([found.id_T, found.start_T - shift_T, found.end_T - shift_T], 1).astype(np.int32))
            counts.append(np.bincount(word_T, minlength=len(group)))
        dates = [may_begin(word) for word in words]
        self._number.update(zip(words, range(len(self._number), len(self._number) + len(words)), strict=True))
        self._characters += sum(map(len, words))
        self._piece_P3 = np.concatenate(pieces)
        self._first = _extended(self._first, np.concatenate(counts))
        self._date = np.concatenate([self._date, *(np.array(one, np.int32) for one in dates if one)])
        self._date_first = _extended(self._date_first, np.array([len(one) for one in dates]))


def _words(code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first character, end) of each run of word characters and of each punctuation mark, int64."""
    kind = _KIND[np.minimum(code, 127)]
    word = kind == WORD
    lone = kind == LONE
    start, end = word.copy(), word.copy()
    start[1:] &= ~word[:-1]
    end[:-1] &= ~word[1:]
    return np.flatnonzero(start | lone), np.flatnonzero(end | lone) + 1


def _gather(first: np.ndarray, number_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(places in the flat array, w of each) of the values of words `number_W`, one after the other."""
    begin_W = first[number_W]
    count_W = first[number_W + 1] - begin_W
    owner = np.repeat(np.arange(len(number_W)), count_W)
    before_W = np.cumsum(count_W) - count_W
    return np.arange(len(owner)) + np.repeat(begin_W - before_W, count_W), owner


def _extended(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.concatenate([first, first[-1] + np.cumsum(counts)])
