"""In-batch training of a retriever: every question is scored against the blocks of its whole batch (DPR).

Karpukhin et al. 2020 (arXiv 2004.04906, section 3.2): the blocks that the other questions of a batch bring along are
negatives that cost nothing more, and a few blocks that look right and hold no answer make them hard. DPR takes those
from BM25; here they are the index's own best wrong blocks, as ANCE has them (Xiong et al. 2020, arXiv 2007.00808).
On the host, in numpy. C: columns that a question brings; U: distinct blocks of the batch; L: its beam.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from realm.protocols import Arrays
from realm.retrieve import NULL, Candidates
from realm.text.answer_places import AnswerPlaces


def batch_beam(
    retrieved: Any, answers_B: Sequence[Iterable[str]], row_B: Sequence[Sequence[int]], *, read: int, negatives: int
) -> tuple[Arrays, np.ndarray]:
    """(arrays, match_BK): the batch's blocks, each once, as a beam of every question; which blocks read hold an answer.

    Each question brings the first `read` blocks it found, the first `negatives` without an answer, and a right one.
    Right are the blocks of its own document (rows row_B[b]) that hold an answer; where it names none, or none of them
    does, the blocks it found itself that hold one. The first right one found is taken, else the document's first.
    Its beam is what it reads and then all blocks of its process's part of the batch. slot_BK, valid_BL, correct_BL: as
    `OpenQa.found` gives them. ignored_BL: blocks that hold an answer and are not known to be right are no negatives.
    """
    places: AnswerPlaces = retrieved.places
    id_BL, valid_BL = (array[:, 1:] for array in retrieved.candidates[:2])
    match_BL = places.match(id_BL, valid_BL, answers_B)
    right_B = [_right(places, *known) for known in zip(row_B, answers_B, id_BL, match_BL, strict=True)]
    id_BC, valid_BC = _brought(id_BL, valid_BL, match_BL, right_B, read, negatives)
    B = len(id_BC)
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
    own_BK, own_valid_BK = id_BC[:, :read], valid_BC[:, :read]
    others_BU = np.stack([(row_U != NULL) & ~np.isin(row_U, r[v]) for r, v in zip(own_BK, own_valid_BK, strict=True)])
    row_BL = np.concatenate([own_BK, np.broadcast_to(row_U, (B, U))], axis=1)
    valid_BL = np.concatenate([own_valid_BK, others_BU], axis=1)
    correct_BL = valid_BL & np.stack([np.isin(row_L, right) for row_L, right in zip(row_BL, right_B, strict=True)])
    holds_BL = places.match(np.where(valid_BL, row_BL, 0), valid_BL, answers_B)
    slot_BU = np.broadcast_to(np.arange(U, dtype=np.int32), (B, U))
    return {
        **{name: packed[name] for name in ("block_token_UT", "block_length_U", "block_body_U")},
        "slot_BK": np.concatenate([slot_BC[:, :read], slot_BU], axis=1),
        "valid_BL": valid_BL,
        "correct_BL": correct_BL,
        "ignored_BL": holds_BL & ~correct_BL,
    }, holds_BL[:, :read]


def _right(
    places: AnswerPlaces, row_R: Sequence[int], answers: Iterable[str], id_L: np.ndarray, match_L: np.ndarray
) -> np.ndarray:
    """The right blocks of a question: those found first, best first, then the rest of its document's."""
    own_R = np.asarray(row_R, np.int32)
    own_R = own_R[places.match(own_R[None], np.ones((1, len(own_R)), bool), [answers])[0]]
    found = id_L[match_L]
    if not len(own_R):
        return found
    first = found[np.isin(found, own_R)]
    return np.concatenate([first, own_R[~np.isin(own_R, first)]])


def _brought(
    id_BL: np.ndarray,
    valid_BL: np.ndarray,
    match_BL: np.ndarray,
    right_B: Sequence[np.ndarray],
    read: int,
    negatives: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(id_BC, valid_BC): what each question reads, its negatives, and a right block."""
    B, L = id_BL.shape
    wrong_BL = valid_BL & ~match_BL
    order_BN = np.argsort(~wrong_BL, axis=1, kind="stable")[:, :negatives]
    right_B1 = np.array([[right[0] if len(right) else 0] for right in right_B], np.int32)
    any_B1 = np.array([[len(right) > 0] for right in right_B])
    parts = [
        (id_BL[:, :read], valid_BL[:, :read]),
        tuple(np.take_along_axis(array_BL, order_BN, axis=1) for array_BL in (id_BL, wrong_BL)),
        (right_B1, any_B1),
    ]
    id_BC, valid_BC = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return np.where(valid_BC, id_BC, 0).astype(np.int32), valid_BC
