"""Sweeps: the same job under changed settings and several seeds, resumable run by run, as one table.

A variant is a change of the preset. Stages that the change does not touch are trained once a seed, by the first
variant, and taken over by the others: what differs between two rows is then the change alone. Differences are paired
by seed. Every run is a folder with its stages and its results.json; a killed sweep goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from experiments.config import Preset, Stage, to_json, up_to_date
from experiments.console import wide_console
from experiments.pipeline import continued, locked, open_corpus, run_stage
from experiments.preflight import preflight
from realm.training.run_folder import changed_fields, read_json, write_json

RESULTS = "results.json"


class SweepError(ValueError):
    """A sweep that cannot be run as asked."""


@dataclass(frozen=True)
class Variant:
    """change: of the preset. shares: stages taken over from the first variant of the same seed. continues: a stage
    trained on from its own end, for the seconds of the first variant's joint training, instead of the preset's own
    last stages."""

    about: str
    change: Callable[[Preset], Preset]
    shares: tuple[str, ...] = ()
    continues: str | None = None


@dataclass(frozen=True)
class Sweep:
    """preset: of all variants. variants: the first one is what the others are compared with. measure: (preset, the
    folder of the corpus, run folders by stage) -> numbers. columns: which of them the table shows, as title -> name."""

    preset: Preset
    variants: dict[str, Variant]
    measure: Callable[[Preset, Path, dict[str, Path]], dict[str, Any]]
    columns: dict[str, str]

    @property
    def first(self) -> str:
        return next(iter(self.variants))


def run_sweep(sweep: Sweep, name: str, out: Path, seeds: int, jobs: int, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Runs what is left and returns {"rows": ..., "runs": ...}, which is also `out/sweep.json`.

    jobs: processes beside each other; the processor's cores are divided among them. Raises SweepError for unknown
    variants and for a folder that holds another sweep.
    """
    unknown = set(only) - sweep.variants.keys()
    if unknown or seeds < 1 or jobs < 1:
        raise SweepError(
            f"found variants {sorted(unknown)}, {seeds} seeds, {jobs} jobs: wanted some of {list(sweep.variants)}, "
            "and at least one seed and one job"
        )
    chosen = [one for one in sweep.variants if not only or one in only or one == sweep.first]
    with locked(out):
        known, wanted = read_json(out / "preset.json"), to_json(sweep.preset)
        known = known and up_to_date(known, Preset)
        if known is not None and changed_fields(known, wanted):
            raise SweepError(
                f"{out} holds a sweep with other {', '.join(changed_fields(known, wanted))}: give another --out"
            )
        write_json(out / "preset.json", wanted)
        open_corpus(sweep.preset, out)
        _run_all(sweep, name, out, chosen, seeds, jobs)
        runs = {one: [read_json(_folder(out, one, seed) / RESULTS) for seed in range(seeds)] for one in chosen}
        summary = {"sweep": name, "seeds": seeds, "rows": rows_of(sweep, runs), "runs": runs}
        write_json(out / "sweep.json", summary)
    wide_console().print(table_of(sweep, summary))
    return summary


def _run_all(sweep: Sweep, name: str, out: Path, chosen: list[str], seeds: int, jobs: int) -> None:
    """The first variant of each seed before the others of that seed, which take stages over from it."""
    context = multiprocessing.get_context("spawn")
    cores = sorted(os.sched_getaffinity(0))
    groups = context.Queue()
    for job in range(jobs):
        groups.put(cores[job::jobs] or cores)
    began, total, done = time.monotonic(), len(chosen) * seeds, 0
    with ProcessPoolExecutor(jobs, context, initializer=_pin, initargs=(groups,)) as pool:
        waiting: dict[Future, tuple[str, int]] = {
            pool.submit(run_one, name, out, sweep.first, seed): (sweep.first, seed) for seed in range(seeds)
        }
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                variant, seed = waiting.pop(future)
                future.result()
                done += 1
                minutes = (time.monotonic() - began) / 60
                print(f"{minutes:6.1f} min  {done}/{total}  {variant}, seed {seed}", file=sys.stderr, flush=True)
                if variant == sweep.first:
                    for other in chosen[1:]:
                        waiting[pool.submit(run_one, name, out, other, seed)] = (other, seed)


