"""A rolling refresh: one slice each time, everything else taken over, and the index renewed where it lies."""

import itertools
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from index_refresh.generation import verify
from index_refresh.interleave import Interleave
from index_refresh.rolling import renewing, slice_shards
from index_refresh.schedule import Every, Latency, Rolling, ScheduleError, parse_schedule, slices_of
from index_refresh.store import GenerationStore
from index_refresh.sync import Sync
from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.scann import Scann
from realm.index.sharded import Sharded
from tests.index_refresh.refresh_engines import ENGINES, published
from tests.index_refresh.refresh_fakes import (
    PACKED,
    FakeIndex,
    FakeTable,
    contents,
    expected_vectors,
    make_params,
    make_recipe,
)
from tests.index_refresh.test_kills import Killed, Killer

ROLLING, ROWS = Rolling(3, 10), 23  # 5 shards of 5 rows: slices of 1, 2 and 2 shards
SLICES = [(0, 5), (5, 15), (15, 23)]


def recipe_with(**changes):
    return make_recipe(**({"shard_rows": 5, "slices": 3} | changes))


def start(run, engine=None, recipe=None, schedule=ROLLING):
    return (engine or Sync(keep=9)).start(recipe or recipe_with(), schedule, run)


def vectors_of(generation):
    return np.concatenate(list(generation.vectors()))


def mixed(seeds):
    """The vectors of 23 rows where each slice was embedded with the parameters of its seed."""
    table = FakeTable(f"rows={ROWS}")
    found = np.empty_like(expected_vectors(table, make_params(0)))
    for (low, high), seed in zip(SLICES, seeds, strict=True):
        found[low:high] = expected_vectors(table, make_params(seed))[low:high]
    return found


def test_the_text_of_a_rolling_schedule():
    assert parse_schedule("rolling 10 every 50") == Rolling(10, 50)
    assert parse_schedule("Rolling 10 every 50 rebuild 3") == Rolling(10, 50, 3)
    assert parse_schedule("rolling 4 every 5 latency 7") == Latency(Rolling(4, 5), 7)
    assert slices_of(Latency(Rolling(4, 5, 2), 7)) == (4, 2) and slices_of(Every(5)) == (1, 0)
    assert [step for step in range(21) if ROLLING.due(step)] == [0, 10, 20]
    for text in ("rolling 1 every 5", "rolling 4 every 0"):
        with pytest.raises(ScheduleError, match="2 slices or more"):
            parse_schedule(text)
    with pytest.raises(ScheduleError, match="rolling 10 every 50"):
        parse_schedule("rolling ten every 5")


def test_slices_cover_every_shard_once_in_a_round():
    for slices, rows in itertools.product((2, 3, 7), (35, 36, 44)):
        recipe = recipe_with(slices=slices)
        shards = -(-rows // recipe.shard_rows)
        parts = [list(slice_shards(recipe, rows, number)) for number in range(1, slices + 1)]
        assert sum(parts, []) == list(range(shards)) and all(parts)
        assert list(slice_shards(recipe, rows, slices + 1)) == parts[0]
        assert slice_shards(recipe, rows, 0) == range(shards)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: type(engine).__name__)
def test_each_generation_renews_one_slice_and_knows_how_old_the_others_are(engine, tmp_path):
    refresher = start(tmp_path / "run", engine)
    try:
        for number, seeds in enumerate([(0, 0, 0), (1, 0, 0), (1, 2, 0), (1, 2, 3), (4, 2, 3)]):
            refresher.publish(10 * number, make_params(number))
            generation = published(refresher, 10 * number)
            verify(generation)
            wanted_NE = mixed(seeds)
            np.testing.assert_allclose(vectors_of(generation), wanted_NE, atol=1e-6)
            query_BE = wanted_NE[:4].astype(np.float32)
            hits = generation.searcher().search(query_BE, 3)
            np.testing.assert_array_equal(hits.id_BK, np.argsort(-(query_BE @ wanted_NE.T), axis=1)[:, :3])
            steps = 10 * np.repeat(seeds, [high - low for low, high in SLICES])
            ages = generation.document_ages(10 * number + 1)
            assert ages["document_age_min"] == 1 and ages["document_age_max"] == 10 * number + 1 - steps.min()
            assert ages["document_age_mean"] == pytest.approx(10 * number + 1 - steps.mean(), abs=0.01)
            refresher.adopted(generation, 10 * number + 1)
    finally:
        refresher.close()
    events = refresher.store.log.events()
    assert [e["document_age_max"] for e in events if e["event"] == "adopted"] == [1, 11, 21, 21, 21]
    last = [e for e in events if e["event"] == "published"][-1]
    assert last["documents"] == [[10, 20], [8, 30], [5, 40]] and last["slices"] == [3, 0]


