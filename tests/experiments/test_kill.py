"""Kill -9 at random steps, resume, and compare every bit with the run that nobody killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments.locate import open_run
from index_refresh.recipe import Recipe
from index_refresh.store import GenerationStore
from realm.training.checkpoint import restore_params
from tests.conftest import CACHE
from tests.training.jobs import flip_one_bit, same_bits

COMMAND = [sys.executable, "-m", "experiments.cli", "pretrain", "tiny", "--max-questions", "20"]


def start(folder, *more):
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(CACHE), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [*COMMAND, "--out", str(folder), *more],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder, *more):
    process = start(folder, *more)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said[-2000:]


def kill_at(folder, stage, line, *more):
    """Kills the job as soon as the metrics of `stage` have `line` lines."""
    process = start(folder, *more)
    metrics = folder / stage / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= line:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.005)
    process.stderr.close()
    assert process.wait() == -signal.SIGKILL, "the job ended before it could be killed"


def retrieved(run, number):
    """What generation `number` finds for its own first vectors."""
    refresh = run.stage.refresh
    recipe = Recipe(
        run.stage.objective,
        str(run.table.path),
        refresh.index,
        refresh.shard_rows,
        refresh.batch_rows,
        refresh.block_lengths,
    )
    store = GenerationStore(run.folder, recipe)
    query_BE = next(iter(store.open(0).vectors()))[:20]
    return store.open(number).searcher().search(query_BE, 5).id_BK


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    whole, killed = tmp_path_factory.mktemp("whole") / "job", tmp_path_factory.mktemp("killed") / "job"
    finish(whole)
    chance = random.Random(20)
    kill_at(killed, "ict", chance.randint(1, 3))
    kill_at(killed, "realm", chance.randint(2, 5), "--resume")
    kill_at(killed, "realm", chance.randint(7, 9), "--resume")
    finish(killed, "--resume")
    return whole, killed


@pytest.mark.parametrize("stage", ["mlm", "ict", "realm"])
def test_killed_and_resumed_ends_in_the_same_bits(jobs, stage):
    whole, killed = (restore_params(job / stage / "checkpoints") for job in jobs)
    assert whole[1] == killed[1]
    assert same_bits(whole[0], killed[0])
    assert not same_bits(whole[0], flip_one_bit(killed[0]))


def test_every_generation_is_the_same_and_they_differ_from_one_another(jobs):
    shards = [
        {
            path.parent.name: path.read_bytes()
            for path in sorted((job / "realm" / "generations").glob("*/shard-00000.npy"))
        }
        for job in jobs
    ]
    assert shards[0] == shards[1] and len(shards[0]) == 3
    assert len(set(shards[0].values())) == 3
    runs = [open_run(job / "realm") for job in jobs]
    found = [[retrieved(run, number) for number in (0, 1, 2)] for run in runs]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
    assert not np.array_equal(found[0][0], found[0][2])


def test_parameters_move_and_the_log_has_every_step_once(jobs):
    first, _ = restore_params(jobs[0] / "realm" / "checkpoints", 4)
    last, _ = restore_params(jobs[0] / "realm" / "checkpoints", 16)
    assert not same_bits(first["retriever"], last["retriever"]) and not same_bits(first["joint"], last["joint"])
    lines = [json.loads(line) for line in (jobs[1] / "realm" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in lines if "event" not in r] == list(range(2, 17, 2))


def test_both_summaries_report_the_same_results(jobs):
    whole, killed = (json.loads((job / "summary.json").read_text()) for job in jobs)
    for name in ("recall", "generations", "masked_words"):
        assert whole[name] == killed[name]
