"""Training with asynchronous and delayed refreshes: replay, resume, ages, and an index that gets too old."""

import os
import signal
import threading
import time

import jax
import numpy as np
import pytest

from index_refresh.external import External
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule
from index_refresh.snapshot import SnapshotStore
from index_refresh.standalone import refresh_run
from index_refresh.store import GenerationStore
from index_refresh.sync import Sync
from realm.training.lookup import IndexTooOld, NoIndex
from realm.training.loop import train
from realm.training.metrics import read_metrics
from realm.training.optimizer import Optimizer, Rate
from realm.training.run_folder import RunFolder
from tests.training.jobs import STAGE, build_table, objective, same_bits, training


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def recipe_of(table, chosen):
    return Recipe(chosen, str(table.path), STAGE.refresh.index, shard_rows=64, batch_rows=16, lengths=(64,))


def run_on(engine, schedule, table, folder, existing="refuse", said=None, poison=False, **changes):
    """Trains the tiny realm stage with an engine; the retriever learns from step 0."""
    chosen, report = objective(), (lambda line: None) if said is None else said
    run = RunFolder(folder, existing)
    run.write_config({})
    optimizer = Optimizer(retriever=Rate(5e-3), joint=Rate(1e-3))
    settings = training(**{"optimizer": optimizer, "retrieve_ahead": 1, "log_every": 1} | changes)

    def init():
        params = chosen.init(jax.random.key(0))
        return jax.tree.map(lambda array: array * np.nan, params) if poison else params

    refresher = engine.start(recipe_of(table, chosen), parse_schedule(schedule), run.path, report=report)
    try:
        return train(chosen, table, settings, run, init=init, refresher=refresher, report=report)
    finally:
        refresher.close()


def adoptions(folder):
    events = read_metrics(folder / "generations.jsonl")
    return [(e["generation"], e["generation_step"], e["step"]) for e in events if e["event"] == "adopted"]


def events_of(folder, name):
    return [r for r in read_metrics(folder / "metrics.jsonl") if r.get("event") == name]


def steps_of(folder):
    return [r for r in read_metrics(folder / "metrics.jsonl") if "event" not in r]


def found_by(folder, table, number):
    """What generation `number` finds for some fixed questions: the first vectors of generation 0."""
    store = GenerationStore(folder, recipe_of(table, objective()))
    query_BE = next(iter(store.open(0).vectors()))
    return store.open(number).searcher().search(query_BE, 5).id_BK


class StopAt:
    """Asks the process to stop when it hears a text."""

    def __init__(self, text):
        self.text = text

    def __call__(self, line):
        if line.startswith(self.text):
            os.kill(os.getpid(), signal.SIGTERM)


class Patience:
    """A report that holds training up at some steps until there is a new generation: such steps outrun any child. At
    one step it asks the process to stop."""

    def __init__(self, folder, steps, stop):
        self.folder, self.lines, self.stop = folder, tuple(f"step {step}/" for step in steps), StopAt(f"step {stop}/")
        self.seen = 1

    def __call__(self, line):
        self.stop(line)
        if line.startswith(self.lines):
            end = time.monotonic() + 60
            while len(found := list(self.folder.glob("generations/[0-9]*"))) <= self.seen:
                assert time.monotonic() < end, "no generation came"
                time.sleep(0.02)
            self.seen = len(found)
            time.sleep(0.2)


