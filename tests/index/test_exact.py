"""Exact search equals the definition for any shape, chunk and mesh, in bounded memory."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.index.exact import Exact, _search
from realm.index.vectors import IndexBuildError
from tests.index.index_kinds import brute_force, clustered, shards_of


def whole_numbers(rng, *shape):
    """Small whole numbers: their inner products are exact in any order of summing, and tie often."""
    return rng.integers(-2, 3, shape).astype(np.float32)


def assert_same(hits, wanted):
    for left, right in zip(hits, wanted, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    rows=st.integers(1, 600),
    dim=st.integers(1, 9),
    batch=st.integers(1, 3),
    k=st.sampled_from([1, 3, 130, 700]),
    chunk=st.sampled_from([1, 129, 300, 65536]),
    devices=st.sampled_from([None, 3, 8]),
)
def test_equals_brute_force_with_ties(seed, rows, dim, batch, k, chunk, devices):
    rng = np.random.default_rng(seed)
    vector_NE, query_BE = whole_numbers(rng, rows, dim), whole_numbers(rng, batch, dim)
    mesh = devices and jax.make_mesh((devices,), ("data",), devices=jax.devices()[:devices])
    shards = shards_of(vector_NE, *np.sort(rng.integers(0, rows + 1, 2)))
    hits = Exact(chunk=chunk).build(shards, mesh).search(query_BE, k)
    assert_same(hits, brute_force(query_BE, vector_NE, k))


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("dim", [31, 128])
def test_copies_of_one_row_tie_wherever_they_lie(batch, dim):
    """With numbers that round: every copy must get the same last bit."""
    rng = np.random.default_rng(0)
    vector_NE = np.tile(rng.normal(size=(1, dim)).astype(np.float32), (3000, 1))
    for chunk in (13, 384, 65536):
        for mesh in (None, jax.make_mesh((8,), ("data",))):
            searcher = Exact(chunk=chunk).build([vector_NE], mesh)
            for _ in range(5):
                hits = searcher.search(rng.normal(size=(batch, dim)), 20)
                np.testing.assert_array_equal(hits.id_BK, np.tile(np.arange(20), (batch, 1)))


@pytest.mark.parametrize("axes", [{"data": 8}, {"data": 2, "model": 4}, {"model": 2, "data": 4}])
@pytest.mark.parametrize("mode", ["Auto", "Explicit"])
def test_any_mesh_with_a_data_axis(axes, mode):
    rng = np.random.default_rng(1)
    vector_NE, query_BE = whole_numbers(rng, 500, 4), whole_numbers(rng, 3, 4)
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(jax.sharding.AxisType[mode],) * len(axes))
    searcher = Exact(chunk=128).build([vector_NE], mesh)
    assert searcher.settings()["devices"] == axes["data"]
    held = {shard.data.shape[0] for shard in searcher.vector_CNE.addressable_shards}
    assert held == {searcher.settings()["chunks"] // axes["data"]}
    assert_same(searcher.search(query_BE, 8), brute_force(query_BE, vector_NE, 8))


def test_fewer_chunks_than_devices():
    vector_NE = clustered(5, 4)
    hits = Exact().build([vector_NE], jax.make_mesh((8,), ("data",))).search(vector_NE, 8)
    np.testing.assert_array_equal(hits.id_BK, brute_force(vector_NE, vector_NE, 8).id_BK)
    assert (hits.valid_BK.sum(1) == 5).all()


def test_a_small_corpus_is_padded_little():
    assert Exact().build([clustered(130, 4)]).vector_CNE.shape == (1, 256, 4)
    assert Exact(chunk=200).build([clustered(1000, 4)]).vector_CNE.shape == (4, 256, 4)


def test_never_a_score_matrix_of_all_rows():
    batch, rows = 64, 64 * 128
    searcher = Exact(chunk=128).build([clustered(rows, 4)])
    arrays = searcher.vector_CNE, searcher.base_C, searcher.real_C, np.zeros((batch, 4), np.float32)
    memory = _search.lower(*arrays, 8, None).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * batch * rows / 8


def test_one_compilation_for_each_batch_and_k():
    searcher = Exact().build([clustered(50, 3)])
    before = _search._cache_size()
    for _ in range(3):
        searcher.search(np.ones((4, 3)), 7)
    assert _search._cache_size() == before + 1


def test_bfloat16_rounds_both_sides_and_sums_in_float32():
    vector_NE, query_BE = clustered(300, 500), clustered(4, 500, seed=1)
    hits = Exact(dtype="bfloat16").build([vector_NE]).search(query_BE, 8)
    rounded = [np.asarray(jax.numpy.asarray(a, "bfloat16"), np.float32) for a in (query_BE, vector_NE)]
    wanted = brute_force(*rounded, 8)
    np.testing.assert_array_equal(hits.id_BK, wanted.id_BK)
    np.testing.assert_allclose(hits.score_BK, wanted.score_BK, rtol=1e-5)


def test_bfloat16_shards_are_read():
    vector_NE = np.asarray(jax.numpy.asarray(clustered(300, 8), "bfloat16"))
    assert_same(
        Exact().build([vector_NE]).search(np.ones((2, 8)), 4),
        Exact().build([vector_NE.astype(np.float32)]).search(np.ones((2, 8)), 4),
    )


def test_hits_may_be_changed_by_whoever_asked():
    hits = Exact().build([clustered(20, 3)]).search(np.ones((1, 3)), 2)
    hits.valid_BK[:] = False


def test_repr_shows_no_vectors():
    assert repr(Exact().build([clustered(20, 3)])) == (
        "ExactSearcher(rows=20, dim=3, config=Exact(chunk=65536, dtype='float32'))"
    )


def test_wrong_settings_are_refused():
    with pytest.raises(IndexBuildError, match="chunk is 0"):
        Exact(chunk=0)
    with pytest.raises(IndexBuildError, match="'float16'"):
        Exact(dtype="float16")
    with pytest.raises(IndexBuildError, match="axes .*'model'.*'data'"):
        Exact().build([clustered(20, 3)], jax.make_mesh((8,), ("model",)))
