"""Parts of an index give the hits of the whole, are built one after another, and load only what fits."""

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.index import scann_settings
from realm.index.exact import Exact
from realm.index.merge import merge_hits
from realm.index.recall import recall_at_k
from realm.index.scann import Scann
from realm.index.sharded import Sharded
from realm.index.vectors import IndexBuildError, IndexLoadError
from tests.index.index_kinds import brute_force, clustered, shards_of


def assert_same(hits, wanted):
    for left, right in zip(hits, wanted, strict=True):
        np.testing.assert_array_equal(left, right)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    rows=st.sampled_from([1, 7, 300, 555]),
    dim=st.sampled_from([1, 24, 130]),
    parts=st.integers(1, 9),
    k=st.sampled_from([1, 8, 600]),
    rounded=st.booleans(),
)
def test_parts_of_exact_are_exact_bit_for_bit(seed, rows, dim, parts, k, rounded):
    rng = np.random.default_rng(seed)
    vector_NE, query_BE = (rng.normal(size=(n, dim)).astype(np.float32) for n in (rows, 4))
    vector_NE[rng.integers(0, rows, rows // 3)] = vector_NE[0]  # copies, which tie
    if rounded:
        vector_NE = vector_NE.round()
    shards = list(shards_of(vector_NE, *np.sort(rng.integers(0, rows + 1, 2))))
    divided = Sharded(Exact(), parts).build(iter(shards), rows=rows)
    assert_same(divided.search(query_BE, k), Exact().build(shards).search(query_BE, k))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**16), st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 9))
def test_a_merge_is_the_definition(seed, sizes, k):
    rng = np.random.default_rng(seed)
    vector_NE, query_BE = (rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (sum(sizes), 4))
    ends = np.cumsum(sizes)
    parts = [
        (int(end - size), brute_force(query_BE, vector_NE[end - size : end], k))
        for end, size in zip(ends, sizes, strict=True)
    ]
    assert_same(merge_hits(parts, k), brute_force(query_BE, vector_NE, k))


@pytest.mark.parametrize("rows", [1, 3, 10, 1_500_000, 1_500_001, 13_353_718])
@pytest.mark.parametrize("shards", [None, 1, 4])
def test_parts_cover_all_rows_evenly(rows, shards):
    size_P = np.diff(Sharded(shards=shards).starts(rows))
    assert size_P.sum() == rows and np.ptp(size_P) <= 1
    assert len(size_P) == min(rows, shards) if shards else size_P.max() <= 1_500_000


@dataclass
class Watched:
    """A kind that notes how many rows had been read when each part was finished."""

    read: list[int]
    finished: list[int] = field(default_factory=list)

    def build(self, shards, mesh=None, rows=None):
        searcher = Exact().build(shards, mesh, rows)
        self.finished.append(sum(self.read))
        return searcher


def test_a_part_is_finished_before_the_next_is_read():
    vector_NE, read = clustered(1000, 4), []

    def streamed() -> Iterator[np.ndarray]:
        for shard_NE in shards_of(vector_NE, *range(10, 1000, 10)):
            read.append(len(shard_NE))
            yield shard_NE

    inner = Watched(read)
    searcher = Sharded(inner, 4).build(streamed(), rows=1000)
    # One shard ahead, since the part ends at a shard's end.
    assert inner.finished == [250, 500, 750, 1000]
    np.testing.assert_array_equal(searcher.search(vector_NE, 8).id_BK, brute_force(vector_NE, vector_NE, 8).id_BK)


def test_each_part_lies_on_its_device():
    devices = jax.devices()[:3]
    searcher = Sharded(Exact(), 5).build([clustered(500, 4)], devices)
    assert [part.vector_CNE.devices() for part in searcher.parts] == [{devices[each]} for each in (0, 1, 2, 0, 1)]


def test_how_scann_keeps_vectors_follows_from_all_rows(monkeypatch):
    vector_NE = clustered(400, 8)
    for limit, dtype in ((400 * 8 * 4, "float32"), (400 * 8 * 4 - 1, "bfloat16")):
        monkeypatch.setattr(scann_settings, "FLOAT_BYTES", limit)
        searcher = Sharded(Scann(leaves=5, dims_per_block=2), 4).build([vector_NE])
        assert {part.settings()["reorder_dtype"] for part in searcher.parts} == {dtype}
    assert (
        Sharded(Scann(reorder_dtype="float32"), 4).build([vector_NE]).settings()["part"]["reorder_dtype"] == "float32"
    )


def test_parts_of_scann_find_what_scann_finds():
    vector_NE = clustered(4000, 16)
    query_BE = vector_NE[:100] + np.float32(0.1)
    exact = Exact().build([vector_NE]).search(query_BE, 8)
    inner = Scann(leaves=20, leaves_to_search=4, dims_per_block=2)
    divided = Sharded(inner, 4).build([vector_NE]).search(query_BE, 8)
    assert recall_at_k(divided, exact) >= recall_at_k(inner.build([vector_NE]).search(query_BE, 8), exact) > 0.8


