"""`realm pretrain`, `realm finetune`: corpus, then the preset's stages, each a run folder, then the measurement.

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.config import Preset, Stage, to_json, up_to_date
from experiments.first_index import check_vectors, first_index
from experiments.measure import Measurement
from experiments.preflight import preflight
from experiments.recipe_of import recipe_of
from experiments.samples import resolved
from experiments.warm_start import noted_start
from index_refresh.follower import Follower
from index_refresh.schedule import parse_schedule
from realm.protocols import Params
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.facts import FILES, FactsConfig, write_facts
from realm.text.table import BlockTable
from realm.training.loop import train
from realm.training.metrics import ProgressLine, read_metrics
from realm.training.processes import leads
from realm.training.run_folder import (
    DELETED,
    Existing,
    RunFolder,
    RunFolderError,
    changed_fields,
    empty_folder,
    read_json,
    write_json,
)

LOCK, FACTS = ".lock", "facts"
STARTED = "started.json"  # of a job of several processes
LOOK = 0.2  # seconds between two looks for what another process writes
# What a job may leave in its folder while it has no preset.json.
OWN = (LOCK, DELETED, "corpus", FACTS, "preset.json.partial")
# What a resumed job may have other than its preset.json says, besides what a stage may. Not a stage's own questions.
FREE_OF_A_JOB = ("questions", "max_questions", "continue_ict")


class Stopped(SystemExit):
    """A signal ended a stage early; it is saved, and `--resume` goes on. The exit status is 128 + the signal's number,
    as of a process that died of it, so that `realm pretrain sample && realm evaluate runs/sample` ends there."""


def pretrain(preset: Preset, out: Path, existing: Existing, table_json: Path | None = None) -> dict[str, Any]:
    """Runs what is left of `preset` in `out` and returns the summary, which is also `out/summary.json`.

    Raises RunFolderError for a folder that is somebody else's, in use, or of another preset, and PreflightError,
    before anything is trained, for what would fail later.
    """
    began = time.monotonic()
    out = Path(out)
    with locked(out):
        claim(preset, out, existing)
        table = open_corpus(preset, out)
        print(corpus_line(table), file=sys.stderr)
        preflight(preset, table)
        check_vectors(preset, table, out)
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
    """Makes the locked folder `out` that of this job, or says why it cannot be."""
    if (out / DELETED).exists():  # of an overwrite that was killed
        shutil.rmtree(out / DELETED)
    known = read_json(out / "preset.json")
    if known is None:
        if existing == "resume":
            print(f"{out}: nothing to resume yet, starting", file=sys.stderr)
    elif existing == "refuse":
        raise RunFolderError(f"{out} exists: add --resume to go on with it or --overwrite to delete it")
    elif existing == "overwrite":
        empty_folder(out, keep=LOCK, last="preset.json")
    else:
        known = up_to_date(known, Preset)
        changed = [name for name in changed_fields(known, to_json(preset)) if name not in FREE_OF_A_JOB]
        if changed:
            raise RunFolderError(
                f"{out}/preset.json differs from this command in {', '.join(changed)}: a resumed job keeps its fields. "
                "Use the old values, another --out, or --overwrite"
            )


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Holds the folder, made where there is none, for this process; the lock goes with the process, however it ends.

    Raises RunFolderError for a folder with the files of somebody else, which does not even get a lock file, and for one
    in use.
    """
    if out.is_dir() and not (out / "preset.json").exists():
        if any(p.name not in OWN and not p.name.startswith("corpus.partial") for p in out.iterdir()):
            raise RunFolderError(f"{out} has files but no preset.json: not a main job, so it is left alone")
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as file:
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
    corpus = resolved(preset.corpus)
    corpus = with_facts(corpus, preset.facts, out / FACTS) if preset.facts else corpus
    return build_corpus(corpus, folder, workers=None)


def with_facts(corpus: CorpusConfig, facts: FactsConfig, folder: Path) -> CorpusConfig:
    """The corpus with the files of a facts corpus added, which are written to `folder` unless they are there."""
    wanted = to_json(facts)
    known = read_json(folder / "facts.json")
    if known is None or known["config"] != wanted:
        counts = write_facts(facts, folder)
        write_json(folder / "facts.json", {"config": wanted, "counts": counts})
    files = {name: str(folder / file) for name, file in FILES.items()}
    return dataclasses.replace(
        corpus,
        only_retrieved=(*corpus.only_retrieved, files["documents"]),
        only_masked=(*corpus.only_masked, files["statements"]),
        spans=(*corpus.spans, files["spans"]),
    )


