"""The short drill is sound, the same seed makes the same trouble, and a planted fault is found."""

import json
import subprocess
import sys

import pytest

from experiments.drill_table import Row, as_json


def run(*arguments):
    """A process of its own: drills fork, and this one has jax and its threads."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300)


def test_the_short_drill(tmp_path):
    done = run(
        "-m", "experiments.drill", "--short", "--seed", "3", "--points", "500", "--json", str(tmp_path / "d.json")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads((tmp_path / "d.json").read_text())
    assert answer["sound"] and answer["seed"] == 3 and "seed 3" in done.stdout
    sums = answer["sums"]
    assert (sums["torn"], sums["lost"], sums["wrong_results"], sums["unnoticed"]) == (0, 0, 0, 0)
    assert sum(row["tries"] for row in answer["rows"] if row["name"].startswith("power cut")) == 20
    assert len(answer["rows"]) == 14 and all(row["tries"] > 0 for row in answer["rows"][6:])


PLANT = """
import sys, tempfile
from pathlib import Path
import numpy as np
from index_refresh import claim, files, generation, store
{plant}
from experiments import drill_crash, drill_files
from experiments.drill_table import as_json
with tempfile.TemporaryDirectory() as scratch:
    rng = np.random.default_rng(7)
    {drill}
print("RESULT", sum(value for name, value in as_json(rows)["sums"].items() if name != "tries"))
assert "jax" not in sys.modules
"""
CRASH = "rows = list(drill_crash.crash_drill(Path(scratch), rng, {}, drill_crash.SCENARIOS[{}]))"
DAMAGE = "rows = [drill_files.damage_drill(Path(scratch), rng, 30)]"
PLANTS = {
    "no fsync before the rename": ("files.fsync_tree = lambda folder: None", CRASH.format(8, ":1")),
    "no fsync after a rename": ("files.move = lambda a, b: files.rename(a, b)", CRASH.format(20, "1:2")),
    "written in place": ("files.write = lambda path, *chunks: files.put(path, *chunks)", CRASH.format(8, ":1")),
    "checksums not compared": ("generation.verify = lambda generation: None", DAMAGE),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name):
    plant, drill = PLANTS[name]
    done = run("-c", PLANT.format(plant=plant, drill=drill))
    assert "RESULT" in done.stdout, done.stderr[-2000:]
    assert int(done.stdout.split()[-1]) > 0, done.stderr[-2000:]


def test_a_table_without_rows_is_not_sound():
    assert not as_json([])["sound"]
    row = Row("one", tries=1)
    assert as_json([row])["sound"]
    row.missed("something")
    assert not as_json([row])["sound"] and as_json([row])["sums"]["unnoticed"] == 1