@dataclass(frozen=True)
class Unread:
    """Shards that know their shape and must not be read."""

    rows: int
    dim: int

    def __iter__(self):
        raise AssertionError("the vectors were read")


def test_loading_scann_reads_no_vectors(tmp_path):
    vector_NE = clustered(60, 8)
    built = Sharded(Scann(), 3).build([vector_NE])
    built.save(tmp_path)
    for shards in (Unread(60, 8), None):
        loaded = Sharded(Scann()).load(tmp_path, shards)
        assert_same(loaded.search(vector_NE, 8), built.search(vector_NE, 8))


def test_another_index_is_refused(tmp_path):
    vector_NE = clustered(60, 8)
    Sharded(Scann(), 3).build([vector_NE]).save(tmp_path)
    with pytest.raises(IndexLoadError, match="built with shards 3, wanted 4"):
        Sharded(Scann(), 4).load(tmp_path)
    with pytest.raises(IndexLoadError, match="holds parts of Scann, wanted Exact"):
        Sharded(Exact(), 3).load(tmp_path, [vector_NE])
    with pytest.raises(IndexLoadError, match="part-00000 was built with reorder_dtype float32, wanted bfloat16"):
        Sharded(Scann(reorder_dtype="bfloat16"), 3).load(tmp_path)
    (tmp_path / "part-00002").rename(tmp_path / "elsewhere")
    with pytest.raises(IndexLoadError, match="part-00002.*does not exist"):
        Sharded(Scann(), 3).load(tmp_path)
    Scann().build([vector_NE[:19]]).save(tmp_path / "part-00002")
    with pytest.raises(IndexLoadError, match="20 rows.*wanted 19"):
        Sharded(Scann(), 3).load(tmp_path)


def test_wrong_numbers_of_parts_and_rows_are_refused():
    with pytest.raises(IndexBuildError, match="shards is 0"):
        Sharded(shards=0)
    with pytest.raises(IndexBuildError, match="hold 60 rows or more, wanted 40"):
        Sharded(Exact(), 2).build(shards_of(clustered(60, 8), 40), rows=40)


@pytest.mark.parametrize(
    "index", [Sharded(Exact(), 3), Sharded(Scann(leaves=8, dims_per_block=2, reorder=50), 3)], ids=["exact", "scann"]
)
def test_built_into_a_folder_it_is_what_would_have_been_saved(index, tmp_path):
    vector_NE = clustered(300, 8)
    searcher = index.build([vector_NE])
    searcher.save(tmp_path / "saved")
    settings = index.build_into(tmp_path / "into", [vector_NE[:100], vector_NE[100:]], rows=300)
    assert settings == searcher.settings()
    query_BE = vector_NE[::20]
    loaded = [index.load(tmp_path / name, [vector_NE]).search(query_BE, 4) for name in ("saved", "into")]
    for left, right in zip(*loaded, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_part_that_is_saved_is_let_go_before_the_next_is_built(tmp_path):
    alive, most = weakref.WeakSet(), []

    class Watched(Exact):
        def build(self, *given, **more):
            most.append(len(alive))
            built = super().build(*given, **more)
            alive.add(built)
            return built

    index = Sharded(Watched(), 4)
    index.build_into(tmp_path, [clustered(100, 8)])
    assert most == [0, 0, 0, 0]
    most.clear()
    held = index.build([clustered(100, 8)])
    assert most == [0, 1, 2, 3] and len(held.parts) == 4


def test_renewed_rows_stand_in_their_parts_and_the_rest_stays():
    old_NE, new_NE = clustered(300, 8), clustered(300, 8, seed=3)

    class Stored:
        rows, dim = 300, 8

        def take(self, row_N):
            return new_NE[row_N]

        def __iter__(self):
            return iter([mixed_NE])

    mixed_NE = old_NE.copy()
    mixed_NE[90:220] = new_NE[90:220]
    query_BE = mixed_NE[::10]
    for inner in (Scann(), Scann(leaves=8, leaves_to_search=8, dims_per_block=2, reorder=300)):
        index = Sharded(inner, 3)
        with tempfile.TemporaryDirectory() as folder:
            index.build([old_NE]).save(folder)
            renewed = index.renew(folder, Stored(), [(90, 150), (150, 220)])
        exact = Exact().build([mixed_NE]).search(query_BE, 4)
        np.testing.assert_array_equal(renewed.search(query_BE, 4).id_BK, exact.id_BK)
    with tempfile.TemporaryDirectory() as folder, pytest.raises(IndexLoadError, match="wanted 300 of 9"):
        Scann().build([old_NE]).save(folder)
        Stored.dim = 9
        Scann().renew(folder, Stored(), [(0, 1)])