def test_an_asynchronous_run_stopped_resumed_and_replayed_on_sync_has_the_same_bits(table, tmp_path):
    one, two, three = (tmp_path / name for name in ("process", "replayed", "unlike"))
    settings, child = {"steps": 14, "checkpoint_every": 20}, Process(keep=20, poll_seconds=0.02)
    patience = Patience(one, (3, 6, 9, 12), stop=7)
    assert run_on(child, "every 2", table, one, said=patience, **settings).stopped
    first = run_on(child, "every 2", table, one, existing="resume", said=patience, **settings)
    adopted = adoptions(one)
    assert len(adopted) >= 3 and adopted[0] == (0, 0, 0)
    assert any(step > made for _, made, step in adopted[1:])  # it was asynchronous
    again = run_on(Sync(keep=20), f"recorded {one / 'generations.jsonl'}", table, two, **settings)
    assert same_bits(first.params, again.params)
    assert adoptions(two) == adopted
    unlike = run_on(Sync(keep=20), "every 2", table, three, **settings)
    assert not same_bits(first.params, unlike.params)  # when an index is adopted does matter
    answers = [found_by(one, table, number) for number, _, _ in adopted]
    assert all(not np.array_equal(a, b) for a, b in zip(answers, answers[1:], strict=False))
    for (number, _, _), answer in zip(adopted, answers, strict=True):
        np.testing.assert_array_equal(found_by(two, table, number), answer)
    swaps = events_of(one, "swap")
    assert [(s["generation"], s["step"], s["document_age"]) for s in swaps] == [(g, s, s - m) for g, m, s in adopted]
    assert all(0 <= s["overlap@5"] <= 1 for s in swaps[1:]) and "overlap@5" not in swaps[0]
    assert all(s["blocks_per_second"] > 0 and s["peak_host_bytes"] > 1e6 for s in swaps)
    assert steps_of(one)[-1]["refresh_blocked_seconds"] == 0
    assert steps_of(two)[-1]["refresh_blocked_seconds"] > 0


def test_by_drift_the_index_is_refreshed_where_its_answers_have_changed_enough(table, tmp_path):
    # An untrained reader gives the retriever gradients of 1e-8: with BERT's eps it would hardly move.
    still = Optimizer(retriever=Rate(1e-2, start=4), joint=Rate(1e-3), eps=1e-12)
    run_on(Sync(keep=20), "drift 0 check 2", table, tmp_path, steps=11, optimizer=still, checkpoint_every=20)
    drift = {e["step"]: e["disagreement"] for e in events_of(tmp_path, "drift")}
    assert list(drift) == [2, 4, 6, 8, 10]
    assert drift[2] == drift[4] == 0.0 and max(drift.values()) > 0  # the retriever moves from step 4 on
    assert [step for _, _, step in adoptions(tmp_path)] == [0] + [s for s in drift if drift[s] > 0]


@pytest.mark.parametrize(
    ("engine", "schedule", "latency", "stops"),
    [
        (Sync(keep=1), "every 2 latency 5", 5, (5,)),  # two generations wait at a time
        (Interleave(batches=2, keep=1), "every 4", 2, (4,)),  # 4 shards of 64 rows, each one batch on these devices
    ],
    ids=["latency", "interleave"],
)
def test_a_delayed_refresh_resumed_anywhere_is_adopted_at_the_same_step(
    table, tmp_path, engine, schedule, latency, stops
):
    settings = {"steps": 11, "checkpoint_every": 20}
    straight = run_on(engine, schedule, table, tmp_path / "straight", **settings)
    adopted = adoptions(tmp_path / "straight")
    assert len(adopted) >= 3 and all(step == made + latency for _, made, step in adopted[1:])
    for stop in stops:
        folder = tmp_path / f"stopped-{stop}"
        run_on(engine, schedule, table, folder, said=StopAt(f"step {stop}/"), **settings)
        assert max(r["step"] for r in steps_of(folder)) < 11
        resumed = run_on(engine, schedule, table, folder, existing="resume", **settings)
        assert same_bits(straight.params, resumed.params)
        assert adoptions(folder) == adopted


class Job(threading.Thread):
    """A stand-alone refresher beside the trainer, from when there is a snapshot; `once`: it makes one generation."""

    def __init__(self, folder, recipe, once=False):
        super().__init__()
        self.folder, self.recipe, self.once, self.over = folder, recipe, once, threading.Event()

    def run(self):
        while not list(self.folder.glob("snapshots/*/params.safetensors")):
            if self.over.wait(0.02):
                return
        refresh_run(self.folder, self.recipe, report=len, poll=0.02, until_idle=self.once, stop=self.over.is_set)

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.over.set()
        self.join()


def test_an_index_that_gets_too_old_warns_at_half_and_stops_the_run(table, tmp_path):
    folder, recipe, engine = tmp_path / "run", recipe_of(table, objective()), External(max_age=4)
    settings = {"checkpoint_every": 20}
    too_old = "5 steps old at step 5, max_age is 4.*last error: none.*--resume"
    with pytest.raises(IndexTooOld, match=too_old), Job(folder, recipe, once=True):
        run_on(engine, "every 20", table, folder, steps=12, **settings)
    assert [r["step"] for r in events_of(folder, "warning") if "max_age" in r["text"]] == [3]
    with Job(folder, recipe):
        outcome = run_on(engine, "every 20", table, folder, existing="resume", steps=7, **settings)
    assert outcome.step == 7
    assert adoptions(folder) == [(0, 0, 0), (1, 5, 5)]  # resumed with too old an index, it began with a new one


