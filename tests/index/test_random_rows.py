"""The control index: random rows, the same ones for the same query, and nothing else an index promises is broken."""

import numpy as np
import pytest

from realm.index.random_rows import RandomRows
from realm.index.vectors import IndexLoadError, QueryError

RNG = np.random.default_rng(0)
SHARDS = [RNG.normal(size=(rows, 8)).astype(np.float32) for rows in (30, 20)]
QUERY_BE = RNG.normal(size=(40, 8)).astype(np.float32)


def test_rows_differ_within_a_query_and_do_not_depend_on_the_batch():
    searcher = RandomRows().build(SHARDS)
    hits = searcher.search(QUERY_BE, 6)
    assert hits.valid_BK.all() and hits.id_BK.dtype == np.int32 and hits.id_BK.shape == (40, 6)
    assert all(len(set(row)) == 6 for row in hits.id_BK.tolist())
    alone = np.concatenate([searcher.search(query[None], 6).id_BK for query in QUERY_BE])
    np.testing.assert_array_equal(alone, hits.id_BK)
    assert not np.array_equal(RandomRows(seed=1).build(SHARDS).search(QUERY_BE, 6).id_BK, hits.id_BK)


def test_every_row_is_as_likely_as_the_others():
    query_BE = np.random.default_rng(1).normal(size=(4000, 8)).astype(np.float32)
    count_N = np.bincount(RandomRows().build(SHARDS).search(query_BE, 5).id_BK.ravel(), minlength=50)
    # 400 expected a row, standard deviation 19
    assert count_N.min() > 300 and count_N.max() < 500


def test_a_k_above_the_rows_gives_all_of_them_and_invalid_columns():
    hits = RandomRows().build(SHARDS).search(QUERY_BE[:2], 60)
    assert hits.valid_BK.sum(axis=1).tolist() == [50, 50] and np.isneginf(hits.score_BK[~hits.valid_BK]).all()
    assert sorted(hits.id_BK[0, :50]) == list(range(50))


def test_saved_and_loaded_it_gives_the_same_rows_and_refuses_what_does_not_fit(tmp_path):
    searcher = RandomRows().build(SHARDS)
    searcher.save(tmp_path)
    loaded = RandomRows().load(tmp_path, SHARDS)
    np.testing.assert_array_equal(loaded.search(QUERY_BE, 3).id_BK, searcher.search(QUERY_BE, 3).id_BK)
    with pytest.raises(IndexLoadError, match="seed"):
        RandomRows(seed=2).load(tmp_path, SHARDS)
    with pytest.raises(IndexLoadError, match="rows"):
        RandomRows().load(tmp_path, SHARDS[:1])
    with pytest.raises(QueryError):
        searcher.search(QUERY_BE[:, :4], 3)
