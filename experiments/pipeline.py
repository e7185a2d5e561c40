"""`realm pretrain`: corpus, then the stages mlm -> ict -> realm, each a run folder of its own, then the measurement.

Every stage can be killed and resumed; a finished one is not run again. The summary holds what a reader needs to
believe the result: recall of every stage and of two baselines, the utility curve, and the generations with their age.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax

from experiments.config import Preset, Stage, to_json
from experiments.locate import resolve
from experiments.measure import Measurement
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule
from realm.protocols import Params
from realm.text.blocks import build_corpus
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.loop import train
from realm.training.metrics import ProgressLine, read_metrics
from realm.training.run_folder import Existing, RunFolder, RunFolderError, read_json, write_json


class Stopped(SystemExit):
    """A signal ended a stage early; it is saved, and `--resume` goes on."""


def pretrain(preset: Preset, out: Path, existing: Existing, table_json: Path | None = None) -> dict[str, Any]:
    """Runs what is left of `preset` in `out` and returns the summary, which is also `out/summary.json`."""
    began = time.monotonic()
    out = Path(out)
    if existing == "refuse" and (out / "preset.json").exists():
        raise RunFolderError(f"{out} exists: add --resume to go on with it or --overwrite to delete it")
    known = read_json(out / "preset.json")
    if existing == "resume" and known is not None and known != to_json(preset):
        raise RunFolderError(
            f"{out}/preset.json differs from this command: resume with the same fields, or another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "preset.json", to_json(preset))
    table = open_corpus(preset, out)
    print(corpus_line(table), file=sys.stderr)
    finished: dict[str, Path] = {}
    for name, stage in preset.stages().items():
        finished[name] = run_stage(name, stage, table, out, finished, existing)
    if preset.continue_ict and {"ict", "realm"} <= finished.keys():
        finished["ict_continued"] = run_stage(
            "ict_continued", continued(preset.ict, finished), table, out, finished, existing
        )
    measurement = Measurement(preset, table, out, finished)
    summary = measurement.summary()
    earlier = (read_json(out / "summary.json") or {}).get("minutes") if existing == "resume" else None
    summary["minutes"] = round(max((time.monotonic() - began) / 60, earlier or 0.0), 2)
    write_json(out / "summary.json", summary)
    measurement.show(summary)
    if table_json is not None:
        measurement.recall.write(table_json)
    return summary


def open_corpus(preset: Preset, out: Path) -> BlockTable:
    """The corpus of the run, built on first use."""
    config = dataclasses.replace(
        preset.corpus, documents=resolve(preset.corpus.documents), spans=resolve(preset.corpus.spans)
    )
    return build_corpus(config, out / "corpus")


def corpus_line(table: BlockTable) -> str:
    heldout = int(table.heldout_N.sum())
    return f"corpus  {table.rows} blocks ({heldout} held out), fingerprint {table.fingerprint[:12]}, {table.path}"


def run_stage(
    name: str, stage: Stage, table: BlockTable, out: Path, finished: dict[str, Path], existing: Existing
) -> Path:
    """Trains one stage to its end, or leaves a finished one as it is. Returns its run folder."""
    folder = out / name
    run = RunFolder(folder, existing if folder.exists() else "refuse")
    if run.done:
        return folder
    run.write_config(to_json(stage) | {"corpus": table.fingerprint})
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
    if outcome.stopped:
        raise Stopped(0)
    run.finish({"step": outcome.step, "seconds": read_metrics(folder / "metrics.jsonl")[-1]["seconds"]})
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
            raise ValueError(f"warm_start takes {part!r} from stage {source!r}, which is not among {sorted(finished)}")
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
