"""`realm bench overlap` on a tiny corpus: every run trains, the refresher works beside one of them, nothing queues."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import pytest

from experiments import bench_overlap as room
from experiments import bench_overlap_run
from experiments.bench_overlap import BenchOverlap, OverlapError, bench_overlap
from experiments.bench_overlap_run import run
from experiments.presets import facts
from index_refresh.external import TrainerSide
from index_refresh.process import Process
from index_refresh.sync import silent
from tests.index_refresh.refresh_engines import Thread


@dataclass(frozen=True)
class Beside(Process):
    """Process with its worker in a thread: three children would each start an interpreter and jax."""

    def start(self, recipe, schedule, folder, *, report=silent):
        return TrainerSide(self, recipe, schedule, folder, report, Thread(recipe, Path(folder)), "process")


def small():
    """The preset of the benchmark with one padded length and narrow towers, so that little is compiled."""
    whole = facts.preset()
    objective = whole.realm.objective
    narrow = {
        part: replace(encoder, bert=replace(encoder.bert, width=16, heads=2, feedforward=32, layers=1))
        for part, encoder in (("retriever", objective.retriever), ("joint", objective.joint))
    }
    objective = replace(objective, batch_lengths=(32,), block_lengths=(48,), candidates=2, **narrow)
    refresh = replace(whole.realm.refresh, block_lengths=(48,))
    training = replace(whole.realm.training, devices=1)
    return replace(whole, realm=replace(whole.realm, objective=objective, refresh=refresh, training=training))


@pytest.fixture
def here(monkeypatch):
    """The runs in this process, which has its jax already, and the refresher in a thread beside them."""
    cores, specs = os.sched_getaffinity(0), []
    settings = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in settings}

    def in_process(spec, name, report):
        specs.append((name, spec))
        os.sched_setaffinity(0, cores)
        return json.loads(json.dumps(run(spec)))

    chosen = small()
    monkeypatch.setattr(facts, "preset", lambda: chosen)
    monkeypatch.setattr(room, "_run", in_process)
    monkeypatch.setattr(bench_overlap_run, "Process", Beside)
    yield specs
    os.sched_setaffinity(0, cores)
    for name, value in before.items():
        jax.config.update(name, value)


def test_three_runs_one_of_them_beside_a_refresher(here, tmp_path, capsys):
    lines = []
    given = BenchOverlap(blocks=200, generations=1, intervals=2.0, steps_alone=3, batch=8, index="exact", work=tmp_path)
    found = bench_overlap(given, lines.append)
    assert [name for name, _ in here] == list(room.RUNS)
    assert here[1][1]["schedule"] == f"every {found['interval']}" and here[0][1]["schedule"] == "never"
    for name in room.RUNS:
        one = found[name]
        assert one["steps"] == len(one["age_at"]) and 0 < one["median_seconds"] <= one["slowest_seconds"]
        assert one["ages"]["blocked_seconds"] == 0.0
        # At most the one being embedded, the newest, and one that is being replaced by it.
        assert one["waiting_snapshots"] <= 3
    assert found["alone"]["ages"]["generations"] == 1 and found["alone"]["published"] == 1
    assert found["beside"]["published"] > 1
    assert [age for _, age in found["alone"]["age_at"]] == [0, 1, 2]
    assert found["slowdown"]["median"] > 0 and "times as long" in lines[-1]
    assert "published, dropped, most there" in capsys.readouterr().out


def test_the_interval_makes_a_refresh_outlast_several():
    alone = {"swaps": [{"refresh_seconds": 30.0}], "median_seconds": 0.1}
    interval, steps = room._pace(alone, BenchOverlap(intervals=3.0, generations=2))
    assert interval == 100 and steps > 2 * 300 + interval
    assert room._pace({"swaps": [{"refresh_seconds": 0.01}], "median_seconds": 1.0}, BenchOverlap())[0] == 1


def test_what_cannot_be_measured_is_refused(tmp_path):
    with pytest.raises(OverlapError, match="wanted 1 or more generations"):
        bench_overlap(BenchOverlap(generations=0, work=tmp_path))
    with pytest.raises(OverlapError, match=r"found cores .*99"):
        bench_overlap(BenchOverlap(trainer_cores=(99,), work=tmp_path))
    with pytest.raises(OverlapError, match="the run 'alone' ended with exit code 1: .*KeyError"):
        room._run({}, "alone", print)
