"""Does a block hold an answer? Matching by whole tokens, so that the answer "US" is not found in "USA".

Text and answer are decomposed (NFD), lower-cased and cut into tokens the way DrQA does it (Chen et al. 2017,
arXiv 1704.00051): a run of letters, digits and combining marks is one token, any other visible character is one of its
own. The answer's tokens must occur side by side and in order. Composed and decomposed accents are equal; accents are
not stripped; a curly quote is not a straight one and an en dash is not a hyphen, as in DPR's `has_answer`.
An answer without a single token (an empty string) is held by no block; there it would be held by all.
Answers that are regular expressions (curated TREC) are searched anywhere in the block, in any case, both in NFD (DPR).
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from realm.evaluation.scores import compiled_pattern
from realm.text.answer_tokens import token_pattern


class Blocks(Protocol):
    """What is read of a block table here."""

    rows: int

    def text(self, row: int) -> str: ...


class AnswerError(ValueError):
    """The answers or the rows are not of the wanted form."""


def joined(text: str) -> str:
    """The tokens of `text` with one space before, between and after; "" where there is none.

    No token holds a space, so an answer's tokens lie side by side in a text exactly if its `joined` string is a
    substring of the text's.
    """
    token = token_pattern().findall(unicodedata.normalize("NFD", text))
    # Lower-cased last: a Greek capital sigma takes its form from its neighbours, which by now are its own token's.
    return f" {' '.join(token).lower()} " if token else ""


def needles(answers: Iterable[str]) -> tuple[str, ...]:
    """The `joined` form of each distinct answer that has a token. Raises AnswerError on a bare string."""
    return tuple(dict.fromkeys(needle for answer in _listed(answers) if (needle := joined(answer))))


def has_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether any of `answers` occurs in `text` as a run of whole tokens. For many questions use `BlockAnswers`."""
    hay = joined(text)
    return any(needle in hay for needle in needles(answers))


class BlockAnswers:
    """Answer search over the blocks of a table (their text, not their title), each block cut into tokens once.

    `capacity` blocks stay cached, the most recently used ones (some 2 kB each), so that memory is bounded however
    large the corpus.
    """

    def __init__(self, table: Blocks, capacity: int = 200_000):
        self.rows = table.rows
        read = self._read
        self._hay = lru_cache(maxsize=capacity)(lambda row: read(table.text(row)))

    def holds(self, row: int, answers: Iterable[str]) -> bool:
        """Whether the block at `row` holds any of `answers`. Raises AnswerError on a row outside the table."""
        return self._holds(int(row), self._wanted(answers))

    def match(self, id_QK: np.ndarray, valid_QK: np.ndarray, answers: Sequence[Iterable[str]]) -> np.ndarray:
        """Which retrieved blocks hold an answer of their question.

        id_QK int rows, valid_QK bool (an invalid slot holds nothing, whatever its id), answers one list a question.
        Gives bool [Q, K]. Raises AnswerError when the shapes or the number of questions disagree.
        """
        id_QK, valid_QK = np.asarray(id_QK), np.asarray(valid_QK, bool)
        if id_QK.ndim != 2 or id_QK.shape != valid_QK.shape or len(answers) != len(id_QK):
            raise AnswerError(
                f"found ids {id_QK.shape}, validity {valid_QK.shape} and answers of {len(answers)} questions, "
                "wanted [Q, K], [Q, K] and Q"
            )
        match_QK = np.zeros(id_QK.shape, bool)
        for question, answer in enumerate(answers):
            wanted = self._wanted(answer)
            for column in np.flatnonzero(valid_QK[question]):
                match_QK[question, column] = self._holds(int(id_QK[question, column]), wanted)
        return match_QK

    def _holds(self, row: int, wanted: tuple[Any, ...]) -> bool:
        if not 0 <= row < self.rows:
            raise AnswerError(
                f"found block row {row}, wanted one of the corpus's {self.rows} rows (0 to {self.rows - 1})"
            )
        hay = self._hay(row)
        return any(self._in(hay, one) for one in wanted)

    # What is made of a block's text, what is made of the answers, and how one is found in the other.
    _read = staticmethod(joined)
    _wanted = staticmethod(needles)
    _in = staticmethod(operator.contains)


class BlockPatterns(BlockAnswers):
    """The same over answers that are regular expressions. One that does not compile is held by no block."""

    @staticmethod
    def _read(text: str) -> str:
        return unicodedata.normalize("NFD", text)

    @staticmethod
    def _wanted(answers: Iterable[str]) -> tuple[Any, ...]:
        return patterns(answers)

    @staticmethod
    def _in(hay: str, pattern: re.Pattern[str]) -> bool:
        return pattern.search(hay) is not None


def patterns(answers: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """The regular expression of each distinct answer that compiles. Raises AnswerError on a bare string."""
    compiled = (compiled_pattern(unicodedata.normalize("NFD", one)) for one in dict.fromkeys(_listed(answers)))
    return tuple(one for one in compiled if one is not None)


def has_pattern(text: str, answers: Iterable[str]) -> bool:
    """Whether any of `answers`, regular expressions, matches somewhere in `text`. `BlockPatterns` for many."""
    hay = unicodedata.normalize("NFD", text)
    return any(one.search(hay) for one in patterns(answers))


def _listed(answers: Iterable[str]) -> Iterable[str]:
    if isinstance(answers, str):
        raise AnswerError(f"found the string {answers!r} as answers, wanted a list of strings: [{answers!r}]")
    return answers
