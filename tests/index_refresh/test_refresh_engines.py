"""The contract of every refresh engine, and what the trainer may rely on."""

import pickle
import time

import jax
import numpy as np
import pytest

from index_refresh.generation import GenerationCorrupt, GenerationMissing, verify
from index_refresh.heartbeat import read_heartbeat
from index_refresh.interleave import Interleave
from index_refresh.recipe import RecipeError
from index_refresh.schedule import Every, Never
from index_refresh.store import StaleSnapshot
from index_refresh.sync import RefresherClosed
from realm.index.exact import Exact
from realm.index.scann import Scann
from tests.index_refresh.refresh_engines import ENGINES, published, wait_until
from tests.index_refresh.refresh_fakes import (
    ODD,
    PACKED,
    FakeIndex,
    FakeObjective,
    FakeTable,
    contents,
    expected_vectors,
    make_params,
    make_recipe,
)


@pytest.fixture(params=ENGINES, ids=lambda engine: type(engine).__name__)
def engine(request):
    return request.param


@pytest.fixture
def start(engine, tmp_path):
    """start(recipe=..., schedule=...) -> a refresher on one run folder; all are closed in the end."""
    running = []

    def go(recipe=None, schedule=Every(10), **more):  # noqa: B008
        running.append(engine.start(recipe or make_recipe(), schedule, tmp_path / "run", **more))
        return running[-1]

    yield go
    for refresher in running:
        refresher.close()


def test_recipe_and_engine_pickle(engine):
    recipe = make_recipe()
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    assert pickle.loads(pickle.dumps(engine)) == engine


def test_nothing_before_the_first_publication(start):
    refresher = start()
    assert refresher.newest() is None
    status = refresher.status()
    assert (status["generations"], status["newest"], status["adopted"], status["last_error"]) == (0, None, None, None)


def test_publication_gives_the_vectors_of_the_published_parameters(start):
    refresher, params = start(), make_params(1)
    refresher.publish(0, params)
    generation = published(refresher, 0)
    assert (generation.number, generation.step) == (0, 0)
    wanted_NE = expected_vectors(FakeTable("rows=23"), params)
    np.testing.assert_allclose(np.concatenate(list(generation.vectors())), wanted_NE, atol=1e-6)
    query_BE = np.random.default_rng(0).normal(size=(7, wanted_NE.shape[1])).astype(np.float32)
    hits = generation.searcher().search(query_BE, 3)
    np.testing.assert_array_equal(hits.id_BK, np.argsort(-(query_BE @ wanted_NE.T), axis=1)[:, :3])
    verify(generation)


@pytest.mark.parametrize(
    ("index", "vector_dtype"),
    [
        (FakeIndex(offset=0.25), "float32"),
        (Exact(chunk=8), "bfloat16"),
        (Exact(dtype="bfloat16"), "float32"),
        (Scann(), "bfloat16"),
    ],
    ids=["fake", "exact-of-bfloat16", "exact-in-bfloat16", "scann"],
)
@pytest.mark.parametrize("engine", ENGINES[:2], ids=["sync", "interleave"])
def test_a_loaded_index_answers_as_the_one_that_was_built(start, index, vector_dtype):
    refresher = start(make_recipe(index=index, vector_dtype=vector_dtype))
    refresher.publish(0, make_params(1))
    generation = published(refresher, 0)
    query_BE = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    built = index.build(generation.vectors()).search(query_BE, 5)
    for left, right in zip(built, generation.searcher().search(query_BE, 5), strict=True):
        np.testing.assert_array_equal(left, right)


def test_query_parameters_are_the_published_ones_bit_for_bit(start):
    refresher, params = start(), make_params(1)
    given = jax.tree.map(lambda array: array.copy(), params)
    refresher.publish(0, given)
    for array in jax.tree.leaves(given):
        array[:] = 0  # the trainer goes on changing its own arrays
    read = published(refresher, 0).query_params()
    assert jax.tree.structure(read) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, read, params)


def test_only_the_retriever_is_taken(start):
    refresher = start()
    refresher.publish(0, make_params(1) | {"joint": {"kernel": np.ones(3, np.float32)}})
    assert list(published(refresher, 0).query_params()) == ["retriever"]