def corpus_line(table: BlockTable) -> str:
    heldout = int(table.heldout_N.sum())
    only_masked = f", {table.rows - table.indexed} more only masked" if table.indexed < table.rows else ""
    blocks = f"{table.indexed} blocks ({heldout} held out){only_masked}"
    return f"corpus  {blocks}, fingerprint {table.fingerprint[:12]}, {table.path}"


def run_stage(
    name: str,
    stage: Stage,
    table: BlockTable,
    out: Path,
    finished: dict[str, Path],
    existing: Existing,
    job: int | None = None,
) -> Path:
    """Trains one stage to its end, or leaves a finished one as it is. Returns its run folder.

    job: what the processes of a job of several have agreed to be called.
    """
    folder = out / name
    if leads():
        run = RunFolder(folder, existing if folder.exists() else "refuse")
        run.write_config(to_json(stage) | {"corpus": table.fingerprint}, stage_up_to_date)
        done = run.done is not None
        if not done:
            first_index(name, stage, table, run.path, finished)
        if job is not None:
            write_json(folder / STARTED, {"job": job, "done": done})
    else:
        done = begun(folder, job)["done"]
        while not (folder / "config.json").exists():  # shared storage may show it later here
            time.sleep(LOOK)
        run = RunFolder(folder, "resume")
    if done:
        return folder
    stopped = run_to_end(run, f"{name:13s}", stage, table, lambda: noted_start(stage, finished, run.path))
    if stopped:
        raise Stopped(128 + stopped)
    return folder


def stage_up_to_date(config: dict[str, Any]) -> dict[str, Any]:
    """A stage's config.json, perhaps of an earlier version, as it is written now."""
    own = {name: value for name, value in config.items() if name != "corpus"}
    return up_to_date(own, Stage) | {"corpus": config.get("corpus")}


def begun(folder: Path, job: int) -> dict[str, Any]:
    """What process 0 wrote when the work of this job in `folder` could begin.

    The others wait for the file, not in a collective, which would time out while a large corpus is built, or a large
    index taken over.
    """
    while (said := read_json(folder / STARTED) or {}).get("job") != job:
        time.sleep(LOOK)
    return said


def run_to_end(run: RunFolder, title: str, stage: Stage, table: Any, init: Callable[[], Params]) -> int | None:
    """Trains to the stage's last step, which the run then knows; the signal's number where one ended it early."""
    progress = ProgressLine(title)
    report = progress if leads() else lambda text: progress(text) if text.startswith("WARNING") else None
    refresher = None
    try:
        if stage.objective.candidates:
            refresher = start_refresher(stage, table, run.path, report)
        outcome = train(
            stage.objective,
            table,
            stage.training,
            run,
            init=init,
            refresher=refresher,
            report=report,
        )
    finally:
        if refresher is not None:
            refresher.close()
        progress.close()
    if outcome.step == stage.training.steps and leads():
        run.finish({"step": outcome.step, "seconds": read_metrics(run.path / "metrics.jsonl")[-1]["seconds"]})
    return int(outcome.stopped) if outcome.stopped else None


def start_refresher(stage: Stage, table: BlockTable, folder: Path, report) -> Any:
    if not leads():
        return Follower(recipe_of(stage, table), folder, stage.refresh.engine.max_age)
    schedule = parse_schedule(stage.refresh.schedule)
    return stage.refresh.engine.start(recipe_of(stage, table), schedule, folder, report=report)


def continued(ict: Stage, finished: dict[str, Path]) -> Stage:
    """The ICT stage once more from its own end, for as many steps as fit into the seconds of joint training.

    The seconds of the read and realm stages count everything (search, refreshes, compilation), an ICT step counts at
    its median: the control gets no less than REALM.
    """
    records = [r for r in read_metrics(finished["ict"] / "metrics.jsonl") if "seconds_per_step" in r]
    step_seconds = statistics.median(r["seconds_per_step"] for r in records)
    joint = [read_json(finished[name] / "done.json")["seconds"] for name in ("read", "realm") if name in finished]
    steps = max(1, round(sum(joint) / step_seconds))
    training = dataclasses.replace(ict.training, steps=steps, seed=ict.training.seed + 1)
    return dataclasses.replace(ict, training=training, warm_start={"retriever": "ict"})
