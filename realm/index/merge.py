"""Hits of several parts of a corpus as the hits of the whole: exact, and equal scores by row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from realm.protocols import Hits


def merge_hits(parts: Iterable[tuple[int, Hits]], k: int) -> Hits:
    """The k best of `parts`, each (row of the corpus where the part begins, its hits), in row order.

    Every part's hits are [B, any width], best first and equal scores by row, so a stable sort keeps ties by row.
    """
    score_BN, id_BN, valid_BN = (
        np.concatenate(arrays, axis=1)
        for arrays in zip(
            *((hits.score_BK, np.where(hits.valid_BK, hits.id_BK + first, 0), hits.valid_BK) for first, hits in parts),
            strict=True,
        )
    )
    order_BK = np.argsort(-score_BN, axis=1, kind="stable")[:, :k]
    score_BK, id_BK, valid_BK = (np.take_along_axis(a_BN, order_BK, axis=1) for a_BN in (score_BN, id_BN, valid_BN))
    return Hits(score_BK, id_BK.astype(np.int32), valid_BK)
