"""The `ray` engine on a real cluster of two nodes on this host, one of which is killed while it embeds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from index_refresh.build import make_generation
from index_refresh.generation import verify
from index_refresh.heartbeat import read_heartbeat
from index_refresh.store import GenerationStore
from tests.index_refresh.refresh_fakes import contents, make_params, make_recipe

ROOT = Path(__file__).parents[2]
# A process of its own: Ray leaves threads and warnings in the one that starts its nodes.
SCRIPT = """
import json, sys, time
sys.path.insert(0, {root!r})
from ray.cluster_utils import Cluster
small = {{"num_cpus": 1, "object_store_memory": 80_000_000}}
cluster = Cluster(initialize_head=True, head_node_args=small | {{"include_dashboard": False}})
second = cluster.add_node(**small)

from tests.index_refresh.refresh_engines import wait_until
from tests.index_refresh.refresh_fakes import make_params, make_recipe
from index_refresh.ray_engine import Ray
from index_refresh.schedule import Every

said = []
engine = Ray(address=cluster.address, actors=2, poll_seconds=0.05, restart_seconds=0.1)
trainer = engine.start(make_recipe("rows=90", seconds=0.4), Every(10), {run!r}, report=said.append)
trainer.publish(0, make_params(0))

def shards():
    record = trainer.store.folder / ".staging-0-0.json"
    return len(json.loads(record.read_text())["shards"]) if record.exists() else 0

wait_until(lambda: trainer.tick(0) or shards() >= 3, 240)
cluster.remove_node(second, allow_graceful=False)
at_the_kill = shards()
wait_until(lambda: trainer.tick(1) or trainer.newest() is not None, 240)
status = trainer.status()
trainer.close()
cluster.shutdown()
print("RESULT", json.dumps({{"shards": at_the_kill, "status": status, "said": said}}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    run = tmp_path_factory.mktemp("ray") / "run"
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "JAX_PLATFORMS": "cpu"}
    script = SCRIPT.format(root=str(ROOT), run=str(run))
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout[-2000:] + done.stderr[-4000:]
    return run, json.loads(lines[0].removeprefix("RESULT"))


def test_a_node_killed_midway_costs_nothing_but_time(told, tmp_path):
    run, facts = told
    assert 3 <= facts["shards"] < 9, "the node was not killed midway"
    assert facts["status"]["generations"] == 1 and facts["status"]["last_error"] is None
    store = GenerationStore(run, make_recipe("rows=90"))
    made = store.newest()
    assert [g.number for g in store.all()] == [0]
    verify(made)
    alone = GenerationStore(tmp_path, make_recipe("rows=90"))
    wanted = make_generation(alone, 0, make_params(0), lambda *_: None)
    assert contents(made.path) == contents(wanted.path)


def test_it_published_by_itself_and_left_nothing(told):
    run, facts = told
    assert [path.name for path in (run / "generations").iterdir()] == ["0-0"]
    assert facts["status"]["deaths"] == 0 and facts["status"]["engine"] == "ray"
    assert facts["status"]["peak_host_bytes"] > 1e6
    assert read_heartbeat(run)["state"] == "closed"  # asked to end, the driver says so: Ray has not taken its signal
