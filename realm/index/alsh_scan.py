"""The other way of ALSH: no tables, every row is looked at, in matrix products."""

from __future__ import annotations

import numpy as np

from realm.index.alsh_store import chunks

GROUP = 64


def likeliest(query_BE: np.ndarray, vector_NE: np.ndarray, largest: float, k: int) -> list[np.ndarray]:
    """For each query the rows that may be among the k best, ascending: the k best and a few more.

    A matrix product gives equal rows different last bits, so all that rounding may have kept out are in; `largest`, the
    largest absolute value in vector_NE, bounds it: |error| <= E 2^-23 largest |q|_1. Scoring them again settles it.
    """
    found = [[] for _ in query_BE]
    # In float64, for the product may pass what float32 holds.
    slack_B = query_BE.shape[1] * 2.0**-23 * largest * np.abs(query_BE).sum(axis=1, dtype=np.float64)
    first = 0
    for chunk_NE in chunks(vector_NE):
        score_BN = query_BE @ chunk_NE.T
        least_B = kth_bound(score_BN, k) - slack_B
        query_C, row_C = np.nonzero(score_BN >= least_B[:, None].astype(np.float32))
        for query, row in enumerate(np.split(row_C, np.searchsorted(query_C, np.arange(1, len(query_BE))))):
            found[query].append(row + first)
        first += len(chunk_NE)
    return [np.concatenate(rows) for rows in found]


def kth_bound(score_BN: np.ndarray, k: int) -> np.ndarray:
    """A number for each query that its k-th best score reaches, -inf where there are fewer than k.

    The k-th best of the maxima of groups of columns, which are k scores at least; a selection among all the scores
    would cost more than the matrix product.
    """
    batch, columns = score_BN.shape
    if columns < k:
        return np.full(batch, -np.inf)
    group = max(1, min(GROUP, columns // (4 * k)))
    groups = columns // group
    best_BG = score_BN[:, : groups * group].reshape(batch, groups, group).max(axis=2)
    return np.partition(best_BG, groups - k, axis=1)[:, groups - k].astype(np.float64)