def test_jax_arrays_may_be_published(start):
    refresher = start()
    refresher.publish(0, jax.tree.map(jax.numpy.asarray, make_params(1)))
    jax.tree.map(np.testing.assert_array_equal, published(refresher, 0).query_params(), make_params(1))


def test_numbers_and_steps_go_up_and_older_steps_are_refused(start):
    refresher = start()
    for number, step in enumerate((0, 10, 25)):
        refresher.publish(step, make_params(step))
        assert published(refresher, step).number == number
    with pytest.raises(StaleSnapshot, match="snapshot of step 20 .* step 25"):
        refresher.publish(20, make_params(20))
    with pytest.raises(StaleSnapshot, match="rewind"):
        refresher.publish(25, make_params(99))
    assert refresher.newest().step == 25


def test_the_same_snapshot_again_is_not_embedded_again(start):
    refresher = start()
    refresher.publish(0, make_params(1))
    published(refresher, 0)
    PACKED.clear()
    refresher.publish(0, make_params(1))
    assert published(refresher, 0).number == 0 and not PACKED


def test_another_index_config_is_refused_by_the_index(start):
    first = start()
    first.publish(0, make_params(1))
    published(first, 0)
    with pytest.raises(ValueError, match="found offset 0.0, wanted 0.5"):
        start(make_recipe(index=FakeIndex(0.5))).newest().searcher()


def failure(refresher, step, params):
    """The error of a publication that must fail: raised at once, at a later boundary, or told by the status."""
    try:
        refresher.publish(step, params)
        for boundary in range(step, step + 10_000):
            refresher.tick(boundary)
            if refresher.status()["last_error"]:
                return refresher.status()["last_error"]
            time.sleep(0.01)
    except ValueError as error:
        return str(error)
    raise AssertionError(refresher.status())


def test_vectors_that_are_not_finite_publish_nothing_and_name_the_block(start):
    refresher = start()
    refresher.publish(0, make_params(1))
    published(refresher, 0)
    bad = make_params(2)
    bad["retriever"]["words"][ODD] = np.nan
    assert "row 3 (block document-3:0)" in failure(refresher, 10, bad)
    assert refresher.newest().number == 0
    assert "document-3:0" in refresher.status()["last_error"]
    refresher.publish(20, make_params(3))
    assert published(refresher, 20).number == 1
    wait_until(lambda: refresher.status()["last_error"] is None)


def test_a_damaged_index_is_never_searched(start):
    refresher = start()
    refresher.publish(0, make_params(1))
    generation = published(refresher, 0)
    shard = generation.path / "shard-00001.npy"
    content = bytearray(shard.read_bytes())
    content[-3] ^= 16
    shard.write_bytes(content)
    with pytest.raises(GenerationCorrupt, match="shard-00001"):
        generation.searcher()


def test_a_generation_knows_when_its_parameters_were_handed_over_and_what_it_cost(start):
    refresher, before = start(), time.time()
    refresher.publish(0, make_params(1))
    generation = published(refresher, 0)
    assert before - 1.0 <= generation.taken <= generation.manifest["time"]
    status = refresher.status()
    assert status["peak_host_bytes"] > 1e6 and status["seconds_build"] > 0 and not status["hopeless"]


def test_adoption_is_logged_once_and_keeps_what_checkpoints_need(start, engine):
    refresher = start()
    for number in range(6):
        refresher.publish(10 * number, make_params(number))
        refresher.adopted(published(refresher, 10 * number), 10 * number + 1, kept={1} if number > 0 else set())
    refresher.adopted(refresher.newest(), 51, kept={1})
    events = refresher.store.log.events()
    adopted = [(e["generation"], e["generation_step"], e["step"]) for e in events if e["event"] == "adopted"]
    assert adopted == [(n, 10 * n, 10 * n + 1) for n in range(6)]
    assert [e["step"] for e in events if e["event"] == "published"] == [0, 10, 20, 30, 40, 50]
    # A checkpoint that names 1 may be of a step when 2 was being embedded between steps: its parameters are gone.
    wanted = [1, 2, 4, 5] if isinstance(engine, Interleave) else [1, 4, 5]
    wait_until(lambda: refresher.store.numbers() == wanted)
    assert refresher.open(1).step == 10
    with pytest.raises(GenerationMissing, match=r"4, 5\].*number 3"):
        refresher.open(3)
    status = refresher.status()
    assert (status["generations"], status["adopted"], status["adopted_step"]) == (len(wanted), 5, 50)
    assert status["blocks_per_second"] > 0


