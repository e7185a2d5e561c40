"""From hits to candidates: the null block first, the own block never, k columns always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.protocols import Hits
from realm.retrieve import (
    NULL,
    Candidates,
    best_of,
    choose_candidates,
    distinct_blocks,
    distinct_sizes,
    null_only,
    search_width,
)


def hits(rows, valid=None):
    id_BK = np.asarray(rows, np.int32)
    valid_BK = np.ones(id_BK.shape, bool) if valid is None else np.asarray(valid, bool)
    return Hits(np.where(valid_BK, 1.0, -np.inf).astype(np.float32), np.where(valid_BK, id_BK, 0), valid_BK)


def test_null_first_then_best_without_own_block():
    found = choose_candidates(hits([[4, 2, 3, 1]]), np.array([2]), np.arange(5), 4)
    assert found.id_BK.tolist() == [[NULL, 4, 3, 1]]
    assert found.valid_BK.all() and found.own_hit_B.tolist() == [True]


def test_worst_hit_makes_room_when_the_own_block_was_not_found():
    found = choose_candidates(hits([[4, 2, 3, 1]]), np.array([0]), np.arange(5), 4)
    assert found.id_BK.tolist() == [[NULL, 4, 2, 3]] and found.own_hit_B.tolist() == [False]


def test_every_byte_identical_copy_of_the_own_block_is_excluded():
    group_N = np.array([0, 1, 0, 3, 0])  # rows 0, 2 and 4 are copies
    assert search_width(np.array([2, -1]), group_N, np.bincount(group_N), 3) == 2 + 4
    assert search_width(np.array([1, -1]), group_N, np.bincount(group_N), 3) == 2 + 1
    assert search_width(np.array([-1]), group_N, np.bincount(group_N), 3) == 2
    found = choose_candidates(hits([[4, 2, 0, 1, 3]]), np.array([2]), group_N, 3)
    assert found.id_BK.tolist() == [[NULL, 1, 3]] and found.valid_BK.all()


def test_too_few_after_exclusion_stay_masked_and_the_own_block_is_never_put_back():
    valid = [[True, True] + [False] * 6]
    found = choose_candidates(hits([[0, 1, 0, 0, 0, 0, 0, 0]], valid), np.array([0]), np.arange(2), 8)
    assert found.valid_BK.tolist() == [[True, True] + [False] * 6]
    assert found.id_BK[0, 1] == 1 and (found.id_BK[0, 2:] == 0).all()


def test_a_query_from_no_block_excludes_nothing():
    found = choose_candidates(hits([[0, 1, 2]]), np.array([-1]), np.arange(3), 4)
    assert found.id_BK.tolist() == [[NULL, 0, 1, 2]] and not found.own_hit_B.any()


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_candidates_hold_their_promises_for_any_hits(seed, k, B):
    rng = np.random.default_rng(seed)
    N = int(rng.integers(1, 12))
    group_N = np.minimum(np.arange(N), rng.integers(0, N, N))
    group_N = np.array([g if group_N[g] == g else n for n, g in enumerate(group_N)])
    own_B = rng.integers(-1, N, B)
    width = search_width(own_B, group_N, np.bincount(group_N, minlength=N), k)
    id_BL = np.stack([np.resize(rng.permutation(N), width) for _ in range(B)])
    valid_BL = np.broadcast_to(np.arange(width) < min(N, width), (B, width))
    found = choose_candidates(hits(id_BL, valid_BL), own_B, group_N, k)
    assert found.id_BK.shape == (B, k) and found.valid_BK.shape == (B, k) and found.id_BK.dtype == np.int32
    for b in range(B):
        real = found.id_BK[b, 1:][found.valid_BK[b, 1:]]
        assert len(set(real.tolist())) == len(real)
        if own_B[b] >= 0:
            assert group_N[own_B[b]] not in group_N[real]
        allowed = N - (np.count_nonzero(group_N == group_N[own_B[b]]) if own_B[b] >= 0 else 0)
        assert len(real) == min(k - 1, allowed)
    row_U, slot_BK = distinct_blocks(found, distinct_sizes(B, k))
    assert len(row_U) in distinct_sizes(B, k) and row_U[0] == NULL
    restored = row_U[slot_BK]
    assert np.array_equal(restored[found.valid_BK], found.id_BK[found.valid_BK])
    assert not slot_BK[~found.valid_BK].any()
    assert len(set(row_U[row_U >= 0].tolist())) == (row_U >= 0).sum()


@pytest.mark.parametrize(("batch", "k", "multiple"), [(16, 8, 8), (3, 4, 8), (1, 2, 8), (8, 4, 24)])
def test_sizes_divide_over_devices_and_hold_a_batch_without_repetition(batch, k, multiple):
    sizes = distinct_sizes(batch, k, multiple)
    assert sizes[-1] >= batch * (k - 1) + 1 and all(s % multiple == 0 for s in sizes) and list(sizes) == sorted(sizes)


def test_re_ranking_keeps_the_null_block_and_the_best_valid_ones_by_the_new_scores():
    id_BK = np.array([[-1, 5, 6, 7, 8], [-1, 1, 2, 0, 0]], np.int32)
    valid_BK = np.array([[True] * 5, [True, True, True, False, False]])
    wide = Candidates(id_BK, valid_BK, np.array([True, False]))
    score_BL = np.array([[9.0, 1.0, 3.0, 3.0, 2.0], [0.0, 1.0, 2.0, 8.0, 9.0]])
    found = best_of(wide, score_BL, 3)
    np.testing.assert_array_equal(found.id_BK, [[-1, 6, 7], [-1, 2, 1]])
    assert found.valid_BK.all() and found.own_hit_B.tolist() == [True, False]
    narrow = best_of(wide, score_BL, 5)
    assert narrow.valid_BK.tolist() == [[True] * 5, [True, True, True, False, False]]


def test_a_single_candidate_is_the_null_block_and_nothing_is_searched():
    only = null_only(3)
    assert only.id_BK.tolist() == [[-1]] * 3 and only.valid_BK.all() and not only.own_hit_B.any()
