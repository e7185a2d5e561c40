"""How much an approximate index loses against the exact one: recall at k.

The number to look at before trusting a fast index: settings that are good for one corpus can be poor for another.
"""

from __future__ import annotations

import numpy as np

from realm.protocols import Hits


class RecallError(ValueError):
    """The two results cannot be compared."""


def recall_at_k(approximate: Hits, exact: Hits) -> float:
    """The share of all valid exact hits, over the whole batch, that the same query's valid approximate hits hold.

    Only valid columns count on either side: padding is neither asked for nor a hit, so row 0 counts only where it was
    really found. Another row of the same score is a miss. The widths may differ: fewer exact columns ask recall@k of
    a longer list. Raises RecallError: batches that differ, or no valid exact hit at all.
    """
    if len(approximate.id_BK) != len(exact.id_BK):
        raise RecallError(f"{len(approximate.id_BK)} queries searched approximately, {len(exact.id_BK)} exactly")
    wanted = int(np.sum(exact.valid_BK))
    if wanted == 0:
        raise RecallError("no valid exact hit, so there is nothing to find")
    same_BKK = exact.id_BK[:, :, None] == approximate.id_BK[:, None, :]
    found_BK = (same_BKK & approximate.valid_BK[:, None, :]).any(axis=2) & exact.valid_BK
    return float(found_BK.sum() / wanted)