def test_a_new_refresher_on_the_folder_goes_on(start):
    first = start()
    first.publish(0, make_params(1))
    published(first, 0)
    first.close()
    with pytest.raises(RefresherClosed):
        first.publish(10, make_params(2))
    second = start()
    assert second.newest().number == 0
    second.publish(10, make_params(2))
    assert published(second, 10).number == 1


def test_resume_from_an_earlier_checkpoint_takes_finished_generations_back(start):
    first = start()
    for step in (0, 10, 20):
        first.publish(step, make_params(step))
        first.adopted(published(first, step), step, kept={0})
    whole = contents(first.newest().path)
    first.close()
    second = start()
    second.rewind(10)
    assert published(second, 10).number == 1
    assert [e["step"] for e in second.store.log.events()] == [0, 0, 10, 10]
    PACKED.clear()
    second.publish(10, make_params(10))
    second.publish(20, make_params(20))
    again = published(second, 20)
    assert again.number == 2 and not PACKED and contents(again.path) == whole
    assert second.store.log.events()[-1]["event"] == "published"


def test_resume_that_takes_another_course_makes_its_own_generations(start):
    first = start()
    for step in (0, 10, 20):
        first.publish(step, make_params(step))
        published(first, step)
    first.close()
    second = start()
    second.rewind(5)
    second.publish(10, make_params(77))
    made = published(second, 10)
    assert made.number == 1
    np.testing.assert_array_equal(
        made.query_params()["retriever"]["words"], make_params(77)["retriever"]["words"], strict=True
    )
    second.publish(20, make_params(20))  # same parameters, but the line of generations is another now
    assert published(second, 20).number == 2
    assert [e["step"] for e in second.store.log.events()] == [0, 10, 20]
    assert sorted(p.name for p in second.store.folder.iterdir()) == ["0-0", "1-10", "2-20"]


def test_a_run_killed_before_its_first_checkpoint_starts_over(start):
    first = start()
    for step in (0, 10):
        first.publish(step, make_params(step))
        published(first, step)
    second = start()
    second.rewind(-1)
    assert second.newest() is None and second.store.log.events() == []
    PACKED.clear()
    second.publish(0, make_params(0))
    assert published(second, 0).number == 0
    second.publish(10, make_params(10))
    assert published(second, 10).number == 1 and not PACKED


def test_a_rewind_to_later_undoes_an_earlier_one(start):
    refresher = start()
    for step in (0, 10, 20, 30):
        refresher.publish(step, make_params(step))
        published(refresher, step)
    refresher.rewind(5)
    assert refresher.store.numbers() == [0]
    refresher.rewind(25)
    assert [g.step for g in refresher.store.all()] == [0, 10, 20]
    assert [e["step"] for e in refresher.store.log.events()] == [0, 10, 20]


def test_due_is_the_schedule(start):
    assert [step for step in range(31) if start().due(step)] == [0, 10, 20, 30]
    assert [step for step in range(31) if start(schedule=Never()).due(step)] == [0]


def test_heartbeat_and_report(start, tmp_path):
    lines = []
    refresher = start(report=lines.append)
    refresher.publish(0, make_params(0))
    published(refresher, 0)
    wait_until(lambda: read_heartbeat(tmp_path / "run")["state"] == "idle")
    beat = read_heartbeat(tmp_path / "run")
    assert set(beat) == set("pid host state generation step progress dropped refused last_error time".split())
    assert (beat["state"], beat["generation"], beat["step"]) == ("idle", 0, 0)
    assert beat["progress"] == {"done": 23, "total": 23}
    assert any("generation 0 of step 0: 23 blocks x 5" in line and "blocks/s" in line for line in lines)
    refresher.close()
    refresher.close()
    assert read_heartbeat(tmp_path / "run")["state"] == "closed"


def test_an_objective_without_items_needs_no_engine():
    with pytest.raises(RecipeError, match="without a refresh engine"):
        make_recipe(objective=FakeObjective(items="nothing"))


@pytest.mark.parametrize("changes", [{"lengths": (16, 8)}, {"lengths": ()}, {"batch_rows": 0}, {"vector_dtype": "f8"}])
def test_recipes_that_cannot_be_followed(changes):
    with pytest.raises(RecipeError, match="found"):
        make_recipe(**changes)
