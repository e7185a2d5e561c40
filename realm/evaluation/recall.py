"""Recall at k of a question set: is a gold block, or a block that holds an answer, among the first k retrieved?

The gold blocks of a question are the blocks of its gold document that hold one of its answers, or all blocks of that
document when none does (an answer cut by a block boundary); that, and every question left out, is counted by reason.
Recall at a k above what was retrieved does not exist and is never guessed: it prints "n/a (5 retrieved)".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from realm.evaluation.answers import BlockAnswers, Blocks, joined
from realm.evaluation.table import Rate

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


def recall_at(
    id_QK: np.ndarray, valid_QK: np.ndarray, gold: Sequence[np.ndarray], ks: Iterable[int]
) -> dict[int, Rate]:
    """How many questions have a gold block among their first k, by k, out of those that have gold blocks.

    id_QK int rows, best first; valid_QK bool; gold from `gold_rows`. A k above K gives a Rate whose value is None.
    Raises RecallError when shapes or the number of questions disagree, or on k < 1.
    """
    id_QK, valid_QK = _checked(id_QK, valid_QK, len(gold))
    match_QK = np.zeros(id_QK.shape, bool)
    for question, row in enumerate(gold):
        match_QK[question] = np.isin(id_QK[question], row)
    # A slot that is not valid carries id 0, which is somebody's block.
    return rate_at(match_QK & valid_QK, ks, np.array([len(row) > 0 for row in gold], bool))


def answer_recall_at(
    id_QK: np.ndarray,
    valid_QK: np.ndarray,
    blocks: BlockAnswers,
    answers: Sequence[Iterable[str]],
    ks: Iterable[int],
) -> dict[int, Rate]:
    """How many questions have a block that holds an answer string among their first k, by k, out of all questions.

    A short answer stands in many blocks by chance, so this is an upper estimate of `recall_at`. Same shapes and errors.
    """
    id_QK, valid_QK = _checked(id_QK, valid_QK, len(answers))
    return rate_at(blocks.match(id_QK, valid_QK, answers), ks)


def rate_at(match_QK: np.ndarray, ks: Iterable[int], counted_Q: np.ndarray | None = None) -> dict[int, Rate]:
    """How many of the counted questions (all without `counted_Q`) have a match in their first k columns, by k."""
    counted_Q = np.ones(len(match_QK), bool) if counted_Q is None else counted_Q
    questions, retrieved = int(counted_Q.sum()), match_QK.shape[1]
    rates = {}
    for k in ks:
        if k < 1:
            raise RecallError(f"found recall at {k}, wanted k of 1 or more")
        if k > retrieved:
            rates[k] = Rate(0, questions, note=f"{retrieved} retrieved")
        else:
            rates[k] = Rate(int((match_QK[:, :k].any(axis=1) & counted_Q).sum()), questions)
    return rates


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
