"""One training run of `realm bench overlap`, in a process of its own that is pinned before jax starts its threads.

`python -m experiments.bench_overlap_run JSON` trains what JSON describes and prints its numbers as the last line.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.ages import read_ages
from experiments.compiled import keep_compiled
from experiments.config import to_json
from experiments.presets import facts
from experiments.recipe_of import recipe_of
from index_refresh.process import Process
from index_refresh.schedule import parse_schedule
from index_refresh.snapshot import SnapshotStore
from realm.index.exact import Exact
from realm.index.scann import Scann
from realm.text.table import BlockTable
from realm.training.loop import train
from realm.training.metrics import read_metrics
from realm.training.run_folder import RunFolder
from realm.training.watch import Watch

INDEXES = {"exact": Exact, "scann": Scann}
SLOWEST = 0.05  # share of the steps, those that compile among them, that a mean leaves out


class Queue:
    """A report that counts, at every step, the snapshots that are there: the one at work and those that wait."""

    def __init__(self, folder: Path) -> None:
        self.snapshots, self.most = SnapshotStore(folder), 0

    def __call__(self, line: str) -> None:
        if line.startswith("step "):
            self.most = max(self.most, len(self.snapshots.steps()))
        else:
            print(line, file=sys.stderr)


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Trains `steps` steps with the schedule; step times, ages, generations and what waited."""
    engine = Process(cores=tuple(spec["refresher_cores"]), poll_seconds=0.1)  # while this process may use all of them
    os.sched_setaffinity(0, spec["trainer_cores"])
    import jax

    keep_compiled(Path(spec["compiled"]), 0.0)
    folder, table, preset = Path(spec["folder"]), BlockTable.open(spec["corpus"]), facts.preset()
    training = replace(
        preset.realm.training,
        steps=spec["steps"],
        batch_size=spec["batch"],
        seed=spec["seed"],
        retrieve_ahead=1,
        log_every=1,
        checkpoint_every=spec["steps"],
        watch=Watch(blocks=0),
    )
    refresh = replace(preset.realm.refresh, schedule=spec["schedule"], index=INDEXES[spec["index"]](), engine=engine)
    stage = replace(preset.realm, training=training, refresh=refresh)
    place, queue = RunFolder(folder, "overwrite" if folder.exists() else "refuse"), Queue(folder)
    place.write_config({"training": to_json(training)})
    refresher = engine.start(recipe_of(stage, table), parse_schedule(spec["schedule"]), place.path, report=queue)
    try:
        train(
            stage.objective,
            table,
            training,
            place,
            init=lambda: stage.objective.init(jax.random.key(spec["seed"])),
            refresher=refresher,
            report=queue,
        )
        status = refresher.status()
    finally:
        refresher.close()
    return measured(place.path, queue.most, status)


def measured(folder: Path, waiting: int, status: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run from its logs."""
    records = read_metrics(folder / "metrics.jsonl")
    seconds = sorted(r["seconds_per_step"] for r in records if "event" not in r)
    most = seconds[: max(1, round(len(seconds) * (1 - SLOWEST)))]
    swaps = [r for r in records if r.get("event") == "swap"]
    ages = read_ages(folder)
    return {
        "steps": len(seconds),
        "median_seconds": statistics.median(seconds),
        "mean_seconds": statistics.fmean(most),
        "slowest_seconds": seconds[-1],
        "waiting_snapshots": waiting,
        "dropped_snapshots": status["dropped_snapshots"],
        "published": status["published"],
        "swaps": [
            {
                "step": swap["step"],
                "generation": swap["generation"],
                "age": swap["document_age"],
                "age_seconds": swap["document_age_seconds"],
                "replaced_age": swap["replaced_age"],
                "refresh_seconds": swap["seconds_embed"] + swap["seconds_build"],
                "blocks_per_second": swap["blocks_per_second"],
            }
            for swap in swaps
        ],
        "ages": ages.summary(),
        "age_at": [[int(step), int(age)] for step, age in zip(ages.step_S, ages.age_S, strict=True)],
    }


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
