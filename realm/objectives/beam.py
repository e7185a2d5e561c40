"""The host's part of question answering: the vectors of a beam, and where in its first blocks the answers stand.

Between search and loss, in numpy. What leaves here has few shapes, so that the loss compiles for few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from realm.protocols import Arrays
from realm.text.answer_places import AnswerPlaces


class Vectors(Protocol):
    """The stored vectors of an index."""

    def take(self, row_N: np.ndarray) -> np.ndarray:
        """float32 [N, E]: the vectors of these rows, in this order."""
        ...


def beam_vectors(vectors: Vectors, id_BL: np.ndarray, valid_BL: np.ndarray, sizes: Sequence[int]) -> Arrays:
    """vector_UE float32, each distinct vector of the beams once, and vector_slot_BL int32, where each block's is.

    U is the first of the ascending `sizes` that holds them; what is left is zeros, and the slot of an invalid block 0.
    """
    row_N = np.unique(id_BL[valid_BL])
    row_U = np.full(next(size for size in sizes if size >= len(row_N)), -1)
    row_U[: len(row_N)] = row_N
    slot_BL = np.searchsorted(row_N, id_BL)
    slot_BL = np.where(valid_BL, slot_BL, 0).astype(np.int32)
    return {"vector_UE": stored_vectors(vectors, row_U), "vector_slot_BL": slot_BL}


def stored_vectors(vectors: Vectors, row_U: np.ndarray) -> np.ndarray:
    """vector_UE float32 of these rows, zeros where a row is negative."""
    found_NE = vectors.take(row_U[row_U >= 0])
    vector_UE = np.zeros((len(row_U), found_NE.shape[1]), np.float32)
    vector_UE[row_U >= 0] = found_NE
    return vector_UE


def gold_spans(
    places: AnswerPlaces,
    id_BL: np.ndarray,
    match_BK: np.ndarray,
    ready: Arrays,
    answers_B: Sequence[Iterable[str]],
    widths: int,
) -> np.ndarray:
    """gold_BKWT bool: entry (w, t) is True where wordpieces t .. t + w of the body are an answer of the question.

    match_BK: which of the first K blocks id_BL hold one. All matches of all answers, as far as the body goes in
    `ready["block_token_UT"]` and spans of `widths` wordpieces reach. T: the columns of a body there.
    """
    T = ready["block_token_UT"].shape[1] - 2
    gold_BKWT = np.zeros((*match_BK.shape, widths, T), bool)
    body_length_U = ready["block_length_U"] - ready["block_body_U"] - 1
    # A block without any token match has no span: only the others are laid open.
    for b, k in np.argwhere(match_BK):
        length = body_length_U[ready["slot_BK"][b, k]]
        for start, end in places.spans(id_BL[b, k], answers_B[b]):
            if end <= length and end - start <= widths:
                gold_BKWT[b, k, end - start - 1, start] = True
    return gold_BKWT