def _pin(groups: Any) -> None:
    os.sched_setaffinity(0, groups.get())


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / f"seed-{seed}" / variant


def run_one(name: str, out: Path, variant: str, seed: int) -> None:
    """`run_variant` in a process of its own, whose progress goes to the log in the run's folder."""
    from experiments.compiled import keep_compiled
    from experiments.sweeps import SWEEPS

    keep_compiled(out / "compiled", 0.5)  # variants and seeds run the same programs
    folder = _folder(out, variant, seed)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("a") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
        run_variant(SWEEPS[name](), out, variant, seed)


def run_variant(sweep: Sweep, out: Path, variant: str, seed: int) -> None:
    """Trains and measures one variant with one seed, or leaves a finished one as it is."""
    folder = _folder(out, variant, seed)
    if (folder / RESULTS).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    table = open_corpus(sweep.preset, out)
    own = sweep.variants[variant]
    preset = seeded(own.change(sweep.preset), seed)
    preflight(preset, table)
    base = {stage: _folder(out, sweep.first, seed) / stage for stage in preset.stages()}
    finished = {stage: base[stage] for stage in own.shares}
    if own.continues:
        finished[own.continues] = base[own.continues]
        last = continued(getattr(preset, own.continues), base)
        finished["continued"] = run_stage("continued", last, table, folder, finished, "resume")
    else:
        for stage_name, stage in preset.stages().items():
            if stage_name not in finished:
                finished[stage_name] = run_stage(stage_name, stage, table, folder, finished, "resume")
    write_json(folder / RESULTS, sweep.measure(preset, out, finished))


def seeded(preset: Preset, seed: int) -> Preset:
    """The preset with this seed in every stage."""
    changed: dict[str, Stage] = {
        name: replace(stage, training=replace(stage.training, seed=seed)) for name, stage in preset.stages().items()
    }
    return replace(preset, **changed)


def rows_of(sweep: Sweep, runs: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """For each variant and column: mean over seeds, its standard error, and the same of the difference to the first
    variant, paired by seed (None where a seed has no such number; the error is None for one seed)."""
    rows = []
    for variant, results in runs.items():
        values = {}
        for column in sweep.columns.values():
            own, first = ([_number(one.get(column)) for one in these] for these in (results, runs[sweep.first]))
            difference = [a - b for a, b in zip(own, first, strict=True) if a is not None and b is not None]
            values[column] = _mean(own) | {f"difference_{k}": v for k, v in _mean(difference).items()}
        rows.append({"variant": variant, "about": sweep.variants[variant].about, "values": values})
    return rows


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _mean(values: Iterable[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "error": None}
    error = float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
    return {"mean": float(np.mean(known)), "error": error}


def table_of(sweep: Sweep, summary: dict[str, Any]) -> Table:
    """Mean ± standard error of each column in percent or nats, and the paired difference of the first column."""
    table = Table(
        title=f"{summary['sweep']}: mean ± standard error over {summary['seeds']} seeds", title_justify="left"
    )
    table.add_column("variant")
    first = next(iter(sweep.columns.values()))
    for title in (*sweep.columns, f"{next(iter(sweep.columns))}, paired difference"):
        table.add_column(title, justify="right")
    for row in summary["rows"]:
        cells = [_cell(row["values"][name]["mean"], row["values"][name]["error"]) for name in sweep.columns.values()]
        value = row["values"][first]
        base = row["variant"] == sweep.first
        cells.append("" if base else _cell(value["difference_mean"], value["difference_error"]))
        table.add_row(row["variant"], *cells)
    return table


def _cell(mean: float | None, error: float | None) -> str:
    return "" if mean is None else f"{mean:.1f}" + ("" if error is None else f" ± {error:.1f}")
