"""The contract of an index, run on every kind."""

import json
import shutil

import numpy as np
import pytest

from realm.index.recall import recall_at_k
from realm.index.vectors import IndexBuildError, IndexLoadError, QueryError
from tests.index.index_kinds import KINDS, assert_sound, brute_force, clustered, kinds_for, shards_of

ROWS, DIM, BATCH = 700, 24, 20
VECTOR_NE = clustered(ROWS, DIM)
QUERY_BE = VECTOR_NE[:BATCH] + np.float32(0.1)
# bfloat16 keeps 8 bits of each factor.
TOLERANCE = {"exact-bfloat16": 0.05, "scann-tree-hash": 0.02}


def same(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module", params=KINDS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def kind(name):
    return KINDS[name]


@pytest.fixture(scope="module")
def searcher(kind):
    return kind.index.build(shards_of(VECTOR_NE, 300, 300, 650))


@pytest.mark.parametrize("k", [1, 8, 100])
def test_hits_are_sound_and_good(name, kind, searcher, k):
    hits, wanted = searcher.search(QUERY_BE, k), brute_force(QUERY_BE, VECTOR_NE, k)
    assert_sound(hits, QUERY_BE, VECTOR_NE, k, TOLERANCE.get(name, 1e-3))
    if kind.finds_all:
        np.testing.assert_array_equal(hits.id_BK, wanted.id_BK)
        np.testing.assert_allclose(hits.score_BK, wanted.score_BK, rtol=1e-4, atol=1e-4)
    else:
        assert recall_at_k(hits, wanted) > (0.9 if k < 100 else 0.6)


def test_settings_say_what_was_built(searcher):
    settings = searcher.settings()
    assert (settings["kind"], settings["rows"], settings["dim"]) == (searcher.kind, ROWS, DIM)
    assert json.loads(json.dumps(settings)) == settings


def test_rows_known_or_not_is_the_same_index(kind, searcher):
    again = kind.index.build(shards_of(VECTOR_NE, 1, 699), rows=ROWS)
    same(again.search(QUERY_BE, 8), searcher.search(QUERY_BE, 8))


def test_two_builds_and_two_searches_are_equal(kind, searcher):
    again = kind.index.build(shards_of(VECTOR_NE))
    for hits in (again.search(QUERY_BE, 8), searcher.search(QUERY_BE, 8)):
        same(hits, searcher.search(QUERY_BE, 8))


def test_batch_mates_change_nothing(searcher):
    whole = searcher.search(QUERY_BE, 8)
    for start, stop in ((0, 1), (3, 5), (5, 20)):
        part = searcher.search(QUERY_BE[start:stop], 8)
        np.testing.assert_array_equal(part.id_BK, whole.id_BK[start:stop])
        np.testing.assert_allclose(part.score_BK, whole.score_BK[start:stop], rtol=1e-5)


def test_no_queries_no_hits(searcher):
    assert_sound(searcher.search(np.zeros((0, DIM), np.float32), 3), QUERY_BE[:0], VECTOR_NE, 3)


def test_a_moved_index_loads_and_answers_the_same(kind, searcher, tmp_path):
    searcher.save(tmp_path / "built")
    shutil.move(tmp_path / "built", tmp_path / "moved")
    loaded = kind.index.load(tmp_path / "moved", shards_of(VECTOR_NE, 128))
    assert loaded.settings() == searcher.settings()
    same(loaded.search(QUERY_BE, 8), searcher.search(QUERY_BE, 8))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if path.suffix in (".pkl", ".pickle")]
    assert not [path for path in files if str(tmp_path).encode() in path.read_bytes()], "an absolute path"


def test_load_refuses_what_is_not_there(kind, searcher, tmp_path):
    with pytest.raises(IndexLoadError, match="does not exist"):
        kind.index.load(tmp_path, [VECTOR_NE])
    searcher.save(tmp_path)
    with pytest.raises(IndexLoadError, match="(?s)699.*700"):
        kind.index.load(tmp_path, [VECTOR_NE[1:]])
    with pytest.raises(IndexLoadError, match="(?s)701.*700"):
        kind.index.load(tmp_path, [VECTOR_NE, VECTOR_NE[:1]])
    with pytest.raises(IndexLoadError, match="(?s)23.*24"):
        kind.index.load(tmp_path, [VECTOR_NE[:, 1:]])
    facts = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps(facts | {"kind": "other"}))
    with pytest.raises(IndexLoadError, match=f"'other', wanted '{searcher.kind}'"):
        kind.index.load(tmp_path, [VECTOR_NE])
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(IndexLoadError, match="no index description"):
        kind.index.load(tmp_path, [VECTOR_NE])


