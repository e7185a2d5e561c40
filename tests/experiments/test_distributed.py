"""Two processes train one model: they go over to the same index at the same step, stop together, and never wait for
the refresher; what they learn is what one process with two devices learns from the same indexes."""

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from experiments.config import to_json
from experiments.presets.tiny import preset
from index_refresh.external import External
from index_refresh.process import Process
from index_refresh.sync import Sync
from realm.training.checkpoint import restore_params
from realm.training.metrics import read_metrics
from realm.training.optimizer import Optimizer, Rate
from tests.conftest import CACHE

STEPS = 80


def written(path, engine, schedule, **changes):
    """The realm stage of the tiny preset alone, on all devices; written to `path`."""
    tiny = preset()
    # A large eps: rounding noise in a gradient near zero would become full-sized steps otherwise.
    optimizer = Optimizer(retriever=Rate(1e-3), joint=Rate(1e-3), eps=1e-3)
    training = dataclasses.replace(tiny.realm.training, optimizer=optimizer, devices=None, steps=STEPS, log_every=1)
    training = dataclasses.replace(training, **({"checkpoint_every": 40} | changes))
    refresh = dataclasses.replace(tiny.realm.refresh, schedule=schedule, engine=engine)
    stage = dataclasses.replace(tiny.realm, training=training, refresh=refresh, warm_start={})
    chosen = dataclasses.replace(tiny, mlm=None, ict=None, realm=stage, max_questions=20)
    path.write_text(json.dumps(to_json(chosen)), encoding="utf-8")
    return path


def written_after_read(path):
    """A frozen retriever's stage, and one that begins with its index; written to `path`."""
    written(path, Process(keep=1000), "never", steps=3, checkpoint_every=3)
    one = json.loads(path.read_text(encoding="utf-8"))
    read = one["realm"] | {"training": one["realm"]["training"] | {"optimizer": to_json(Optimizer(Rate(start=10**6)))}}
    one |= {"read": read, "realm": one["realm"] | {"warm_start": {"retriever": "read", "joint": "read"}}}
    path.write_text(json.dumps(one), encoding="utf-8")
    return path


def run(*arguments, devices=1):
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
    }
    command = [sys.executable, "-m", "experiments.cli", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_both(path, out, *more):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    common = ("pretrain", path, "--out", out, *more, "--distributed")
    return [run(*common, f"{address},{index}/2") for index in range(2)]


def ended(processes, code):
    said = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), "\n\n".join(said)[-6000:]
    return said


def logs(out):
    """metrics.jsonl of both processes."""
    return [read_metrics(out / "realm" / part / "metrics.jsonl") for part in (".", "processes/1")]


def swaps(log):
    return [(r["step"], r["generation"]) for r in log if r.get("event") == "swap"]


def wait_for(what, seconds=120.0):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def lines_in(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def stopped_and_resumed(tmp_path_factory):
    """Two processes of which the second is told to stop after some steps; both are started again and finish."""
    folder = tmp_path_factory.mktemp("two")
    path, out = written(folder / "two.json", Process(keep=1000), "every 10"), folder / "job"
    both = start_both(path, out)
    wait_for(lambda: lines_in(out / "realm/processes/1/metrics.jsonl") > 25 or both[1].poll() is not None)
    both[1].send_signal(signal.SIGTERM)
    ended(both, 128 + signal.SIGTERM)
    before = logs(out)
    ended(start_both(path, out, "--resume"), 0)
    return out, before


def test_a_signal_to_one_process_stops_all_at_one_step_and_the_job_goes_on(stopped_and_resumed):
    out, before = stopped_and_resumed
    last = [[r["step"] for r in log if "loss" in r][-1] for log in before]
    assert last[0] == last[1] < STEPS
    for log in logs(out):
        assert [r["step"] for r in log if "loss" in r] == list(range(1, STEPS + 1))


def test_all_processes_search_the_same_generation_at_every_step(stopped_and_resumed):
    leader, other = logs(stopped_and_resumed[0])
    assert len(swaps(leader)) >= 2
    assert swaps(leader) == swaps(other)
    for one, two in zip(leader, other, strict=True):
        if "loss" in one:
            assert (one["generation"], one["loss"]) == (two["generation"], two["loss"])
            assert one["refresh_blocked_seconds"] == 0


def test_two_processes_learn_what_one_with_two_devices_learns(stopped_and_resumed, tmp_path):
    out, _ = stopped_and_resumed
    recorded = f"recorded {out / 'realm/generations.jsonl'}"
    path = written(tmp_path / "one.json", Sync(keep=1000), recorded)
    ended([run("pretrain", path, "--out", tmp_path / "job", devices=2)], 0)
    found, wanted = (restore_params(job / "realm/checkpoints")[0] for job in (out, tmp_path / "job"))
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5)


def test_the_index_of_a_frozen_retriever_is_taken_over_by_the_leader_while_the_others_wait(tmp_path):
    said = ended(start_both(written_after_read(tmp_path / "two.json"), tmp_path / "job"), 0)
    assert f"realm          index taken over from {tmp_path / 'job' / 'read'}" in said[0]
    assert swaps(logs(tmp_path / "job")[1])[0] == (0, 0)


def test_a_refresher_that_sleeps_holds_nobody_up_until_the_index_is_too_old(tmp_path):
    path = written(tmp_path / "old.json", External(keep=1000, max_age=12), "every 4", steps=24)
    out = tmp_path / "job"
    both = start_both(path, out)
    wait_for(lambda: (out / "realm/snapshots").is_dir() and any((out / "realm/snapshots").iterdir()))
    refresher = run("refresh", out / "realm")
    wait_for(lambda: (out / "realm/generations").is_dir() and any((out / "realm/generations").glob("0-*")))
    refresher.send_signal(signal.SIGSTOP)
    said = ended(both, 1)
    assert all("max_age is 12" in one for one in said)
    assert "WARNING generation 0 is 7 steps old" in said[0]
    for log in logs(out):
        assert [r["document_age"] for r in log if "loss" in r] == list(range(13))
    refresher.send_signal(signal.SIGCONT)
    both = start_both(path, out, "--resume")
    ended(both, 0)
    refresher.terminate()
    refresher.communicate()
    leader, other = logs(out)
    assert swaps(leader) == swaps(other)
    made = [r["generation_step"] for r in read_metrics(out / "realm/generations.jsonl") if r["event"] == "adopted"]
    assert made[1] >= 12, "the newest snapshot of those that were published while it slept, not the oldest"


@pytest.mark.parametrize("place", ["auto-matic", "localhost,0/2", "localhost:7000,2/2", "localhost:7000,0"])
def test_a_place_that_is_none_is_refused(place, tmp_path):
    assert "wanted auto, or HOST:PORT,INDEX/COUNT" in ended([run("pretrain", "tiny", "--distributed", place)], 2)[0]


def test_an_engine_that_would_hold_the_others_up_is_refused(tmp_path):
    path = written(tmp_path / "sync.json", Sync(), "every 8")
    processes = start_both(path, tmp_path / "job")
    assert "wanted Process, External or Ray" in processes[0].communicate(timeout=240)[0]
    processes[1].communicate(timeout=240)
    assert processes[0].returncode == 1 and processes[1].returncode != 0
