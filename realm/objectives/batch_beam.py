"""In-batch training of a retriever: every question is scored against the blocks of its whole batch (DPR).

Karpukhin et al. 2020 (arXiv 2004.04906, section 3.2): the blocks that the other questions of a batch bring along are
negatives that cost nothing more, and a few blocks that look right and hold no answer make them hard. DPR takes those
from BM25; here they are the index's own best wrong blocks, as ANCE has them (Xiong et al. 2020, arXiv 2007.00808).
On the host, in numpy. C: columns that a question brings; U: distinct blocks of the batch; L: its beam.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from realm.protocols import Arrays
from realm.retrieve import NULL, Candidates
from realm.text.answer_places import AnswerPlaces


class BatchBeam(NamedTuple):
    """arrays: blocks, slots and masks as the loss reads them. row_U: the corpus row of each distinct block, NULL for
    the null block. match_BK: which of the blocks that are read hold an answer."""

    arrays: Arrays
    row_U: np.ndarray
    match_BK: np.ndarray


def batch_beam(
    retrieved: Any, answers_B: Sequence[Iterable[str]], row_B: Sequence[range], *, read: int, negatives: int
) -> BatchBeam:
    """The batch's blocks, each once, as a beam of every question.

    Each question brings the first `read` blocks it found, a right one, and the first `negatives` it found that hold no
    answer (one that is read counts). Right are the blocks of its own document (rows row_B[b]) that hold an answer;
    where it names none, or none of them does, the blocks it found itself that hold one. The first right one found is
    brought, else its document's first. Its beam is what it reads, then all blocks that its process's part of the batch
    brought. slot_BK, valid_BL, correct_BL: as `OpenQa.found` gives them. ignored_BL: blocks that hold an answer and are
    not known to be right are no negatives either.
    """
    places: AnswerPlaces = retrieved.places
    indexed = retrieved.retrieval.table.indexed
    id_BL, valid_BL = (array[:, 1:] for array in retrieved.candidates[:2])
    B = len(id_BL)
    id_BC = np.zeros((B, read + negatives + 1), np.int32)
    valid_BC = np.zeros(id_BC.shape, bool)
    right_B: list[Collection[int]] = []  # where a right block may be; whether it holds an answer is asked of few
    for b, (answers, row_R) in enumerate(zip(answers_B, row_B, strict=True)):
        found = id_BL[b, valid_BL[b]].tolist()
        row_R = range(row_R.start, min(row_R.stop, indexed))  # what is not in the index is found by nobody
        own = places.first(row_R, tuple(answers))
        right_B.append(set(found) if own is None else row_R)
        first = next((row for row in found if row in right_B[b] and places.holds(row, answers)), own)
        wrong = islice((row for row in found if not places.holds(row, answers)), negatives)
        for start, rows in (
            (0, found[:read]),
            (read, list(wrong)),
            (read + negatives, [] if first is None else [first]),
        ):
            id_BC[b, start : start + len(rows)], valid_BC[b, start : start + len(rows)] = rows, True
    packed = retrieved.retrieval.pack(
        Candidates(
            np.concatenate([np.full((B, 1), NULL, np.int32), id_BC], axis=1),
            np.concatenate([np.ones((B, 1), bool), valid_BC], axis=1),
            np.zeros(B, bool),
        )
    )
    slot_BC, U = packed["slot_BK"][:, 1:], len(packed["block_length_U"])
    row_U = np.full(U, NULL, np.int32)
    row_U[slot_BC[valid_BC]] = id_BC[valid_BC]
    others_BU = np.stack([row_U != NULL] * B)
    for b, k in np.argwhere(valid_BC[:, :read]):
        others_BU[b, slot_BC[b, k]] = False
    row_BL = np.concatenate([id_BC[:, :read], np.broadcast_to(row_U, (B, U))], axis=1)
    valid_BL = np.concatenate([valid_BC[:, :read], others_BU], axis=1)
    holds_BL = places.match(np.where(valid_BL, row_BL, 0), valid_BL, answers_B)
    known_BL = np.stack([np.isin(row_L, list(right)) for row_L, right in zip(row_BL, right_B, strict=True)])
    arrays = {name: packed[name] for name in ("block_token_UT", "block_length_U", "block_body_U")} | {
        "slot_BK": np.concatenate([slot_BC[:, :read], np.broadcast_to(np.arange(U, dtype=np.int32), (B, U))], axis=1),
        "valid_BL": valid_BL,
        "correct_BL": holds_BL & known_BL,
        "ignored_BL": holds_BL & ~known_BL,
    }
    return BatchBeam(arrays, row_U, holds_BL[:, :read])
