"""What one example is made from: a block with its sentences, or a sentence with its salient spans.

Which blocks and sentences may be examples is decided once, over the whole corpus, and what is left out is counted by
reason; after that unit i is always there and nothing is ever skipped. That is what makes batch n a function of
(seed, n). Start-up is array work on the memory-mapped table, without a Python loop over the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from realm.text.masks import Masking, SalientSpan, sentence_of_span
from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer


class UnitsError(ValueError):
    """Units that cannot be made as asked."""


class BlockUnit(NamedTuple):
    """A block: its row, the wordpieces of body and title (int32, no special tokens), and what lies in the body.

    sentence_S2, span_P2: int32 [S, 2] and [P, 2], start and end of each sentence and salient span in token_T;
    support_P: as in SentenceUnit. special: the tokenizer, which knows the numbers of [CLS], [SEP], [MASK] and padding.
    """

    row: int
    token_T: np.ndarray
    title_T: np.ndarray
    sentence_S2: np.ndarray
    span_P2: np.ndarray
    support_P: np.ndarray
    special: Tokenizer

    def sentence_at(self, place: Any) -> np.ndarray:
        """int32 [..., 2]: start and end of the sentence that each place of token_T is in."""
        return self.sentence_S2[np.searchsorted(self.sentence_S2[:, 0], place, side="right") - 1]


class SentenceUnit(NamedTuple):
    """A sentence: its block's row and its ordinal there, wordpieces, words and salient spans.

    token_T, word_T: int32, the wordpieces and the index of the word that each belongs to. span_P2: int32 [P, 2], start
    and end of each salient span in token_T; support_P: int32, how many other blocks hold the same one. special: the
    tokenizer, as in BlockUnit.
    """

    row: int
    sentence: int
    token_T: np.ndarray
    word_T: np.ndarray
    span_P2: np.ndarray
    support_P: np.ndarray
    special: Tokenizer


class Hiding(NamedTuple):
    """Spans of at most max_predictions wordpieces that `masking` may hide, in sentences of at most max_tokens."""

    masking: SalientSpan
    max_predictions: int
    max_tokens: int

    def usable(self, table: BlockTable) -> np.ndarray:
        """bool [N]: has the block such a span?"""
        size_P = np.diff(table.sentence_S4[:, :2], axis=1)[sentence_of_span(table), 0]
        ok_P = self.masking.usable_spans(table, self.max_predictions) & (size_P <= self.max_tokens)
        block_P = np.repeat(np.arange(table.rows), np.diff(table.span_offset_N1))
        return np.bincount(block_P[ok_P], minlength=table.rows) > 0


class BlockUnits:
    """The blocks that may be examples, in row order.

    heldout: False takes training blocks, True held-out ones, None both. indexed: only blocks that may be retrieved.
    hiding: only blocks in which it can hide a span, and none that are only retrieved.
    Of byte-identical blocks only the first is taken. length_N int32: wordpieces with title and special tokens. counts:
    units taken, and blocks left out by reason.
    """

    def __init__(
        self,
        table: BlockTable,
        *,
        heldout: bool | None = False,
        min_sentences: int = 1,
        indexed: bool = False,
        hiding: Hiding | None = None,
    ):
        self.table = table
        taken_N = _Choice(np.ones(table.rows, bool))
        if indexed and table.indexed < table.rows:
            taken_N.drop(np.arange(table.rows) >= table.indexed, "not in the index")
        _drop_blocks(taken_N, table, heldout)
        taken_N.drop(np.diff(table.sentence_offset_N1) < min_sentences, "too few sentences")
        if hiding is not None:
            taken_N.drop(_only_retrieved(table), "only retrieved")
            taken_N.drop(~hiding.usable(table), "nothing to mask")
        self._row_N, self.counts = taken_N.finish()
        self.length_N = table.length_N[self._row_N]

    def __len__(self) -> int:
        return len(self._row_N)

    def __getitem__(self, index: int) -> BlockUnit:
        """Unit `index`. Raises IndexError outside 0 .. len - 1."""
        row = int(self._row_N[inside(index, self)])
        table = self.table
        return BlockUnit(
            row,
            table.token_T(row),
            table.title_T(row),
            table.sentences(row)[:, :2],
            table.spans(row)[:, 1:3],
            table.support(row),
            table.tokenizer,
        )

    def name(self, index: int) -> str:
        """What a message calls unit `index`: its block's id."""
        return self.table.block_id(self[index].row)


