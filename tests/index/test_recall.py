"""Recall at k counts valid columns only."""

import numpy as np
import pytest

from realm.index.recall import RecallError, recall_at_k
from realm.protocols import Hits


def hits(*id_BK):
    """None stands for a column where nothing was found: id 0, as searchers fill it."""
    valid_BK = np.array([[each is not None for each in id_K] for id_K in id_BK])
    id_BK = np.array([[each or 0 for each in id_K] for id_K in id_BK], np.int32)
    return Hits(np.where(valid_BK, 1.0, -np.inf).astype(np.float32), id_BK, valid_BK)


def test_share_of_the_exact_hits_whatever_their_order():
    assert recall_at_k(hits([2, 1, 3], [4, 5, 6]), hits([1, 2, 3], [4, 7, 8])) == pytest.approx(4 / 6)


def test_padding_is_neither_asked_for_nor_found():
    assert recall_at_k(hits([1, None, None]), hits([0, 1, 2])) == pytest.approx(1 / 3)
    assert recall_at_k(hits([0, 1, None]), hits([1, 2, None])) == pytest.approx(1 / 2)
    assert recall_at_k(hits([None, None]), hits([0, None])) == 0


def test_a_longer_list_against_fewer_wanted():
    assert recall_at_k(hits([9, 8, 1, 2]), hits([1, 2])) == 1


def test_what_cannot_be_compared():
    with pytest.raises(RecallError, match="2 queries .* 1 exactly"):
        recall_at_k(hits([1], [2]), hits([1]))
    with pytest.raises(RecallError, match="no valid exact hit"):
        recall_at_k(hits([1]), hits([None]))
