"""Drill: `kill -9` of a real trainer and of its real refresher, over and over, on the `tiny` preset.

One job trains with the synchronous engine: killed and resumed as often as it may be, it must end in the bits of the job
that nobody killed. Another has a child that refreshes beside it; both are killed, and what it ends with must be what
the synchronous engine makes of its record of publications and adoptions (`recorded`).
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drill_table import Row
from index_refresh.heartbeat import read_heartbeat

STAGE, STEPS, PATIENCE = "realm", 160, 300.0
COPIED = ("preset.json", "corpus", "mlm", "ict")


class KillError(RuntimeError):
    """A job that ended by itself, and should not have."""


class Job:
    """One main job in a folder of its own; its earlier stages are those of `whole`, where that is given."""

    def __init__(self, folder: Path, cache: Path, preset: Any, whole: Path | None = None) -> None:
        from experiments.config import to_json

        self.folder, self.cache, self.run = folder, cache, folder / STAGE
        for name in COPIED if whole else ():
            copy = shutil.copytree if (whole / name).is_dir() else shutil.copy
            folder.mkdir(parents=True, exist_ok=True)
            copy(whole / name, folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        if whole:
            (folder / "preset.json").write_text(json.dumps(to_json(preset)))
        self.preset = folder.with_suffix(".json")
        self.preset.write_text(json.dumps(to_json(preset)))
        self.log = folder.with_suffix(".log")

    def start(self) -> subprocess.Popen:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(self.cache), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "experiments.cli", "pretrain", str(self.preset), "--out", str(self.folder)]
        with open(self.log, "ab") as log:
            return subprocess.Popen([*command, "--resume"], env=environment, stdout=log, stderr=log)

    def finish(self) -> None:
        """Lets it come to its end. Raises KillError."""
        status = self.start().wait()
        if status != 0:
            raise KillError(f"{self.folder}: ended with status {status}: {self.log.read_text()[-500:]}")

    def lines(self) -> int:
        metrics = self.run / "metrics.jsonl"
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def checkpoint(self) -> int:
        """The step of the newest checkpoint, -1 before the first."""
        found = (self.run / "checkpoints").glob("*")
        return max((int(path.name) for path in found if path.name.isdigit()), default=-1)

    def life(self, rng: np.random.Generator, row: Row, child: bool) -> None:
        """Starts it, kills it after a random piece of work (or of starting up), and looks at what it left. `child`:
        its refresher is killed too, first."""
        process, before = self.start(), self.checkpoint()
        enough = self.lines() + int(rng.integers(1, 9))
        hasty = time.monotonic() + float(rng.uniform(0.5, 6.0)) if rng.random() < 0.2 else float("inf")
        end = time.monotonic() + PATIENCE
        while self.lines() < enough and time.monotonic() < hasty and process.poll() is None:
            if time.monotonic() > end:
                process.kill()
                raise KillError(f"{self.folder}: nothing happened in {PATIENCE:.0f} s: {self.log.read_text()[-500:]}")
            if child and rng.random() < 0.02 and kill_child(self.run):
                row.tries += 1
                child = bool(rng.random() < 0.5)
            time.sleep(0.02)
        time.sleep(float(rng.uniform(0, 0.2)))
        if process.poll() is not None:
            raise KillError(f"{self.folder}: ended with status {process.returncode}: {self.log.read_text()[-500:]}")
        process.kill()
        process.wait()
        row.tries += 1
        if self.checkpoint() < before:
            row.lost_one(f"checkpoint {before} was there, now the newest is {self.checkpoint()}")
        self.look(row)

    def look(self, row: Row) -> None:
        """Every generation on the disk must be whole."""
        from experiments.locate import _stage_of
        from experiments.recipe_of import recipe_of
        from index_refresh.generation import verify
        from index_refresh.store import GenerationStore
        from realm.text.table import BlockTable

        if not (self.run / "config.json").exists():
            return
        recipe = recipe_of(_stage_of(self.run), BlockTable.open(self.folder / "corpus"))
        try:
            for generation in GenerationStore(self.run, recipe).all():
                verify(generation)
                generation.query_params()
        except ValueError as error:
            row.torn_seen(str(error))

    def result(self) -> dict[str, bytes]:
        """Everything that equal jobs share, by name: parameters, vectors and losses."""
        import jax

        from realm.training.checkpoint import restore_params

        params, step = restore_params(self.run / "checkpoints")
        found = {"step": str(step).encode()}
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            found[f"params{jax.tree_util.keystr(path)}"] = np.asarray(leaf).tobytes()
        # One that came when training was over is in nobody's record.
        events = [json.loads(line) for line in (self.run / "generations.jsonl").read_text().splitlines()]
        recorded = {f"{e['generation']}-{e['step']}" for e in events if e["event"] == "published"}
        for path in (self.run / "generations").glob("*-*/*"):
            if path.suffix in (".npy", ".safetensors") and path.parent.name in recorded:
                found[f"{path.parent.name}/{path.name}"] = path.read_bytes()
        for line in (self.run / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if "event" not in record:
                found[f"loss {record['step']}"] = str(record["loss"]).encode()
        return found


def kill_child(run: Path) -> bool:
    """SIGKILL for the refresher that the heartbeat names, if it is one and alive."""
    beat = read_heartbeat(run)
    try:
        if beat is None or b"index_refresh.child" not in Path(f"/proc/{beat['pid']}/cmdline").read_bytes():
            return False
        os.kill(beat["pid"], signal.SIGKILL)
    except OSError:
        return False
    return True


def tiny(schedule: str, engine: Any, checkpoint_every: int) -> Any:
    """The preset with a longer realm stage, of which every step is logged."""
    from experiments.presets.tiny import preset

    base = preset()
    training = dataclasses.replace(
        base.realm.training, steps=STEPS, log_every=1, checkpoint_every=checkpoint_every, keep_checkpoints=3
    )
    refresh = dataclasses.replace(base.realm.refresh, schedule=schedule, engine=engine)
    realm = dataclasses.replace(base.realm, training=training, refresh=refresh)
    return dataclasses.replace(base, questions=None, max_questions=None, realm=realm)


def compare(row: Row, what: str, found: Job, wanted: Job) -> None:
    left, right = found.result(), wanted.result()
    apart = [name for name in sorted(left.keys() | right.keys()) if left.get(name) != right.get(name)]
    if apart:
        row.wrong(f"{what}: {len(apart)} of {len(right)} differ, among them {apart[:4]}")


def kill_drill(scratch: Path, rng: np.random.Generator, kills: int) -> Iterator[Row]:
    """At least so many kills for each of two jobs; one row a job."""
    from index_refresh.process import Process
    from index_refresh.sync import Sync

    cache = scratch / "jax-cache"
    exact = tiny("every 20", Sync(keep=100), 5)
    whole = Job(scratch / "whole", cache, exact)
    whole.finish()
    row, began = Row("kill -9: trainer, engine sync"), time.monotonic()
    killed = Job(scratch / "killed", cache, exact, whole.folder)
    while row.tries < kills:
        killed.life(rng, row, child=False)
    killed.finish()
    compare(row, "killed against uninterrupted", killed, whole)
    row.seconds = time.monotonic() - began
    yield row
    row, began = Row("kill -9: trainer and refresher, engine process"), time.monotonic()
    beside = tiny("every 5", Process(keep=100, restart_seconds=0.05, poll_seconds=0.05), 5)
    job = Job(scratch / "beside", cache, beside, whole.folder)
    while row.tries < kills:
        job.life(rng, row, child=True)
    job.finish()
    record = tiny(f"recorded {job.run / 'generations.jsonl'}", Sync(keep=100), 5)
    replay = Job(scratch / "replay", cache, record, whole.folder)
    replay.finish()
    compare(row, "killed against its replay", job, replay)
    row.seconds = time.monotonic() - began
    yield row
