"""ScaNN's own matters: derived settings, the phantom of row 0, threads, memory, saved settings, and its absence."""

import logging
import sys
import weakref
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import realm.index.scann as room
from realm.index.exact import Exact
from realm.index.recall import recall_at_k
from realm.index.scann import Scann, ScannMissing
from realm.index.scann_settings import derive
from realm.index.vectors import IndexBuildError, IndexLoadError
from tests.index.index_kinds import assert_sound, clustered


@pytest.mark.parametrize(
    ("rows", "leaves", "searched", "block", "reorder"),
    [
        (1, 0, 0, 0, 0),
        (19_999, 0, 0, 0, 0),
        (20_000, 0, 0, 2, 400),
        (99_999, 0, 0, 2, 400),
        (100_000, 316, 32, 2, 200),
        (13_353_718, 3654, 366, 2, 200),
    ],
)
def test_settings_follow_from_the_rows(rows, leaves, searched, block, reorder):
    chosen = derive(rows, 128)
    assert (chosen.leaves, chosen.leaves_to_search) == (leaves, searched)
    assert (chosen.dims_per_block, chosen.reorder, chosen.anisotropic) == (block, reorder, 0.2)
    assert chosen.training_sample == min(rows, max(100_000, 64 * leaves))
    assert chosen.reorder_dtype == ("bfloat16" if rows > 4_194_304 else "float32")


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 10**8), st.integers(1, 1024))
def test_derived_settings_are_always_allowed(rows, dim):
    chosen = derive(rows, dim)
    assert derive(rows, dim, **asdict(chosen)) == chosen
    assert chosen.leaves_to_search <= chosen.leaves <= chosen.training_sample <= rows


def test_what_is_given_stands_and_the_rest_follows_it():
    chosen = derive(3000, 128, leaves=1000)
    assert (chosen.leaves, chosen.leaves_to_search, chosen.dims_per_block) == (1000, 100, 0)
    assert derive(3000, 128, dims_per_block=4).reorder == 400
    assert derive(300_000, 128, leaves=0).reorder == 400
    assert derive(300_000, 128, dims_per_block=0).reorder == 0
    given_all = dict(leaves=5, leaves_to_search=2, training_sample=50, dims_per_block=3, anisotropic=0.1, reorder=7)
    assert asdict(derive(100, 4, **given_all, reorder_dtype="bfloat16")) == given_all | {"reorder_dtype": "bfloat16"}
    assert derive(5, 4, leaves_to_search=9).leaves_to_search == 0


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"leaves": 51}, "51 leaves for 50 rows"),
        ({"leaves": 10, "leaves_to_search": 11}, "leaves_to_search is 11, wanted 1 to 10"),
        ({"leaves": 10, "leaves_to_search": 0}, "leaves_to_search is 0, wanted 1 to 10"),
        ({"leaves": 10, "training_sample": 9}, "training_sample is 9, wanted at least 10"),
        ({"dims_per_block": 9}, "dims_per_block is 9, wanted at most the width 8"),
        ({"dims_per_block": 2, "training_sample": 15}, "train on 15 rows, wanted at least 16"),
        ({"leaves": -1}, "leaves is -1"),
        ({"anisotropic": 1.0}, "anisotropic is 1.0"),
        ({"reorder_dtype": "int8"}, "'int8'"),
        ({"threads": -1}, "threads is -1"),
    ],
)
def test_wrong_settings_are_refused_before_scann_sees_them(given_, message):
    with pytest.raises(IndexBuildError, match=message):
        Scann(**given_).build([clustered(50, 8)])


@pytest.mark.parametrize("hashed", [{}, {"dims_per_block": 2}], ids=["plain", "hashed"])
def test_a_neighbour_not_found_is_not_row_0(hashed):
    rng = np.random.default_rng(0)
    vector_NE = rng.normal(size=(3000, 128)).astype(np.float32)
    query_BE = rng.normal(size=(200, 128)).astype(np.float32)
    searcher = Scann(leaves=1000, leaves_to_search=1, **hashed).build([vector_NE])
    raw_id, raw_score = searcher.searcher.search_batched(query_BE, final_num_neighbors=8)
    assert raw_id.shape[1] < 8 or (raw_id[np.isnan(raw_score)] == 0).all(), "scann itself has changed"
    hits = searcher.search(query_BE, 8)
    assert_sound(hits, query_BE, vector_NE, 8)
    assert not hits.valid_BK.all()
    exact = Exact().build([vector_NE]).search(query_BE, 8)
    truly = ((exact.id_BK == 0) & exact.valid_BK).sum()
    assert ((hits.id_BK == 0) & hits.valid_BK).sum() <= truly
    assert 0 < recall_at_k(hits, exact) < 0.5


def test_few_rows_are_searched_exactly_with_one_log_line(caplog):
    with caplog.at_level(logging.INFO, logger="realm.index"):
        Scann(leaves_to_search=20).build([clustered(5, 4)])
    assert [record.getMessage() for record in caplog.records] == [
        "ScaNN index over 5 rows of width 4: brute force, which is exact"
    ]