def test_only_the_slice_is_embedded_and_the_rest_is_not_stored_twice(tmp_path):
    refresher = start(tmp_path, Sync(keep=1))
    refresher.publish(0, make_params(0))
    first = refresher.newest()
    kept = (first.path / "shard-00000.npy").stat().st_ino
    PACKED.clear()
    refresher.publish(10, make_params(1))
    refresher.publish(20, make_params(2))
    assert {int(row) for row_N, _ in PACKED for row in row_N if row >= 0} == set(range(15))
    assert (refresher.newest().path / "shard-00003.npy").stat().st_ino != kept
    assert os.stat(refresher.newest().path / "shard-00003.npy").st_nlink == 3
    refresher.adopted(refresher.newest(), 20)
    assert refresher.store.numbers() == [2]  # nothing has to stay for its sake
    verify(refresher.newest())
    assert os.stat(refresher.newest().path / "shard-00003.npy").st_nlink == 1
    refresher.close()


KINDS = {
    "exact": Exact(chunk=128),
    "exact-bfloat16": Exact(dtype="bfloat16"),
    "scann": Scann(),
    "scann-tree-hash": Scann(leaves=16, leaves_to_search=4, dims_per_block=2, reorder=50),
    "sharded-exact": Sharded(Exact(), 2),
    "sharded-scann": Sharded(Scann(leaves=8, dims_per_block=2, reorder=50, reorder_dtype="bfloat16"), 2),
    "alsh": Alsh(functions=4, tables=12),
}


@pytest.mark.parametrize("index", KINDS.values(), ids=KINDS)
def test_a_round_with_frozen_parameters_equals_a_full_rebuild(index, tmp_path):
    recipe = recipe_with(corpus="rows=600", shard_rows=64, slices=4, batch_rows=64, index=index)
    rolled = start(tmp_path / "rolled", recipe=recipe, schedule=Rolling(4, 10))
    for step in range(0, 50, 10):
        rolled.publish(step, make_params(1))
    whole = start(tmp_path / "whole", recipe=replace(recipe, slices=1), schedule=Every(10))
    whole.publish(0, make_params(1))
    last, fresh = rolled.newest(), whole.newest()
    assert last.number == 4 and [step for _, step in last.documents()] == [10, 20, 30, 40]
    np.testing.assert_array_equal(vectors_of(last), vectors_of(fresh))
    query_BE = vectors_of(last)[::7]
    for left, right in zip(last.searcher().search(query_BE, 5), fresh.searcher().search(query_BE, 5), strict=True):
        np.testing.assert_array_equal(left, right)
    rolled.close()
    whole.close()


@pytest.mark.parametrize("index", [Scann(leaves=16, leaves_to_search=16, dims_per_block=2, reorder=600), Exact()])
def test_new_rows_are_found_where_they_are_now(index, tmp_path):
    recipe = recipe_with(corpus="rows=600", shard_rows=64, slices=4, batch_rows=64, index=index)
    refresher = start(tmp_path, recipe=recipe, schedule=Rolling(4, 10))
    held = []  # the trainer holds the index it searches: then only the new rows are given to the next
    for number in range(6):
        refresher.publish(10 * number, make_params(number))
        generation = refresher.newest()
        held = [*held[-1:], generation.searcher()]
        vector_NE = vectors_of(generation)
        query_BE = vector_NE[::11]
        hits = held[-1].search(query_BE, 8)
        reloaded = index.load(generation.path / "index", generation.vectors()).search(query_BE, 8)
        for left, right in zip(hits, reloaded, strict=True):
            np.testing.assert_array_equal(left, right)
        wanted_BK = np.sort(query_BE @ vector_NE.T, axis=1)[:, :-9:-1]
        np.testing.assert_allclose(hits.score_BK, wanted_BK, atol=2e-3)
    refresher.close()


def test_an_index_is_built_anew_after_some_rounds_or_where_its_base_is_damaged(tmp_path):
    recipe = recipe_with(rebuild=2)
    refresher = start(tmp_path, recipe=recipe, schedule=Rolling(3, 10, 2))
    refresher.publish(0, make_params(0))
    base = refresher.newest()
    shards = [{"step": 0} | shard for shard in base.manifest["shards"]]

    class At:
        number, step = 5, 50

    assert renewing(recipe, At, base, shards) != recipe
    At.number = 6
    assert renewing(recipe, At, base, shards) == recipe
    At.number = 5
    (base.path / "index" / "index.json").write_text("{}")
    assert renewing(recipe, At, base, shards) == recipe
    refresher.close()


