"""`realm pretrain`: corpus, then the stages mlm -> ict -> realm, each a run folder of its own, then the measurement.

Every stage can be killed and resumed; a finished one is not run again. The summary holds what a reader needs to
believe the result: recall of every stage and of two baselines, the utility curve, and the generations with their age.
"""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from experiments.config import Preset, Stage, to_json
from experiments.locate import resolve
from experiments.measure import Measurement
from experiments.preflight import PreflightError, preflight
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule
from realm.protocols import Params
from realm.text.blocks import build_corpus
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.loop import train
from realm.training.metrics import ProgressLine, read_metrics
from realm.training.run_folder import (
    FREE,
    Existing,
    RunFolder,
    RunFolderError,
    differences,
    read_json,
    remove_folder,
    write_json,
)

OWN = (".lock", "corpus")


class Stopped(SystemExit):
    """A signal ended a stage early; it is saved, and `--resume` goes on."""


def pretrain(preset: Preset, out: Path, existing: Existing, table_json: Path | None = None) -> dict[str, Any]:
    """Runs what is left of `preset` in `out` and returns the summary, which is also `out/summary.json`.

    Raises RunFolderError for a folder that is somebody else's, in use, or of another preset, and PreflightError,
    before anything is trained, for what would fail later.
    """
    began = time.monotonic()
    out = Path(out)
    claim(preset, out, existing)
    with locked(out):
        table = open_corpus(preset, out)
        print(corpus_line(table), file=sys.stderr)
        preflight(preset, table)
        write_json(out / "preset.json", to_json(preset))
        finished: dict[str, Path] = {}
        trained_here = 0.0
        jobs = dict(preset.stages())
        if preset.continue_ict and {"ict", "realm"} <= jobs.keys():
            jobs["ict_continued"] = None
        for name, stage in jobs.items():
            started = time.monotonic()
            stage = continued(preset.ict, finished) if stage is None else stage
            finished[name] = run_stage(name, stage, table, out, finished, existing)
            trained_here += time.monotonic() - started
        measurement = Measurement(preset, table, out, finished)
        summary = measurement.summary()
        # Stages count with the seconds of all processes that trained them, so a killed and resumed job adds up.
        here = time.monotonic() - began
        trained = sum(read_json(folder / "done.json")["seconds"] for folder in finished.values())
        summary["minutes"] = round(max(here, here - trained_here + trained) / 60, 2)
        write_json(out / "summary.json", summary)
    measurement.show(summary)
    if table_json is not None:
        measurement.recall.write(table_json)
    return summary


def claim(preset: Preset, out: Path, existing: Existing) -> None:
    """Makes `out` the folder of this job, or says why it cannot be."""
    known = read_json(out / "preset.json")
    if known is None:
        if out.is_dir() and any(p.name not in OWN and not p.name.startswith("corpus.partial") for p in out.iterdir()):
            raise RunFolderError(f"{out} has files but no preset.json: not a main job, so it is left alone")
        if existing == "resume":
            print(f"{out}: nothing to resume yet, starting", file=sys.stderr)
    elif existing == "refuse":
        raise RunFolderError(f"{out} exists: add --resume to go on with it or --overwrite to delete it")
    elif existing == "overwrite":
        remove_folder(out)
    else:
        free = (*FREE, "questions", "max_questions", "continue_ict")
        changed = sorted(d for d in differences(known, to_json(preset)) if d.rpartition(".")[2] not in free)
        if changed:
            raise RunFolderError(
                f"{out}/preset.json differs from this command in {', '.join(changed)}: a resumed job keeps its fields. "
                "Use the old values, another --out, or --overwrite"
            )
    out.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Holds the folder for this process; the lock goes with the process, however it ends."""
    with (out / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(f"{out} is in use: another process is training there") from None
        yield


def open_corpus(preset: Preset, out: Path) -> BlockTable:
    """The corpus of the job: built in `out/corpus` on first use, or a link there to the built one it names."""
    folder = out / "corpus"
    if preset.built_corpus is not None:
        built = BlockTable.open(preset.built_corpus)
        if not folder.exists():
            folder.symlink_to(built.path.resolve(), target_is_directory=True)
        return BlockTable.open(folder)
    for left in out.glob("corpus.partial*"):  # of a build that was killed
        shutil.rmtree(left)
    config = dataclasses.replace(
        preset.corpus, documents=resolve(preset.corpus.documents), spans=resolve(preset.corpus.spans)
    )
    return build_corpus(config, folder)


def corpus_line(table: BlockTable) -> str:
    heldout = int(table.heldout_N.sum())
    return f"corpus  {table.rows} blocks ({heldout} held out), fingerprint {table.fingerprint[:12]}, {table.path}"


def run_stage(
    name: str, stage: Stage, table: BlockTable, out: Path, finished: dict[str, Path], existing: Existing
) -> Path:
    """Trains one stage to its end, or leaves a finished one as it is. Returns its run folder."""
    folder = out / name
    run = RunFolder(folder, existing if folder.exists() else "refuse")
    run.write_config(to_json(stage) | {"corpus": table.fingerprint})
    if run.done:
        return folder
    progress = ProgressLine(f"{name:13s}")
    refresher = None
    try:
        if stage.objective.candidates:
            refresher = start_refresher(stage, table, run.path, progress)
        outcome = train(
            stage.objective,
            table,
            stage.training,
            run,
            init=lambda: initial_params(stage, finished),
            refresher=refresher,
            report=progress,
        )
    finally:
        if refresher is not None:
            refresher.close()
        progress.close()
    if outcome.step == stage.training.steps:
        run.finish({"step": outcome.step, "seconds": read_metrics(folder / "metrics.jsonl")[-1]["seconds"]})
    if outcome.stopped:
        raise Stopped(0)
    return folder


def start_refresher(stage: Stage, table: BlockTable, folder: Path, report) -> Any:
    recipe = Recipe(
        objective=stage.objective,
        corpus=str(table.path),
        index=stage.refresh.index,
        shard_rows=stage.refresh.shard_rows,
        batch_rows=stage.refresh.batch_rows,
        lengths=stage.refresh.block_lengths,
    )
    return stage.refresh.engine.start(recipe, parse_schedule(stage.refresh.schedule), folder, report=report)


def initial_params(stage: Stage, finished: dict[str, Path]) -> Params:
    """The objective's own initialisation, with the parts that `warm_start` names taken from earlier stages."""
    params = stage.objective.init(jax.random.key(stage.training.seed))
    for part, source in stage.warm_start.items():
        if source not in finished:
            raise PreflightError(f"warm_start takes {part!r} from stage {source!r}, found only {sorted(finished)}")
        params[part] = restore_params(finished[source] / "checkpoints")[0][part]
    return params


def continued(ict: Stage, finished: dict[str, Path]) -> Stage:
    """The ICT stage once more from its own end, for as many steps as fit into the realm stage's training seconds.

    The realm stage's seconds count everything (search, refreshes, compilation), an ICT step counts at its median: the
    control gets no less than REALM.
    """
    records = [r for r in read_metrics(finished["ict"] / "metrics.jsonl") if "seconds_per_step" in r]
    step_seconds = statistics.median(r["seconds_per_step"] for r in records)
    steps = max(1, round(read_json(finished["realm"] / "done.json")["seconds"] / step_seconds))
    training = dataclasses.replace(ict.training, steps=steps, seed=ict.training.seed + 1)
    return dataclasses.replace(ict, training=training, warm_start={"retriever": "ict"})