def test_a_first_index_that_cannot_be_made_ends_the_run_with_its_reason(table, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(NoIndex, match="no index at step 0: .*NaN or infinity at row 0"):
        with Job(folder, recipe_of(table, objective())):
            run_on(External(), "every 2", table, folder, poison=True)


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_resume_goes_on_with_the_checkpoints_generation_where_the_newest_is_damaged(table, tmp_path):
    folder, recipe, said = tmp_path / "run", recipe_of(table, objective()), []
    settings = {"checkpoint_every": 20, "steps": 8}
    with Job(folder, recipe, once=True):
        run_on(External(), "every 20", table, folder, said=StopAt("step 4/"), **settings)
    SnapshotStore(folder).write(2, objective().init(jax.random.key(1)))
    refresh_run(folder, recipe, report=len, until_idle=True)
    flip_a_byte(next(folder.glob("generations/1-2/shard-00000.npy")))
    outcome = run_on(External(), "every 20", table, folder, existing="resume", said=said.append, **settings)
    assert outcome.step == 8 and adoptions(folder) == [(0, 0, 0)]
    assert sum("generation 1 is not used: GenerationCorrupt" in line for line in said) == 1


def test_a_resume_with_a_lowered_max_age_waits_for_an_index_that_is_young_enough(table, tmp_path):
    folder, recipe = tmp_path / "run", recipe_of(table, objective())
    with Job(folder, recipe, once=True):
        run_on(External(), "every 20", table, folder, said=StopAt("step 6/"), checkpoint_every=20, steps=8)
    SnapshotStore(folder).write(1, objective().init(jax.random.key(1)))
    refresh_run(folder, recipe, report=len, until_idle=True)  # published, and never adopted
    with Job(folder, recipe):
        engine = External(max_age=3)
        outcome = run_on(engine, "every 20", table, folder, existing="resume", checkpoint_every=20, steps=8)
    assert outcome.step == 8
    assert [(number, made) for number, made, _ in adoptions(folder)] == [(0, 0), (2, adoptions(folder)[-1][2])]


def full_disk(monkeypatch, *errors):
    """What the first snapshots meet that are written, None for room; the last of them is met for ever."""
    write, left = SnapshotStore.write, list(errors)

    def full(store, step, params):
        error = left.pop(0) if len(left) > 1 else left[0]
        if error is not None:
            raise error
        return write(store, step, params)

    monkeypatch.setattr("index_refresh.external.RETRY", 0.01)
    monkeypatch.setattr(SnapshotStore, "write", full)


def test_a_first_snapshot_that_is_never_written_ends_the_run_with_its_reason(table, tmp_path, monkeypatch):
    full_disk(monkeypatch, OSError(28, "No space left on device"))
    with pytest.raises(NoIndex, match="no index at step 0: snapshot not written: OSError.*No space left"):
        run_on(External(), "every 2", table, tmp_path / "run")


def test_drift_is_measured_again_after_a_snapshot_that_could_not_be_written(table, tmp_path, monkeypatch):
    folder, recipe, said = tmp_path / "run", recipe_of(table, objective()), []
    full_disk(monkeypatch, None, OSError(28, "No space left on device"), None)

    def say(line):
        said.append(line)
        if line.startswith("step "):
            time.sleep(0.3)  # such steps outrun no refresher

    with Job(folder, recipe):
        optimizer = Optimizer(retriever=Rate(5e-3), joint=Rate(1e-3))
        settings = {"steps": 14, "checkpoint_every": 20, "optimizer": optimizer}
        run_on(External(), "drift 0 check 2", table, folder, said=say, **settings)
    assert sum("No space left" in line for line in said) == 1
    moved = [e["step"] for e in events_of(folder, "drift") if e["disagreement"] > 0]
    assert len(moved) >= 2 and [number for number, _, _ in adoptions(folder)][:2] == [0, 1]