def test_build_refuses_bad_vectors(kind):
    bad_NE = VECTOR_NE.copy()
    bad_NE[310, 5] = np.nan
    with pytest.raises(IndexBuildError, match=r"shard 1, row 10 \(index row 310\)"):
        kind.index.build(shards_of(bad_NE, 300))
    bad_NE[310, 5] = np.inf
    with pytest.raises(IndexBuildError, match=r"shard 0, row 310"):
        kind.index.build([bad_NE], rows=ROWS)
    with pytest.raises(IndexBuildError, match="shard 1 has vectors of width 23, shard 0 has 24"):
        kind.index.build([VECTOR_NE, VECTOR_NE[:, 1:]])
    for shards in ([], [VECTOR_NE[:0]]):
        with pytest.raises(IndexBuildError, match="0 rows"):
            kind.index.build(shards)
    for rows in (699, 1200):
        with pytest.raises(IndexBuildError, match=f"700 rows.*wanted {rows}"):
            kind.index.build([VECTOR_NE], rows=rows)
    with pytest.raises(IndexBuildError, match=r"shard 0 has shape \(24,\)"):
        kind.index.build(VECTOR_NE)
    with pytest.raises(IndexBuildError, match="at most 2147483647 rows"):
        kind.index.build([np.broadcast_to(np.float32(0), (2**31, 4))])


def test_search_refuses_bad_queries(searcher):
    bad_BE = QUERY_BE.copy()
    bad_BE[3, 0] = np.nan
    with pytest.raises(QueryError, match="query row 3"):
        searcher.search(bad_BE, 8)
    bad_BE[3, 0] = 1e19
    with pytest.raises(QueryError, match="query row 3 .*longer"):
        searcher.search(bad_BE, 8)
    for query in (QUERY_BE[:, 1:], QUERY_BE[0]):
        with pytest.raises(QueryError, match=r"wanted \[batch, 24\]"):
            searcher.search(query, 8)
    for k in (0, -1, 2.0, True):
        with pytest.raises(QueryError, match="k is"):
            searcher.search(QUERY_BE, k)


@pytest.mark.parametrize("name", kinds_for(5))
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("k", [1, 8])
def test_fewer_rows_than_candidates(name, rows, k):
    vector_NE, index = VECTOR_NE[:rows], KINDS[name].index
    hits = index.build(shards_of(vector_NE, 3)).search(QUERY_BE, k)
    assert_sound(hits, QUERY_BE, vector_NE, k, TOLERANCE.get(name, 1e-3))
    assert (hits.valid_BK.sum(1) == min(rows, k)).all()
    whole = index.build([vector_NE]).search(QUERY_BE, k)
    np.testing.assert_array_equal(hits.id_BK, whole.id_BK)


def test_more_candidates_than_rows(name, kind, searcher):
    hits = searcher.search(QUERY_BE, ROWS + 50)
    assert_sound(hits, QUERY_BE, VECTOR_NE, ROWS + 50, 0.2)
    assert (hits.valid_BK.sum(1) == ROWS).all() or not kind.finds_all


def test_all_inner_products_negative(name, kind):
    vector_NE, query_BE = -np.abs(VECTOR_NE), np.abs(QUERY_BE) + 1
    hits = kind.index.build([vector_NE]).search(query_BE, 8)
    assert_sound(hits, query_BE, vector_NE, 8, TOLERANCE.get(name, 1e-3))
    assert hits.valid_BK.all() and (hits.score_BK < 0).all()


def test_the_longest_vectors_do_not_overflow_and_longer_ones_are_refused(name, kind):
    sign_NE = np.sign(np.random.default_rng(0).normal(size=(64, DIM))).astype(np.float32)
    long_NE = sign_NE * np.float32(9e18 / DIM**0.5)
    hits = kind.index.build([long_NE]).search(long_NE, 8)
    # Of two vectors at right angles only rounding is left, which is as large as the vectors are.
    assert_sound(hits, long_NE, long_NE, 8, TOLERANCE.get(name, 1e-3), unit=9e18**2)
    assert np.isfinite(hits.score_BK[hits.valid_BK]).all() and hits.valid_BK.any()
    with pytest.raises(IndexBuildError, match="row 0 .*longer than 9e18"):
        kind.index.build([long_NE * 2])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_rows_come_in_row_order(kind, value):
    vector_NE = np.full((300, DIM), value, np.float32)
    hits = kind.index.build([vector_NE]).search(QUERY_BE, 8)
    assert_sound(hits, QUERY_BE, vector_NE, 8, 0.05)
    if kind.finds_all:
        np.testing.assert_array_equal(hits.id_BK, np.tile(np.arange(8), (BATCH, 1)))


def test_other_float_types_and_layouts(kind, searcher):
    hits = kind.index.build([np.asfortranarray(VECTOR_NE.astype(np.float64))]).search(QUERY_BE.astype(np.float64), 8)
    same(hits, searcher.search(np.asfortranarray(QUERY_BE), 8))
