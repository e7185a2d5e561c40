"""Parameters go to disk and back unchanged; the fingerprint tells any two different trees apart."""

import copy

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_refresh.snapshot import SnapshotError, SnapshotStore, fingerprint, read_params, to_host, write_params
from tests.index_refresh.refresh_fakes import make_params

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.bool_, np.uint8]
leaves = st.builds(
    lambda shape, dtype, seed: np.random.default_rng(seed).integers(0, 2, shape).astype(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
names = st.text(st.characters(blacklist_characters="/", blacklist_categories=("Cs",)), min_size=1, max_size=4)
trees = st.recursive(
    leaves,
    lambda node: st.dictionaries(names, node, max_size=3) | st.dictionaries(st.integers(0, 20), node, max_size=3),
    max_leaves=8,
)


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@given(tree=st.dictionaries(names, trees, max_size=3))
@settings(deadline=None, max_examples=50)
def test_round_trip(tmp_path_factory, tree):
    path = tmp_path_factory.getbasetemp() / "params.safetensors"
    write_params(path, tree)
    read = read_params(path)
    assert_same(read, tree)
    assert fingerprint(read) == fingerprint(tree)
    first = path.read_bytes()
    write_params(path, read)
    assert path.read_bytes() == first


def test_transposed_and_scalar_arrays_keep_their_values(tmp_path):
    tree = {"a": np.arange(6.0).reshape(2, 3).T, "b": np.float32(2.5), "c": jax.numpy.ones((2, 2), jax.numpy.bfloat16)}
    write_params(tmp_path / "p", tree)
    read = read_params(tmp_path / "p")
    np.testing.assert_array_equal(read["a"], tree["a"])
    assert read["b"].shape == () and read["b"] == 2.5 and read["c"].dtype == ml_dtypes.bfloat16


def test_the_fingerprint_depends_on_names_shapes_dtypes_and_bytes_only():
    params = make_params(0)
    base = fingerprint(params)
    assert fingerprint(jax.tree.map(jax.numpy.asarray, params)) == base
    assert fingerprint({"retriever": dict(reversed(params["retriever"].items()))}) == base
    words = params["retriever"]["words"]
    variants = [words.T, words.astype(np.float64), words.reshape(-1), np.nextafter(words, np.inf)]
    changed = [{"retriever": params["retriever"] | {"words": variant}} for variant in variants]
    renamed = {"retriever": {("w" if k == "words" else k): v for k, v in params["retriever"].items()}}
    assert len({base, fingerprint(renamed), *map(fingerprint, changed)}) == 6


def test_to_host_copies():
    params = make_params(0)
    kept = copy.deepcopy(params)
    host = to_host(params)
    params["retriever"]["words"][:] = 0
    assert_same(host, kept)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a/b": np.ones(1)}, "a/b"),
        ({"": np.ones(1)}, "key ''"),
        ({"a": {1: np.ones(1), "b": np.ones(1)}}, "a: found keys"),
        ({"a": [np.ones(1)]}, "a: found a list"),
        ({"a": {"b": None}}, "a/b: found a NoneType"),
        ({"a": np.array(["x"])}, "a: found dtype"),
    ],
)
def test_what_is_not_a_tree_of_arrays_is_refused(tree, message):
    with pytest.raises(SnapshotError, match=message):
        to_host(tree)


def test_a_torn_file_is_refused(tmp_path):
    write_params(tmp_path / "p", make_params(0))
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-10])
    with pytest.raises(SnapshotError, match="wanted a safetensors file"):
        read_params(tmp_path / "p")


def test_the_snapshot_folder(tmp_path):
    store = SnapshotStore(tmp_path)
    assert store.steps() == []
    for step in (100, 20, 3):
        store.write(step, make_params(step))
    (store.folder / "7").mkdir()  # a kill before the file was there
    assert store.steps() == [3, 20, 100]
    assert_same(store.read(20), make_params(20))
    store.remove([3, 20])
    assert store.steps() == [100]
