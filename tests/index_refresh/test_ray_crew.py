"""Embedding and building by actors, over a stand-in for Ray that runs them in threads: who does what, and what if."""

import pickle
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager

import numpy as np
import pytest

from index_refresh import ray_crew
from index_refresh.build import make_generation
from index_refresh.embed import EmbedError
from index_refresh.generation import verify
from index_refresh.ray_engine import OnRay, Ray, RayMissing
from index_refresh.schedule import Every
from index_refresh.store import GenerationStore
from tests.index_refresh.refresh_fakes import ODD, contents, make_params, make_recipe


class Method:
    def __init__(self, actor, name):
        self.actor, self.name = actor, name

    def remote(self, *values):
        self.actor.called.append((self.name, *values))
        if self.actor.lost(self.name):
            return Future()  # never to be answered
        thread = self.actor.pulse_thread if self.name == "pulse" else self.actor.thread
        return thread.submit(lambda: getattr(self.actor.hand.result(), self.name)(*values))


class Actor:
    """An instance in a thread of its own, and one more for `pulse`."""

    def __init__(self, kind, task, lost):
        self.thread, self.pulse_thread = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.lost, self.called = lost, []
        self.hand = self.thread.submit(kind, task)

    def __getattr__(self, name):
        return Method(self, name)


class StandIn:
    """As much of the module `ray` as the crew uses. lost(number of the actor, method): its answer never comes."""

    def __init__(self, lost=lambda number, method: False):
        self.lost, self.actors, self.killed, self.options_given = lost, [], [], []

    def remote(self, kind):
        ray = self

        class Kind:
            def options(self, **options):
                ray.options_given.append(options)
                return self

            def remote(self, task):
                number = len(ray.actors)
                ray.actors.append(Actor(kind, task, lambda method: ray.lost(number, method)))
                return ray.actors[-1]

        return Kind()

    def wait(self, refs, num_returns=1, timeout=None):
        done, rest = wait_for(refs, timeout, FIRST_COMPLETED)
        return list(done)[:num_returns], list(rest)

    def get(self, ref):
        return ref.result()

    def kill(self, actor):
        self.killed.append(actor)


class OnStandIn(OnRay):
    def __init__(self, config, ray):
        super().__init__(config)
        self.ray = ray

    @contextmanager
    def _cluster(self):
        yield self.ray


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(ray_crew, "PULSE", 0.02)
    monkeypatch.setattr(ray_crew, "LOST", 0.3)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # an actor sets it for its process, which here is the test's


def generation(folder, params=None, ray=None, actors=2, recipe=None, tick=lambda *_: None):
    """Of three shards, by a crew or, without one, by this process."""
    hands = None if ray is None else OnStandIn(Ray(actors=actors), ray)
    store = GenerationStore(folder, recipe or make_recipe())
    return make_generation(store, 0, params or make_params(0), tick, hands=hands)


def embedded(ray):
    return sorted(call[1] for actor in ray.actors for call in actor.called if call[0] == "embed")


SHARDS = ["shard-00000.npy", "shard-00001.npy", "shard-00002.npy"]


def test_a_crew_makes_the_same_generation(tmp_path):
    ray, seen = StandIn(), []
    made = generation(tmp_path / "crew", ray=ray, tick=lambda *told: seen.append(told))
    verify(made)
    assert contents(made.path) == contents(generation(tmp_path / "alone").path)
    assert embedded(ray) == SHARDS and len(ray.actors) == 3  # two that embed, one that builds
    assert ray.killed == ray.actors
    assert made.manifest["peak_host_bytes"] > 1e6
    assert seen[-1] == ("building", 23, 23) and ("embedding", 23, 23) in seen


def test_an_actor_that_is_lost_is_not_waited_for(tmp_path):
    """The first one to get a shard never answers again: the other one makes that shard too."""
    victim = []

    def lost(number, method):
        if method == "embed" and not victim:
            victim.append(number)
        return victim == [number] and method in ("embed", "pulse")

    ray = StandIn(lost)
    made = generation(tmp_path / "crew", ray=ray)
    assert len(embedded(ray)) == 4 and sorted(set(embedded(ray))) == SHARDS
    assert contents(made.path) == contents(generation(tmp_path / "alone").path)


def test_an_actor_that_never_starts_gets_no_shard(tmp_path):
    ray = StandIn(lambda number, method: number == 0)
    made = generation(tmp_path / "crew", ray=ray)
    assert [call[0] for call in ray.actors[0].called] == ["ready"] and embedded(ray) == SHARDS
    verify(made)


def test_a_finished_shard_is_taken_over_by_the_next_crew(tmp_path):
    class Enough(Exception):
        pass

    def tick(phase, done, total):
        if done >= 10:
            raise Enough

    with pytest.raises(Enough):
        generation(tmp_path / "crew", ray=StandIn(), actors=1, tick=tick)
    ray = StandIn()
    made = generation(tmp_path / "crew", ray=ray)
    assert embedded(ray) == SHARDS[1:]
    assert contents(made.path) == contents(generation(tmp_path / "alone").path)


def test_bad_vectors_are_named_as_anywhere_else(tmp_path):
    bad = make_params(0)
    bad["retriever"]["words"][ODD] = np.nan
    with pytest.raises(EmbedError, match=r"row 3 \(block document-3:0\)"):
        generation(tmp_path, bad, StandIn())


def test_what_dead_actors_left_is_not_published(tmp_path):
    def tick(phase, done, total):
        if phase == "embedding":
            (draft := tmp_path / "generations" / ".staging-0-0").mkdir(parents=True, exist_ok=True)
            (draft / ".shard-00001.npy.4711.aside").write_bytes(b"half")
            (draft / ".index-4711").mkdir(exist_ok=True)

    made = generation(tmp_path, ray=StandIn(), tick=tick)
    assert sorted(path.name for path in made.path.iterdir()) == [
        "encoder.safetensors",
        "index",
        "manifest.json",
        *SHARDS,
    ]


def test_what_actors_get_of_their_nodes(tmp_path):
    ray, config = StandIn(), Ray(shard_cpus=3, shard_gpus=0.5, build_cpus=7, build_resources={"big": 1})
    assert pickle.loads(pickle.dumps(config)) == config
    make_generation(GenerationStore(tmp_path, make_recipe()), 0, make_params(0), print, hands=OnStandIn(config, ray))
    embeds, builds = ray.options_given
    assert (embeds["num_cpus"], embeds["num_gpus"], embeds["max_restarts"]) == (3, 0.5, -1)
    assert (builds["num_cpus"], builds["resources"], builds["max_task_retries"]) == (7, {"big": 1}, -1)


@pytest.mark.parametrize("change", [{"actors": 0}, {"shard_cpus": -1}, {"hang_seconds": 0}, {"keep": 0}])
def test_what_no_cluster_could_be_asked_for(change):
    with pytest.raises(ValueError, match="found"):
        Ray(**change)


def test_without_the_package_it_says_what_to_type(tmp_path, monkeypatch):
    monkeypatch.setattr("index_refresh.ray_engine.find_spec", lambda name: None)
    with pytest.raises(RayMissing, match="pip install"):
        Ray().start(make_recipe(), Every(10), tmp_path)