def test_settings_read_as_words():
    assert str(derive(300_000, 128)) == "55 of 548 leaves, 2 dimensions a block, reorder 200 in float32"
    assert str(derive(3000, 128, leaves=10)) == "1 of 10 leaves, brute force"


def test_derived_settings_of_twenty_thousand_rows_find_almost_everything():
    vector_NE = clustered(20_000, 32)
    query_BE = vector_NE[:40] + np.float32(0.1)
    searcher = Scann().build([vector_NE], rows=20_000)
    assert searcher.settings()["dims_per_block"] == 2
    exact = Exact().build([vector_NE]).search(query_BE, 8)
    assert recall_at_k(searcher.search(query_BE, 8), exact) > 0.95


@pytest.mark.parametrize("config", [{}, {"leaves": 40, "leaves_to_search": 4, "dims_per_block": 2}], ids=str)
def test_threads_change_nothing(config):
    vector_NE = clustered(2000, 16)
    one, two = (Scann(**config, threads=threads).build([vector_NE]) for threads in (1, 2))
    assert (one.settings()["threads"], two.settings()["threads"]) == (1, 2)
    left, right = one.search(vector_NE[:100], 8), two.search(vector_NE[:100], 8)
    np.testing.assert_array_equal(left.id_BK, right.id_BK)
    np.testing.assert_allclose(left.score_BK, right.score_BK, rtol=1e-5)


def test_our_copy_of_the_vectors_is_freed(monkeypatch):
    held = []

    def gather(*arguments):
        vector_NE = gather_shards(*arguments)
        held.append(weakref.ref(vector_NE))
        return vector_NE

    gather_shards = room.gather_shards
    monkeypatch.setattr(room, "gather_shards", gather)
    searcher = Scann(leaves=10, dims_per_block=2).build([clustered(500, 8)])
    assert held[0]() is None
    assert searcher.search(np.ones((1, 8)), 3).valid_BK.all()


def test_search_settings_may_change_on_load_and_built_ones_may_not(tmp_path):
    vector_NE = clustered(500, 8)
    Scann(leaves=20, leaves_to_search=1, dims_per_block=2).build([vector_NE]).save(tmp_path)
    loaded = Scann(leaves_to_search=20, reorder=500, threads=1).load(tmp_path)
    assert {"leaves_to_search": 20, "reorder": 500, "threads": 1}.items() <= loaded.settings().items()
    exact = Exact().build([vector_NE]).search(vector_NE[:50], 8)
    assert recall_at_k(loaded.search(vector_NE[:50], 8), exact) == 1
    assert Scann(leaves=20).load(tmp_path).settings()["leaves"] == 20
    for changed, message in (
        ({"leaves": 10}, "leaves 20, wanted 10"),
        ({"reorder": 0}, "reorder 200, wanted 0"),
        ({"reorder_dtype": "bfloat16"}, "reorder_dtype float32, wanted bfloat16"),
    ):
        with pytest.raises(IndexLoadError, match=message):
            Scann(**changed).load(tmp_path)


def test_damaged_or_foreign_files_are_refused(tmp_path):
    Scann().build([clustered(50, 8)]).save(tmp_path / "a")
    Scann().build([clustered(60, 8)]).save(tmp_path / "b")
    (tmp_path / "a" / "index.json").rename(tmp_path / "b" / "index.json")
    with pytest.raises(IndexLoadError, match="hold 60 rows, index.json says 50"):
        Scann().load(tmp_path / "b")
    (tmp_path / "b" / "scann_docids.pkl").write_bytes(b"")
    with pytest.raises(IndexLoadError, match="scann_docids.pkl.*delete it"):
        Scann().load(tmp_path / "b")
    (tmp_path / "b" / "scann_docids.pkl").unlink()
    (tmp_path / "b" / "scann_assets.pbtxt").unlink()
    with pytest.raises(IndexLoadError, match="ScaNN cannot read"):
        Scann().load(tmp_path / "b")


def test_without_scann_the_error_says_what_to_do(monkeypatch, tmp_path):
    Scann().build([clustered(50, 8)]).save(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "scann"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scann", None)
    for attempt in (lambda: Scann().build([clustered(5, 2)]), lambda: Scann().load(tmp_path)):
        with pytest.raises(ScannMissing, match="pip install scann.*Exact"):
            attempt()


@pytest.mark.parametrize("given", [{"leaves": 3}, {"leaves": 3, "leaves_to_search": 2}, {"leaves": 5000}])
def test_a_tree_is_not_loaded_where_none_was_built(given, tmp_path):
    Scann().build([clustered(60, 8)]).save(tmp_path)
    with pytest.raises(IndexLoadError, match=rf"was built with leaves 0, wanted {given['leaves']}"):
        Scann(**given).load(tmp_path)
