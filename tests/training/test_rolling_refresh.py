"""Training over a rolling index: exact on the engines that are, resumed anywhere, and its ages in the log."""

import dataclasses
import os
import signal

import jax
import pytest

from index_refresh.interleave import Interleave
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule, slices_of
from index_refresh.sync import Sync
from realm.training.loop import train
from realm.training.metrics import read_metrics
from realm.training.optimizer import Optimizer, Rate
from realm.training.run_folder import RunFolder
from tests.training.jobs import STAGE, build_table, objective, same_bits, training

SLICES = 4


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def run_on(engine, schedule, table, folder, existing="refuse", said=lambda line: None):
    """Eight steps of the tiny realm stage, whose retriever learns from step 0."""
    chosen, read = objective(), parse_schedule(schedule)
    slices, rebuild = slices_of(read)
    recipe = Recipe(chosen, str(table.path), STAGE.refresh.index, shard_rows=table.indexed // SLICES, batch_rows=16)
    recipe = dataclasses.replace(recipe, lengths=(64,), slices=slices, rebuild=rebuild)
    run = RunFolder(folder, existing)
    run.write_config({})
    settings = training(
        optimizer=Optimizer(retriever=Rate(5e-3), joint=Rate(1e-3)),
        retrieve_ahead=1,
        log_every=1,
        steps=8,
        checkpoint_every=20,
    )
    refresher = engine.start(recipe, read, run.path, report=said)
    try:
        init = lambda: chosen.init(jax.random.key(0))  # noqa: E731
        return train(chosen, table, settings, run, init=init, refresher=refresher, report=said)
    finally:
        refresher.close()


def steps_of(folder):
    return [r for r in read_metrics(folder / "metrics.jsonl") if "event" not in r]


def adoptions(folder):
    events = read_metrics(folder / "generations.jsonl")
    return [(e["generation"], e["generation_step"], e["step"]) for e in events if e["event"] == "adopted"]


def stop_at(text):
    def hear(line):
        if line.startswith(text):
            os.kill(os.getpid(), signal.SIGTERM)

    return hear


@pytest.mark.parametrize(
    ("engine", "schedule", "stop"),
    [
        (Sync(keep=1), f"rolling {SLICES} every 2 latency 3", 4),
        (Interleave(batches=1, keep=1), f"rolling {SLICES} every 2", 4),
    ],
    ids=["sync", "interleave"],
)
def test_stopped_and_resumed_or_replayed_a_rolling_run_has_the_same_bits(table, tmp_path, engine, schedule, stop):
    straight, folder = run_on(engine, schedule, table, tmp_path / "straight"), tmp_path / "stopped"
    adopted = adoptions(tmp_path / "straight")
    assert len(adopted) >= 3
    assert run_on(engine, schedule, table, folder, said=stop_at(f"step {stop}/")).stopped
    resumed = run_on(engine, schedule, table, folder, existing="resume")
    assert same_bits(straight.params, resumed.params) and adoptions(folder) == adopted
    recording = f"recorded {tmp_path / 'straight' / 'generations.jsonl'}"
    replayed = run_on(Sync(keep=9), recording, table, tmp_path / "replayed")
    assert same_bits(straight.params, replayed.params) and adoptions(tmp_path / "replayed") == adopted


def test_the_log_tells_how_old_the_documents_are_and_which_rows_are_renewed_matters(table, tmp_path):
    rolling = run_on(Sync(), f"rolling {SLICES} every 2", table, tmp_path / "rolling")
    whole = run_on(Sync(), "every 2", table, tmp_path / "whole")
    assert not same_bits(rolling.params, whole.params)
    last = steps_of(tmp_path / "rolling")[-1]  # candidates asked for ahead: of the generation of step 6
    assert last["document_age"] == last["document_age_min"] == 1
    assert last["document_age_max"] == 7 and 1 < last["document_age_mean"] < 7
    assert "document_age_max" not in steps_of(tmp_path / "whole")[-1]