def test_a_damaged_shard_of_the_base_is_embedded_with_the_slice(tmp_path):
    refresher = start(tmp_path)
    refresher.publish(0, make_params(0))
    shard = refresher.newest().path / "shard-00004.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    refresher.publish(10, make_params(1))
    generation = refresher.newest()
    verify(generation)
    assert generation.documents() == [(15, 0), (8, 10)]
    wanted_NE = expected_vectors(FakeTable(f"rows={ROWS}"), make_params(1))
    np.testing.assert_allclose(vectors_of(generation)[20:], wanted_NE[20:], atol=1e-6)
    refresher.close()


def test_what_cannot_be_divided_or_does_not_agree_is_refused(tmp_path):
    with pytest.raises(ScheduleError, match="23 blocks in files of shard_rows=10 are 3 files, wanted 4"):
        start(tmp_path, recipe=make_recipe(slices=4), schedule=Rolling(4, 10))
    with pytest.raises(ScheduleError, match="into 3 slices .*the recipe into 1"):
        start(tmp_path, recipe=make_recipe())
    with pytest.raises(ScheduleError, match="into 1 slices .*the recipe into 3"):
        start(tmp_path, schedule=Every(10))


def test_a_file_system_without_links_gets_copies(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refused)
    refresher = start(tmp_path)
    refresher.publish(0, make_params(0))
    refresher.publish(10, make_params(1))
    np.testing.assert_allclose(vectors_of(refresher.newest()), mixed((1, 0, 0)), atol=1e-6)
    refresher.close()


def test_killed_anywhere_it_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    before = tmp_path / "before"
    refresher = start(before, Sync(keep=1))
    for step in (0, 10):
        refresher.publish(step, make_params(step))
    refresher.close()
    straight = tmp_path / "straight"
    shutil.copytree(before, straight)
    refresher = start(straight, Sync(keep=1))
    refresher.publish(20, make_params(20))
    wanted = contents(refresher.newest().path), refresher.newest().documents()
    refresher.close()
    died = 0
    for at in itertools.count(1, 3):
        run = tmp_path / f"killed-{at}"
        shutil.copytree(before, run)
        with monkeypatch.context() as patched:
            killer = Killer(patched, at)
            killer.calls = -(10**9)  # what starting costs is not this test's
            refresher = start(run, Sync(keep=1))
            killer.calls = 0
            try:
                refresher.publish(20, make_params(20))
                break
            except Killed:
                died += 1
        refresher.claim.release()
        for generation in GenerationStore(run, recipe_with()).all():
            verify(generation)
        again = start(run, Sync(keep=1))
        again.publish(20, make_params(20))
        assert (contents(again.newest().path), again.newest().documents()) == wanted, at
        again.close()
        shutil.rmtree(run)
    assert died > 10


def test_a_rewound_run_rolls_over_the_same_slices(tmp_path):
    refresher = start(tmp_path)
    for step in range(0, 50, 10):
        refresher.publish(step, make_params(step))
    wanted = vectors_of(refresher.newest())
    PACKED.clear()
    refresher.rewind(20)
    refresher.publish(30, make_params(30))
    assert not PACKED and refresher.newest().step == 30  # taken back as it was
    refresher.rewind(20)
    refresher.publish(30, make_params(99))  # another course: what came after must not be taken for its own
    refresher.publish(40, make_params(40))
    assert not np.array_equal(vectors_of(refresher.newest()), wanted)
    refresher.close()


def test_interleaved_it_takes_as_many_steps_as_the_largest_slice(tmp_path):
    whole = Interleave(batches=1).start(make_recipe(shard_rows=5), Every(10), tmp_path / "whole")
    rolling = start(tmp_path / "rolling", Interleave(batches=1))
    assert rolling.steps < whole.steps
    rolling.publish(0, make_params(0))
    for number in range(1, 4):
        made = 10 * number
        for step in range(made - 9, made + 1):
            rolling.tick(step)
        rolling.publish(made, make_params(number))
        for step in range(made + 1, made + rolling.steps):
            rolling.tick(step)
            assert rolling.newest().number == number - 1
        rolling.tick(made + rolling.steps)
        assert rolling.newest().number == number
    whole.close()
    rolling.close()


def test_an_index_that_cannot_be_renewed_is_built_from_the_stored_vectors(tmp_path):
    refresher = start(tmp_path, recipe=recipe_with(index=FakeIndex(0.5)))
    refresher.publish(0, make_params(0))
    refresher.publish(10, make_params(1))
    query_BE = np.eye(5, dtype=np.float32)
    found = refresher.newest().searcher().search(query_BE, 2)
    np.testing.assert_allclose(found.score_BK, np.sort(query_BE @ mixed((1, 0, 0)).T)[:, :-3:-1] + 0.5, atol=1e-5)
    refresher.close()
