"""The three ways to hide part of a sentence: a salient span, a random span, random wordpieces.

REALM (arXiv 2002.08909, sections 3.4 and 4.5) hides one named entity or date, so that filling it in takes knowledge
of the world; its table 2 compares random spans as in SpanBERT (arXiv 1907.10529) and random tokens as in BERT. Both
span ways hide whole words only. What can be an example is settled by `usable`, over the whole corpus at once, so
that `choose` never has to skip: every hidden wordpiece is also predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from realm.text.table import BlockTable
    from realm.text.units import BlockUnit, SentenceUnit

_CHUNK = 1 << 18  # sentences looked at at once, so that a corpus of any size is scanned in bounded memory


class MaskingError(ValueError):
    """A way of masking that cannot be, or that was asked to mask a sentence it cannot use."""


@dataclass(frozen=True)
class SalientSpan:
    """Hides one named entity or date of the sentence, each as likely as the others.

    supported: only spans whose wordpieces some other block holds as a salient span too, so that retrieval can help.
    """

    supported: bool = False

    def usable(self, table: BlockTable, max_predictions: int) -> np.ndarray:
        """bool [S], for each sentence of the table: has it a span of at most max_predictions wordpieces?"""
        return _with_span(table, self.usable_spans(table, max_predictions))

    def usable_spans(self, table: BlockTable, max_predictions: int) -> np.ndarray:
        """bool [P], for each span of the table: may it be hidden?"""
        _check(max_predictions)
        ok_P = table.span_P6[:, 2] - table.span_P6[:, 1] <= max_predictions
        return ok_P & (table.support_P > 0) if self.supported else ok_P

    def choose(self, unit: SentenceUnit | BlockUnit, rng: np.random.Generator, max_predictions: int) -> np.ndarray:
        """The positions to hide, ascending. Raises MaskingError for a sentence that is not usable."""
        _check(max_predictions)
        ok_P = unit.span_P2[:, 1] - unit.span_P2[:, 0] <= max_predictions
        if self.supported:
            ok_P &= unit.support_P > 0
        span_P2 = unit.span_P2[ok_P]
        if len(span_P2) == 0:
            raise MaskingError(_unusable(unit, f"a salient span of at most {max_predictions} wordpieces"))
        start, end = span_P2[rng.integers(len(span_P2))]
        return np.arange(start, end)


@dataclass(frozen=True)
class RandomSpan:
    """Hides whole words in a row, their number drawn from a geometric distribution (SpanBERT, section 3.1).

    geometric_p: 0.2 means 3.8 words on average once cut at 10. max_tokens: the most wordpieces, whatever the words.
    salient_sentences: only sentences that have a salient span, so that two ways of masking meet the same sentences.
    Each place where that many words fit is as likely as the others; where none fits, one word less is tried.
    """

    geometric_p: float = 0.2
    max_tokens: int = 10
    salient_sentences: bool = False

    def __post_init__(self):
        if not 0 < self.geometric_p <= 1 or self.max_tokens < 1:
            raise MaskingError(f"found {self}, wanted 0 < geometric_p <= 1 and max_tokens at least 1")

    def usable(self, table: BlockTable, max_predictions: int) -> np.ndarray:
        """bool [S], for each sentence of the table: has it a word of at most that many wordpieces?"""
        limit = self._limit(max_predictions)
        sentences = len(table.sentence_S4)
        chunks = [_has_word(table, a, min(a + _CHUNK, sentences), limit) for a in range(0, sentences, _CHUNK)]
        return np.concatenate([np.zeros(0, bool), *chunks]) & _allowed(table, self.salient_sentences)

    def choose(self, unit: SentenceUnit, rng: np.random.Generator, max_predictions: int) -> np.ndarray:
        """The positions to hide, ascending. Raises MaskingError for a sentence that is not usable."""
        limit = self._limit(max_predictions)
        first_W = np.flatnonzero(np.diff(unit.word_T, prepend=-1))
        end_W = np.append(first_W[1:], len(unit.word_T))
        chance = (1 - self.geometric_p) ** np.arange(limit)
        words = min(1 + int(rng.choice(limit, p=chance / chance.sum())), len(first_W))
        for count in range(words, 0, -1):
            fits = np.flatnonzero(end_W[count - 1 :] - first_W[: len(first_W) - count + 1] <= limit)
            if len(fits):
                start = fits[rng.integers(len(fits))]
                return np.arange(first_W[start], end_W[start + count - 1])
        raise MaskingError(_unusable(unit, f"a word of at most {limit} wordpieces"))

    def _limit(self, max_predictions: int) -> int:
        _check(max_predictions)
        return min(self.max_tokens, max_predictions)


@dataclass(frozen=True)
class RandomToken:
    """Hides single wordpieces, parts of words too: rate of them, rounded, at least one and at most max_predictions.

    salient_sentences: as in RandomSpan.
    """

    rate: float = 0.15
    salient_sentences: bool = False

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise MaskingError(f"found {self}, wanted 0 < rate < 1")

    def usable(self, table: BlockTable, max_predictions: int) -> np.ndarray:
        """bool [S], for each sentence of the table: has it a wordpiece at all?"""
        _check(max_predictions)
        return (table.sentence_S4[:, 1] > table.sentence_S4[:, 0]) & _allowed(table, self.salient_sentences)

    def choose(self, unit: SentenceUnit, rng: np.random.Generator, max_predictions: int) -> np.ndarray:
        """The positions to hide, ascending. Raises MaskingError for a sentence that is not usable."""
        _check(max_predictions)
        tokens = len(unit.token_T)
        if tokens == 0:
            raise MaskingError(_unusable(unit, "a wordpiece"))
        count = min(max(round(self.rate * tokens), 1), max_predictions)
        return np.sort(rng.choice(tokens, count, replace=False))


Masking = SalientSpan | RandomSpan | RandomToken


def _with_span(table: BlockTable, ok_P: np.ndarray) -> np.ndarray:
    """bool [S]: the sentences that have a span of those marked."""
    usable_S = np.zeros(len(table.sentence_S4), bool)
    usable_S[sentence_of_span(table)[ok_P]] = True
    return usable_S


def sentence_of_span(table: BlockTable) -> np.ndarray:
    """int [P]: the sentence of each span. A span knows its ordinal in the block, the table counts on through all."""
    return np.repeat(table.sentence_offset_N1[:-1], np.diff(table.span_offset_N1)) + table.span_P6[:, 0]


def _allowed(table: BlockTable, salient_sentences: bool) -> np.ndarray:
    """bool [S]: all sentences, or those with a salient span."""
    return _with_span(table, np.ones(len(table.span_P6), bool)) if salient_sentences else np.ones(1, bool)


def _check(max_predictions: int) -> None:
    if max_predictions < 1:
        raise MaskingError(f"found max_predictions {max_predictions}, wanted at least 1")


def _unusable(unit: SentenceUnit | BlockUnit, wanted: str) -> str:
    what = f"sentence {unit.sentence} of row {unit.row}" if hasattr(unit, "sentence") else f"row {unit.row}"
    return f"found {what} without {wanted}, wanted one that the units of this masking hold"


def _has_word(table: BlockTable, first: int, last: int, limit: int) -> np.ndarray:
    """bool for sentences first .. last - 1 of the table: is the shortest word at most `limit` wordpieces?"""
    block_S = np.searchsorted(table.sentence_offset_N1, np.arange(first, last), side="right") - 1
    start_S = table.token_offset_N1[block_S] + table.sentence_S4[first:last, 0]
    origin, stop = start_S[0], table.token_offset_N1[block_S[-1]] + table.sentence_S4[last - 1, 1]
    start_S -= origin
    # sentences lie end to end, so the wordpieces of many of them are one slice
    begins_T = ~table.tokenizer.continues_V[table.token_flat[origin:stop]]
    begins_T[start_S] = True
    first_W = np.flatnonzero(begins_T)
    size_W = np.diff(first_W, append=len(begins_T))
    return np.minimum.reduceat(size_W, np.searchsorted(first_W, start_S)) <= limit
