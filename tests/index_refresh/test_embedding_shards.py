"""Vectors: right values, in row order, whatever the batches, shards and devices; stored as said."""

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_refresh import embed as embed_module
from index_refresh.embed import EmbedError, choose_devices, embed, plan_batches
from index_refresh.store import GenerationStore
from index_refresh.vectors import StoredVectors, decode, encode, write_shard
from tests.index_refresh.refresh_fakes import PACKED, FakeTable, expected_vectors, make_params, make_recipe


def embedded(folder, recipe, params=None, tick=lambda done, total: None):
    """float32 [N, E] through the shards on disk, and their records."""
    store = GenerationStore(folder, recipe)
    draft = store.begin(0, "f0")
    shards, dim = embed(recipe, store.table, params or make_params(1), draft, tick)
    names = tuple(shard["file"] for shard in shards)
    stored = StoredVectors(draft.folder, names, store.table.rows, dim, recipe.vector_dtype)
    return np.concatenate(list(stored)), shards, draft


@given(
    length_N=st.lists(st.integers(1, 30), max_size=40).map(lambda values: np.array(values, np.int32)),
    rows=st.integers(1, 7),
)
@settings(deadline=None, max_examples=50)
def test_every_row_is_in_one_batch_that_is_long_enough(length_N, rows):
    seen = []
    for row_N, length in plan_batches(length_N, (8, 16, 24), rows):
        assert len(row_N) == rows and (row_N >= 0).any()
        real = row_N[row_N >= 0]
        assert all(length >= min(length_N[row], 24) for row in real)
        assert all(length == 8 or length_N[row] > length - 8 for row in real)
        seen += real.tolist()
    assert sorted(seen) == list(range(len(length_N)))


@pytest.mark.parametrize("shard_rows", [1, 10, 23, 100])
def test_row_order_and_values(tmp_path, shard_rows):
    vector_NE, shards, _ = embedded(tmp_path, make_recipe(shard_rows=shard_rows))
    np.testing.assert_allclose(vector_NE, expected_vectors(FakeTable("rows=23"), make_params(1)), atol=1e-6)
    assert [shard["file"] for shard in shards] == [f"shard-{n:05d}.npy" for n in range(-(-23 // shard_rows))]


def test_few_shapes(tmp_path):
    PACKED.clear()
    embedded(tmp_path, make_recipe())
    assert {(len(row_N), length) for row_N, length in PACKED} == {(4, 8), (4, 16)}


def test_batch_mates_and_padding_do_not_matter(tmp_path):
    alone, _, _ = embedded(tmp_path / "a", make_recipe(batch_rows=1, lengths=(16,)))
    together, _, _ = embedded(tmp_path / "b", make_recipe(batch_rows=23, lengths=(8, 12, 16)))
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_the_number_of_devices_changes_no_bit(tmp_path, monkeypatch):
    recipe = make_recipe("rows=300", shard_rows=128)
    assert choose_devices(recipe, 300).size == 8 and choose_devices(recipe, 23).size == 1
    many, _, _ = embedded(tmp_path / "many", recipe)
    one = jax.sharding.Mesh(np.array(jax.local_devices()[:1]), ("rows",))
    monkeypatch.setattr(embed_module, "choose_devices", lambda recipe, rows: one)
    np.testing.assert_array_equal(many, embedded(tmp_path / "one", recipe)[0])


def test_parameters_may_lie_on_several_devices(tmp_path):
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    vector_NE, _, _ = embedded(tmp_path, make_recipe(), jax.device_put(make_params(1), replicated))
    np.testing.assert_allclose(vector_NE, expected_vectors(FakeTable("rows=23"), make_params(1)), atol=1e-6)


def test_bfloat16_is_stored_in_half_the_bytes_and_rounds_once(tmp_path):
    full, _, _ = embedded(tmp_path / "full", make_recipe())
    half, shards, draft = embedded(tmp_path / "half", make_recipe(vector_dtype="bfloat16"))
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, full.astype(ml_dtypes.bfloat16).astype(np.float32))
    stored = np.load(draft.folder / shards[0]["file"], allow_pickle=False)
    assert stored.dtype == np.uint16 and stored.shape == (10, 5)


def test_float32_shards_are_memory_maps(tmp_path):
    write_shard(tmp_path / "shard-00000.npy", encode(np.ones((3, 2), np.float32), "float32"))
    (array,) = StoredVectors(tmp_path, ("shard-00000.npy",), 3, 2, "float32")
    assert isinstance(array.base, np.memmap) and not array.flags.writeable
    np.testing.assert_array_equal(decode(array, "float32"), np.ones((3, 2)))


def test_rows_are_those_of_the_files_that_are_there_now(tmp_path):
    for value in (1.0, 2.0):  # a rewound run writes other vectors under the same names
        write_shard(tmp_path / "shard-00000.npy", encode(np.full((3, 2), value, np.float32), "float32"))
        stored = StoredVectors(tmp_path, ("shard-00000.npy",), 3, 2, "float32")
        np.testing.assert_array_equal(stored.take(np.array([2, 0])), np.full((2, 2), value))


def test_a_finished_shard_is_kept_and_a_torn_one_done_again(tmp_path):
    recipe = make_recipe()
    whole, shards, draft = embedded(tmp_path, recipe)
    (draft.folder / "shard-00001.npy").write_bytes(b"torn")
    PACKED.clear()
    again, records, _ = embedded(tmp_path, recipe)
    np.testing.assert_array_equal(again, whole)
    assert {int(row) for row_N, _ in PACKED for row in row_N if row >= 0} == set(range(10, 20))
    assert [r["sha256"] for r in records] == [r["sha256"] for r in shards]


@pytest.mark.parametrize("change", [{"lengths": (16,)}, {"batch_rows": 5}, {"vector_dtype": "bfloat16"}])
def test_shards_of_another_recipe_are_not_taken_over(tmp_path, change):
    embedded(tmp_path, make_recipe())
    PACKED.clear()
    _, _, draft = embedded(tmp_path, make_recipe(**change))
    assert {int(row) for row_N, _ in PACKED for row in row_N if row >= 0} == set(range(23))


def test_progress_counts_rows(tmp_path):
    seen = []
    embedded(tmp_path, make_recipe(), tick=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (23, 23) and {total for _, total in seen} == {23}


def test_an_empty_corpus(tmp_path):
    with pytest.raises(EmbedError, match="0 blocks"):
        embedded(tmp_path, make_recipe("rows=0"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_parameter_names_the_blocks(tmp_path, value):
    params = make_params(1)
    params["retriever"]["layers"][1][0, 0] = value
    with pytest.raises(EmbedError, match=r"row 0 \(block document-0:0\), row 1 .* and 5 more"):
        embedded(tmp_path, make_recipe(), params)


def test_a_full_disk_is_told_before_the_work(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 100})
    monkeypatch.setattr(embed_module.shutil, "disk_usage", lambda folder: usage)
    PACKED.clear()
    with pytest.raises(EmbedError, match="23 vectors of width 5 as float32 need .* bfloat16"):
        embedded(tmp_path, make_recipe())
    assert len(PACKED) == 1  # shapes only
