"""Recall at k and MRR of a question set: where is the first gold block, and the first block that holds an answer?

The gold blocks of a question are the blocks of its gold document that hold one of its answers, or all blocks of that
document when none does (an answer cut by a block boundary); that, and every question left out, is counted by reason.
Searchers pad to the columns asked for, and padding is no candidate: a number at a k for which no question has
candidates is never guessed and prints "n/a (8 retrieved)".

Computed here in few lines and not by ir-measures over pytrec_eval (compiled C): these want every judged block by name,
where a match of answer tokens is known for retrieved blocks alone; they order by score and then by name, where a
searcher's order stands; and they give a number for any k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from realm.evaluation.answers import BlockAnswers, Blocks, joined
from realm.evaluation.table import Mean, Rate

REASONS = (
    "gold",
    "no_block_holds_an_answer",
    "no_document_named",
    "document_not_in_corpus",
    "answers_without_a_word",
)


class RecallError(ValueError):
    """Retrieved rows, gold rows and k that do not fit together."""


class Documents(Blocks, Protocol):
    """What is read of a block table here."""

    def rows_of_document(self, document_id: str) -> Sequence[int]: ...


class Asked(Protocol):
    """What is read of a question here: its accepted answers, and the document it was asked about, if known."""

    answers: Sequence[str]
    document: str | None


def gold_rows(
    table: Documents,
    questions: Iterable[Asked],
    *,
    blocks: BlockAnswers | None = None,
    counts: Counter | None = None,
) -> list[np.ndarray]:
    """The gold blocks of each question: int64 rows, ascending; empty where the question has none.

    `counts` is added to: "gold" questions with gold blocks, of them "no_block_holds_an_answer" (all blocks of the
    document were taken); left out of recall: "no_document_named", "document_not_in_corpus". "answers_without_a_word"
    counts answers that no block can hold. `blocks` shares the cache of tokenised blocks with other measures.
    """
    blocks = BlockAnswers(table) if blocks is None else blocks
    counts = Counter() if counts is None else counts
    counts.update(dict.fromkeys(REASONS, 0))
    gold = []
    for question in questions:
        counts["answers_without_a_word"] += sum(not joined(answer) for answer in question.answers)
        row = [] if question.document is None else sorted(_rows(table, question.document))
        if row:
            counts["gold"] += 1
            holding = [one for one in row if blocks.holds(one, question.answers)]
            counts["no_block_holds_an_answer"] += not holding
            row = holding or row
        else:
            counts["no_document_named" if question.document is None else "document_not_in_corpus"] += 1
        gold.append(np.asarray(row, np.int64))
    return gold


@dataclass(frozen=True)
class Ranks:
    """rank_Q int64: the place of each question's first match, from 1; 0 where none is among what was retrieved.

    counted_Q bool: whether a question can have a match at all; the others count in no number. retrieved: the most
    candidates, without padding, that a question has.
    """

    rank_Q: np.ndarray
    counted_Q: np.ndarray
    retrieved: int

    def within(self, k: int) -> np.ndarray:
        """bool [Q]: a match among the first k. Raises RecallError for k < 1."""
        if k < 1:
            raise RecallError(f"found recall at {k}, wanted k of 1 or more")
        return (self.rank_Q > 0) & (self.rank_Q <= k)

    def missing(self, k: int) -> str:
        """Why there is no number at k; "" where there is one, or no question that counts: that says itself."""
        return f"{self.retrieved} retrieved" if self.counted_Q.any() and k > self.retrieved else ""

    def recall(self, k: int) -> Rate:
        """How many of the counted questions have a match among their first k; without a value at a k above
        `retrieved`. Raises RecallError for k < 1."""
        within_Q, questions, note = self.within(k), int(self.counted_Q.sum()), self.missing(k)
        return Rate(0 if note else int((within_Q & self.counted_Q).sum()), questions, note)

    def mrr(self, k: int) -> Mean:
        """The mean of 1 / rank over the counted questions, 0 where no match is among the first k. As `recall`."""
        within_Q, note = self.within(k) & self.counted_Q, self.missing(k)
        total = 0.0 if note else float((1 / self.rank_Q[within_Q]).sum())
        return Mean(total, int(self.counted_Q.sum()), note)


def gold_ranks(id_QK: np.ndarray, valid_QK: np.ndarray, gold: Sequence[np.ndarray]) -> Ranks:
    """Where the first gold block of each question is; questions that have gold blocks count.

    id_QK int rows, best first; valid_QK bool; gold from `gold_rows`. Raises RecallError when shapes or the number of
    questions disagree.
    """
    id_QK, valid_QK = _checked(id_QK, valid_QK, len(gold))
    match_QK = np.zeros(id_QK.shape, bool)
    for question, row in enumerate(gold):
        match_QK[question] = np.isin(id_QK[question], row)
    # A slot that is not valid carries id 0, which is somebody's block.
    return _ranks(match_QK & valid_QK, valid_QK, np.array([len(row) > 0 for row in gold], bool))


def answer_ranks(
    id_QK: np.ndarray, valid_QK: np.ndarray, blocks: BlockAnswers, answers: Sequence[Iterable[str]]
) -> Ranks:
    """Where the first block is that holds an answer string; every question counts.

    A short answer stands in many blocks by chance, so this is an upper estimate of `gold_ranks`. Same shapes and
    errors.
    """
    id_QK, valid_QK = _checked(id_QK, valid_QK, len(answers))
    return _ranks(blocks.match(id_QK, valid_QK, answers), valid_QK, np.ones(len(answers), bool))


def _ranks(match_QK: np.ndarray, valid_QK: np.ndarray, counted_Q: np.ndarray) -> Ranks:
    first_Q = match_QK.argmax(axis=1) + 1 if match_QK.shape[1] else np.zeros(len(match_QK), np.int64)
    rank_Q = np.where(match_QK.any(axis=1), first_Q, 0).astype(np.int64)
    return Ranks(rank_Q, counted_Q, int(valid_QK.sum(axis=1).max(initial=0)))


def _checked(id_QK: np.ndarray, valid_QK: np.ndarray, questions: int) -> tuple[np.ndarray, np.ndarray]:
    id_QK, valid_QK = np.asarray(id_QK), np.asarray(valid_QK, bool)
    if id_QK.ndim != 2 or id_QK.shape != valid_QK.shape or len(id_QK) != questions:
        raise RecallError(
            f"found ids {id_QK.shape}, validity {valid_QK.shape} and {questions} questions, wanted [Q, K], [Q, K] and Q"
        )
    return id_QK, valid_QK


def _rows(table: Documents, document: str) -> Sequence[int]:
    try:
        return table.rows_of_document(document)
    except KeyError:
        return ()
