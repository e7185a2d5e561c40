"""A child that dies, hangs, is orphaned or cannot start: told of, started again, and never in the way."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import pytest

from index_refresh.claim import Claim, RefresherTaken
from index_refresh.device import DeviceError, environment
from index_refresh.generation import verify
from index_refresh.heartbeat import read_heartbeat
from index_refresh.process import LOG, Process
from index_refresh.schedule import Every
from index_refresh.sync import Sync
from tests.index_refresh.refresh_engines import published, wait_until
from tests.index_refresh.refresh_fakes import FakeRecipe, contents, make_params, make_recipe

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path):
    running = []

    def go(recipe=None, said=None, **changes):
        engine = Process(**{"restart_seconds": 0.05, "poll_seconds": 0.02} | changes)
        report = (lambda line: None) if said is None else said.append
        running.append(engine.start(recipe or make_recipe(), Every(10), tmp_path / "run", report=report))
        return running[-1]

    yield go
    for refresher in running:
        refresher.close()


def shards_done(run):
    records = [json.loads(path.read_text()) for path in (run / "generations").glob(".staging-*.json")]
    return max((len(record["shards"]) for record in records), default=0)


def test_a_child_killed_half_way_is_named_started_again_and_goes_on(start, tmp_path):
    run, said = tmp_path / "run", []
    refresher = start(make_recipe(seconds=0.1), said)
    refresher.publish(0, make_params(0))
    wait_until(lambda: shards_done(run) == 1)
    first = run / "generations" / ".staging-0-0" / "shard-00000.npy"
    written = first.stat().st_mtime_ns
    os.kill(refresher.status()["pid"], signal.SIGKILL)
    generation = published(refresher, 0)
    verify(generation)
    assert (generation.path / "shard-00000.npy").stat().st_mtime_ns == written  # taken up, not done again
    assert refresher.status()["deaths"] == 1 and refresher.status()["hangs"] == 0
    (warning,) = [line for line in said if line.startswith("WARNING")]
    assert "SIGKILL" in warning and "of 23 blocks" in warning and "Training goes on" in warning
    refresher.publish(10, make_params(0))
    uninterrupted = published(refresher, 10)
    assert contents(uninterrupted.path) == contents(generation.path)


def test_a_hung_child_is_noticed_by_its_silence_and_replaced(start, tmp_path):
    said = []
    refresher = start(said=said)
    refresher.publish(0, make_params(0))
    published(refresher, 0)
    os.kill(refresher.status()["pid"], signal.SIGSTOP)
    refresher.other.config = Process(hang_seconds=0.5, restart_seconds=0.05)  # starting up takes longer than that
    refresher.publish(10, make_params(1))
    wait_until(lambda: refresher.tick(10) or refresher.status()["hangs"] == 1)
    refresher.other.config = Process(restart_seconds=0.05)
    assert published(refresher, 10).number == 1
    assert any("of silence" in line and "last error: none" in line for line in said)


ORPHAN = """
import sys
sys.path.insert(0, {root!r})
from tests.index_refresh.refresh_fakes import make_params, make_recipe
from index_refresh.process import Process
from index_refresh.schedule import Every
import time
refresher = Process().start(make_recipe(seconds=0.3), Every(10), {run!r}, report=lambda line: print(line, flush=True))
refresher.publish(0, make_params(0))
time.sleep(600)
"""


def test_an_orphan_dies_and_publishes_nothing(tmp_path):
    run = tmp_path / "run"
    script = ORPHAN.format(root=str(ROOT), run=str(run))
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: shards_done(run) == 1)
    with pytest.raises(RefresherTaken, match=str(trainer.pid)):
        Claim(run)
    child = read_heartbeat(run)["pid"]
    assert child != trainer.pid
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    Claim(run, seconds=20.0).release()  # free only when nobody holds the descriptor any more
    assert not Path(f"/proc/{child}").exists() or "(zombie)" in Path(f"/proc/{child}/status").read_text()
    assert not list((run / "generations").glob("0-*"))


def test_two_refreshers_on_one_folder_are_refused_in_two_processes(tmp_path):
    hold = f"from index_refresh.claim import Claim; Claim({str(tmp_path)!r}); print('held', flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", hold.replace("; Claim", "; claim = Claim")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RefresherTaken, match=f"{holder.pid}.*two refreshers"):
            Sync().start(make_recipe(), Every(10), tmp_path)
        holder.communicate("\n")
    Sync().start(make_recipe(), Every(10), tmp_path).close()


def test_within_one_process_the_later_refresher_takes_over(tmp_path):
    first = Sync().start(make_recipe(), Every(10), tmp_path)
    second = Sync().start(make_recipe(), Every(10), tmp_path)
    with pytest.raises(RefresherTaken, match="taken over"):
        first.publish(0, make_params(0))
    second.publish(0, make_params(0))
    first.close()
    second.publish(10, make_params(1))
    second.close()


def embedding(child, beat):
    return child.process is not None and (beat["pid"], beat["state"]) == (child.process.pid, "embedding")


def test_a_child_that_dies_over_the_same_generation_is_started_ever_later(start, tmp_path):
    """It shows the number it is making each time before it dies, as one that is killed for memory does."""
    said = []
    refresher = start(make_recipe(seconds=0.1), said)
    child, run = refresher.other, tmp_path / "run"
    refresher.publish(0, make_params(0))
    for deaths in (1, 2, 3):
        wait_until(lambda: child.check() or embedding(child, read_heartbeat(run)))
        child.check()
        child.process.kill()
        wait_until(lambda deaths=deaths: child.check() or child.deaths == deaths)
        assert child.failures == deaths
    published(refresher, 0)
    child.check()
    assert child.failures == 0


@dataclass(frozen=True)
class HereOnly(FakeRecipe):
    """Pickles in this process; a child finds no such class."""


def test_a_child_that_cannot_start_is_hopeless_after_three_deaths(start, monkeypatch):
    monkeypatch.setattr(HereOnly, "__module__", "no_such_module")
    monkeypatch.setitem(sys.modules, "no_such_module", sys.modules[__name__])
    base, said = make_recipe(), []
    refresher = start(HereOnly(base.objective, base.corpus, base.index, 10, 4, (8, 16)), said)
    refresher.publish(0, make_params(0))
    wait_until(lambda: refresher.tick(0) or refresher.status()["hopeless"])
    assert refresher.newest() is None and refresher.status()["deaths"] == 3
    assert any("exit code 1" in line and "no_such_module" in line for line in said)


def test_the_device_is_chosen_before_the_child_starts(start, tmp_path):
    refresher = start(cores=(min(os.sched_getaffinity(0)),))
    refresher.publish(0, make_params(0))
    published(refresher, 0)
    log = (tmp_path / "run" / LOG).read_text()
    assert "CpuDevice(id=0)" in log and f"processors [{min(os.sched_getaffinity(0))}]" in log


@pytest.mark.parametrize(
    ("device", "given", "platform", "visible", "fraction"),
    [
        ("cpu", {"CUDA_VISIBLE_DEVICES": "3"}, "cpu", "", None),
        ("gpu:1", {}, "cuda", "1", None),
        ("gpu:1", {"CUDA_VISIBLE_DEVICES": "4,7"}, "cuda", "7", None),
        ("gpu:0:0.25", {}, "cuda", "0", "0.25"),
    ],
)
def test_the_environment_of_a_device(device, given, platform, visible, fraction):
    found = environment(device, {"HOME": "/root"} | given)
    assert (found["JAX_PLATFORMS"], found["CUDA_VISIBLE_DEVICES"], found["HOME"]) == (platform, visible, "/root")
    assert found.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == fraction


IMPOSSIBLE = [("device", "tpu:0"), ("device", "gpu"), ("device", "gpu:0:3"), ("cores", ()), ("cores", (100_000,))]
IMPOSSIBLE += [("keep", 0), ("max_age", 0), ("hang_seconds", 0), ("restart_seconds", 0)]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_what_no_child_could_be_given(name, value):
    with pytest.raises(ValueError, match="found"):
        Process(**{name: value})


def test_more_gpus_than_are_visible():
    with pytest.raises(DeviceError, match="leaves no GPU 2"):
        environment("gpu:2", {"CUDA_VISIBLE_DEVICES": "4,7"})


def test_on_tpu_it_is_refused_with_the_ways_that_work(tmp_path, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    with pytest.raises(DeviceError, match="one process owns the chips.*interleave.*realm refresh"):
        Process().start(make_recipe(), Every(10), tmp_path)


def test_publishing_does_not_wait_for_the_child(start):
    refresher = start(make_recipe(seconds=0.5))
    for step in (0, 10, 20, 30):
        refresher.publish(step, make_params(step))
    assert refresher.newest() is None and refresher.status()["published"] == 4
