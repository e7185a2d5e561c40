"""Where the answers of a question stand in the blocks of a corpus: as whole tokens of the text, then as wordpieces.

A reader chooses among spans of wordpieces, people read characters, and answers are matched by tokens. Here the three
are brought together: a match counts as a span of wordpieces only if these begin and end where the match does, and
a span of wordpieces reads as the exact characters of its block.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from realm.text.answer_tokens import AnswerTokens, answer_tokens, joined, token_runs
from realm.text.table import BlockTable

Wanted = tuple[tuple[str, ...], ...]


class AnswerPlacesError(ValueError):
    """Answers, rows or spans that do not fit the corpus."""


class _Layout(NamedTuple):
    """A block laid open: its text and tokens, and the characters of each wordpiece."""

    text: str
    tokens: AnswerTokens
    start_T: np.ndarray
    end_T: np.ndarray


class AnswerPlaces:
    """Answers in the blocks (their text, not their title) of a table.

    The most recently used blocks stay cached: `blocks` as one string each (some 2 kB), `layouts` laid open (some 20
    kB), so that memory is bounded however large the corpus. So do `firsts` answers of `first`.
    """

    def __init__(self, table: BlockTable, *, blocks: int = 200_000, layouts: int = 5_000, firsts: int = 200_000):
        self.table = table
        self._hay = lru_cache(maxsize=blocks)(lambda row: joined(answer_tokens(table.text(row)).token))
        self._layout = lru_cache(maxsize=layouts)(self._lay_open)
        self.first = lru_cache(maxsize=firsts)(self._first)

    def match(self, id_BL: np.ndarray, valid_BL: np.ndarray, answers_B: Sequence[Iterable[str]]) -> np.ndarray:
        """bool [B, L]: which blocks hold an answer of their question; an invalid slot holds nothing.

        Raises AnswerPlacesError on shapes that disagree or a bare string for answers, IndexError for no row of the
        table.
        """
        if id_BL.ndim != 2 or id_BL.shape != valid_BL.shape or len(answers_B) != len(id_BL):
            raise AnswerPlacesError(
                f"found ids {id_BL.shape}, validity {valid_BL.shape} and answers of {len(answers_B)} questions, "
                "wanted [B, L], [B, L] and B"
            )
        match_BL = np.zeros(id_BL.shape, bool)
        for question, answers in enumerate(answers_B):
            needles = _needles(wanted(answers))
            place_L = np.flatnonzero(valid_BL[question])
            hays = map(self._hay, id_BL[question, place_L].tolist())
            match_BL[question, place_L] = [any(needle in hay for needle in needles) for hay in hays]
        return match_BL

    def holds(self, row: int, answers: Iterable[str]) -> bool:
        """Whether the block holds one of the answers. Raises as `match`."""
        hay = self._hay(int(row))
        return any(needle in hay for needle in _needles(wanted(answers)))

    def _first(self, rows: Sequence[int], answers: tuple[str, ...]) -> int | None:
        """The first of these rows that holds one of the answers; both are hashable, what was asked is remembered."""
        return next((row for row in rows if self.holds(row, answers)), None)

    def spans(self, row: int, answers: Iterable[str]) -> list[tuple[int, int]]:
        """(start, end) in wordpieces of the block's body, end exclusive, of every match of every answer, ascending.

        A match that begins or ends inside a wordpiece is none. Raises as `match`.
        """
        text, tokens, start_T, end_T = self._layout(int(row))
        found = set()
        for run in wanted(answers):
            for first, after in token_runs(tokens.token, run):
                begin, stop = tokens.start[first], tokens.end[after - 1]
                inside = np.flatnonzero((start_T < stop) & (end_T > begin))
                # A wordpiece's last character may be followed by a combining mark that the tokenizer took off.
                if len(inside) and start_T[inside[0]] >= begin and end_T[inside[-1]] <= stop:
                    found.add((int(inside[0]), int(inside[-1]) + 1))
        return sorted(found)

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """The (first, last + 1) characters in the block's text of its body's wordpieces start .. end - 1.

        Combining marks that belong to the last character come with it. Raises AnswerPlacesError for no such span.
        """
        text, _, start_T, end_T = self._layout(int(row))
        if not 0 <= start < end <= len(start_T):
            raise AnswerPlacesError(
                f"found the wordpieces {start} to {end} of block {row}, wanted a span within its {len(start_T)}"
            )
        stop = int(end_T[end - 1])
        while stop < len(text) and unicodedata.combining(text[stop]):
            stop += 1
        return int(start_T[start]), stop

    def text(self, row: int, start: int, end: int) -> str:
        """The exact characters of that span. Raises as `characters`."""
        first, after = self.characters(row, start, end)
        return self._layout(int(row)).text[first:after]

    def _lay_open(self, row: int) -> _Layout:
        text = self.table.text(row)
        return _Layout(text, answer_tokens(text), *_piece_characters(self.table, row, text))


def wanted(answers: Iterable[str]) -> Wanted:
    """The tokens of each distinct answer that has any. Raises AnswerPlacesError on a bare string."""
    if isinstance(answers, str):
        raise AnswerPlacesError(f"found the string {answers!r} as answers, wanted a list of strings: [{answers!r}]")
    return _wanted(tuple(answers))


@lru_cache(maxsize=4096)
def _wanted(answers: tuple[str, ...]) -> Wanted:
    return tuple(dict.fromkeys(tokens for one in answers if (tokens := answer_tokens(one).token)))


@lru_cache(maxsize=4096)
def _needles(runs: Wanted) -> tuple[str, ...]:
    """What is looked for in a block's one string."""
    return tuple(joined(run) for run in runs)


def _piece_characters(table: BlockTable, row: int, text: str) -> tuple[np.ndarray, np.ndarray]:
    """start_T, end_T int32: the characters of each wordpiece of the body."""
    token_T = table.token_T(row)
    found = table.tokenizer.encode(text)
    if np.array_equal(found.id_T, token_T):
        return found.start_T, found.end_T
    # A sentence that began or ended inside a word: alone it gives other pieces than its document did.
    start_T, end_T = np.empty(len(token_T), np.int32), np.empty(len(token_T), np.int32)
    for first, after, begin, stop in table.sentences(row).tolist():
        part = table.tokenizer.encode(text[begin:stop])
        same = len(part.id_T) == after - first
        start_T[first:after] = begin + part.start_T if same else begin
        end_T[first:after] = begin + part.end_T if same else stop
    return start_T, end_T