class SentenceUnits:
    """The sentences that `masking` can hide something in, in corpus order.

    heldout and byte-identical blocks: as in BlockUnits. Left out too are blocks that are only retrieved, sentences
    shorter than the corpus's min_sentence_tokens or longer than max_tokens - 2 wordpieces ([CLS] and [SEP] take two),
    and what masking.usable(table, max_predictions) refuses. length_N int32: wordpieces and the two. counts: units
    taken, and sentences left out by their first reason. Raises UnitsError for max_tokens < 3.
    """

    def __init__(
        self,
        table: BlockTable,
        masking: Masking,
        *,
        heldout: bool | None = False,
        max_tokens: int,
        max_predictions: int = 10,
    ):
        if max_tokens < 3:
            raise UnitsError(f"found max_tokens {max_tokens}, wanted at least 3: [CLS], a wordpiece, [SEP]")
        self.table = table
        size_S = table.sentence_S4[:, 1] - table.sentence_S4[:, 0]
        block = _Choice(np.ones(table.rows, bool))
        only_N = _only_retrieved(table)
        if only_N.any():
            block.drop(only_N, "only retrieved")
        _drop_blocks(block, table, heldout)
        taken_S = _Choice(np.ones(len(size_S), bool))
        sentences_N = np.diff(table.sentence_offset_N1)
        for reason, dropped_N in block.reasons.items():
            taken_S.drop(np.repeat(dropped_N, sentences_N), reason)
        taken_S.drop(size_S < table.min_sentence_tokens, "sentence too short")
        taken_S.drop(size_S > max_tokens - 2, "sentence too long")
        taken_S.drop(~masking.usable(table, max_predictions), "nothing to mask")
        self._sentence_N, self.counts = taken_S.finish()
        self.length_N = size_S[self._sentence_N] + np.int32(2)

    def __len__(self) -> int:
        return len(self._sentence_N)

    def __getitem__(self, index: int) -> SentenceUnit:
        """Unit `index`. Raises IndexError outside 0 .. len - 1."""
        table = self.table
        number = int(self._sentence_N[inside(index, self)])
        row = int(self._rows(number))
        ordinal = number - int(table.sentence_offset_N1[row])
        start, end = table.sentences(row)[ordinal, :2].tolist()
        token_T = table.token_T(row)[start:end]
        span_P6 = table.spans(row)
        here_P = span_P6[:, 0] == ordinal
        return SentenceUnit(
            row,
            ordinal,
            token_T,
            table.tokenizer.words(token_T),
            span_P6[here_P, 1:3] - np.int32(start),
            table.support(row)[here_P],
            table.tokenizer,
        )

    def name(self, index: int) -> str:
        """What a message calls unit `index`: its block's id."""
        return self.table.block_id(self[index].row)

    @property
    def row_N(self) -> np.ndarray:
        """int [len]: the block of each unit."""
        return self._rows(self._sentence_N)

    def _rows(self, sentence: Any) -> Any:
        return np.searchsorted(self.table.sentence_offset_N1, sentence, side="right") - 1

    def only(self, index: Sequence[int]) -> SentenceUnits:
        """These units alone, in this order; counts stay those of all."""
        chosen = copy(self)
        chosen._sentence_N, chosen.length_N = self._sentence_N[list(index)], self.length_N[list(index)]
        return chosen


class _Choice:
    """A selection that knows why each thing left it: by the first reason that met it."""

    def __init__(self, taken_N: np.ndarray):
        self.taken_N = taken_N
        self.reasons: dict[str, np.ndarray] = {}

    def drop(self, drop_N: np.ndarray, reason: str) -> None:
        self.reasons[reason] = self.taken_N & drop_N
        self.taken_N = self.taken_N & ~drop_N

    def finish(self) -> tuple[np.ndarray, dict[str, int]]:
        """The numbers of what is left, int64, and the counts."""
        counts = {reason: int(dropped_N.sum()) for reason, dropped_N in self.reasons.items()}
        number_N = np.flatnonzero(self.taken_N)
        return number_N, {"taken": len(number_N), **counts}


def _only_retrieved(table: BlockTable) -> np.ndarray:
    """bool [N]: blocks that are never masked."""
    only_N = np.zeros(table.rows, bool)
    only_N[table.only_retrieved] = True
    return only_N


def _drop_blocks(choice: _Choice, table: BlockTable, heldout: bool | None) -> None:
    if heldout is not None:
        choice.drop(table.heldout_N != heldout, "not held out" if heldout else "held out")
    choice.drop(table.duplicate_N != np.arange(table.rows), "duplicate")


def inside(index: int, units: Sized) -> int:
    """`index`, where there is such a unit. Raises IndexError."""
    if not 0 <= index < len(units):
        raise IndexError(f"found unit {index}, wanted 0 to {len(units) - 1}")
    return index
