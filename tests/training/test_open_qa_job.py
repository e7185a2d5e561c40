"""Question answering in the loop: blocks stay frozen, resume is exact, devices and microbatches agree."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.models.tree_hash import tree_hash
from tests.objectives.open_qa_driver import facts_world
from tests.training.jobs import run_job, same_bits, training

WATCH = replace(training().watch, blocks=4)


def job(folder, *, schedule="never", existing="refuse", changes=(), **settings):
    world, _ = facts_world(**dict(changes))
    chosen = training(batch_size=8, log_every=1, watch=WATCH, **settings)
    return world, run_job(
        world.table, folder, existing=existing, objective=world.objective, schedule=schedule, training=chosen
    )


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


IN_BATCH = {"vectors": "batch", "train_documents": True, "read_in_training": 1}


@pytest.mark.parametrize("ahead", [0, 1])
def test_blocks_stay_frozen_and_a_resumed_run_ends_in_the_same_bits(tmp_path, ahead):
    world, whole = job(tmp_path / "whole", retrieve_ahead=ahead)
    start = world.objective.init(jax.random.key(0))
    assert tree_hash(world.objective.frozen(whole.params)) == tree_hash(world.objective.frozen(start))
    assert tree_hash(whole.params["retriever"]["query"]) != tree_hash(start["retriever"]["query"])
    last = [record for record in records(tmp_path / "whole") if "event" not in record][-1]
    assert {"no_correct_block", "no_correct_span", "rate/retriever/query", "rate/joint"} <= last.keys()
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "8")  # killed after step 6
    _, again = job(tmp_path / "killed", existing="resume", retrieve_ahead=ahead)
    assert again.step == 8 and same_bits(again.params, whole.params)


def test_in_batch_training_resumes_in_the_same_bits(tmp_path):
    """With a search that runs ahead, and an index that is made anew."""
    settings = {"schedule": "every 3", "changes": IN_BATCH, "retrieve_ahead": 1}
    _, whole = job(tmp_path / "whole", **settings)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "8")
    _, again = job(tmp_path / "killed", existing="resume", **settings)
    assert again.step == 8 and same_bits(again.params, whole.params)


@pytest.mark.parametrize("changes", [{}, IN_BATCH])
def test_devices_and_microbatches_agree(tmp_path, changes):
    _, one = job(tmp_path / "one", steps=2, devices=1, changes=changes)
    for name, settings in (("four", {"devices": 4}), ("micro", {"devices": 1, "accumulate": 2})):
        _, other = job(tmp_path / name, steps=2, changes=changes, **settings)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), one.params, other.params)


def test_blocks_that_train_are_embedded_anew(tmp_path):
    changes = {"vectors": "blocks", "train_documents": True}
    world, outcome = job(tmp_path / "run", schedule="every 3", changes=changes)
    start = world.objective.init(jax.random.key(0))
    assert tree_hash(outcome.params["retriever"]["block"]) != tree_hash(start["retriever"]["block"])
    assert len([record for record in records(tmp_path / "run") if record.get("event") == "swap"]) == 3


def test_blocks_are_chosen_by_the_towers_as_they_are_among_more_than_the_beam(tmp_path):
    changes = {"vectors": "blocks", "train_documents": True, "beam": 4}
    _, outcome = job(tmp_path / "run", changes=changes, rerank=8, steps=2)
    assert outcome.step == 2
