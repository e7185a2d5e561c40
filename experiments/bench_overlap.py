"""`realm bench overlap`: how fast a trainer's steps are while a refresher works beside it, on other cores.

Three runs over one corpus of facts, on the same cores: alone (the refresher made the first index and sleeps), beside a
refresher that never rests, and alone again, which tells how much two runs differ anyhow. The interval between two
snapshots is chosen from the first run, so that a refresh outlasts several: then snapshots are dropped, never queued,
and the age of the index settles at one to two refreshes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.table import Table

from experiments.bench_index import machine
from experiments.console import wide_console
from experiments.pipeline import open_corpus
from experiments.presets import facts
from realm.text.facts import FactsConfig

RUNS = ("alone", "beside", "alone again")


class OverlapError(RuntimeError):
    """A measurement that cannot be made, or a run of it that failed."""


@dataclass(frozen=True)
class BenchOverlap:
    """Step time of a trainer with and without a refresher beside it, index age over time, and what was queued."""

    blocks: int = 200_000
    """Of the facts corpus, about (at most 300,000)."""
    generations: int = 3
    """How many refreshes the run beside the refresher should see to their end, besides the first index."""
    intervals: float = 3.5
    """How many intervals a refresh outlasts."""
    steps_alone: int = 200
    """Steps of the runs without a refresh."""
    batch: int = 64
    """Examples a step."""
    index: Literal["exact", "scann"] = "scann"
    """The index kind."""
    trainer_cores: tuple[int, ...] = ()
    """By default the first half of the cores there are."""
    refresher_cores: tuple[int, ...] = ()
    """By default the other half; the same ones where there is one core only, and then nothing overlaps for free."""
    seed: int = 0
    """Of parameters and batches."""
    work: Path | None = None
    """Where corpus and runs lie; runs/bench/overlap-BLOCKS by default. A corpus that is there is used."""
    json: Path | None = None
    """Also write everything to this file: `spec`, `machine`, and for each run its numbers, `age_at` among them."""


def bench_overlap(given: BenchOverlap, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Builds the corpus, trains three times, prints the table and returns all numbers. Raises OverlapError."""
    if min(given.generations, given.steps_alone, given.batch) < 1 or given.intervals <= 0:
        raise OverlapError(f"found {given}, wanted 1 or more generations, steps and examples, and intervals above 0")
    work = given.work or Path("runs") / "bench" / f"overlap-{given.blocks}"
    work.mkdir(parents=True, exist_ok=True)
    trainer, refresher = _cores(given)
    table = open_corpus(replace(facts.preset(), facts=FactsConfig(blocks=given.blocks)), work)
    report(f"{table.indexed} blocks; trainer on cores {trainer}, refresher on {refresher}")
    spec = {"corpus": str(table.path), "batch": given.batch, "index": given.index, "seed": given.seed}
    spec |= {"trainer_cores": trainer, "refresher_cores": refresher, "compiled": str(work / "compiled")}
    results: dict[str, Any] = {"spec": _plain(given), "machine": machine(), "blocks": table.indexed}
    for name in RUNS:
        schedule, steps = "never", given.steps_alone
        if name == "beside":
            interval, steps = _pace(results["alone"], given)
            schedule = f"every {interval}"
            results["interval"] = interval
        folder = str(work / name.replace(" ", "-"))
        results[name] = _run(spec | {"folder": folder, "schedule": schedule, "steps": steps}, name, report)
    results["slowdown"] = _slowdown(results)
    wide_console().print(show(results))
    for line in said(results):
        report(line)
    return results


def _plain(given: BenchOverlap) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(given).items()}


def _cores(given: BenchOverlap) -> tuple[list[int], list[int]]:
    there = sorted(os.sched_getaffinity(0))
    half = max(1, len(there) // 2)
    trainer, refresher = given.trainer_cores or there[:half], given.refresher_cores or there[-half:]
    if not {*trainer, *refresher} <= set(there):
        raise OverlapError(f"found cores {sorted({*trainer, *refresher})}, wanted some of {there}")
    return list(trainer), list(refresher)


def _pace(alone: dict[str, Any], given: BenchOverlap) -> tuple[int, int]:
    """(steps between two snapshots, steps of the run beside) from how long the first index and a step took."""
    refresh = alone["swaps"][0]["refresh_seconds"] / alone["median_seconds"]  # in steps
    interval = max(1, int(refresh / given.intervals))
    # One interval until the first snapshot; a child that shares the memory bus takes longer than alone.
    return interval, interval + round(1.5 * given.generations * max(refresh, interval)) + 1


def _run(spec: dict[str, Any], name: str, report: Callable[[str], None]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench_overlap_run", json.dumps(spec)], capture_output=True, text=True
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise OverlapError(f"the run {name!r} ended with exit code {done.returncode}: {last[0]}")
    found = json.loads(done.stdout.splitlines()[-1])
    report(f"{name}: {found['steps']} steps, median {1000 * found['median_seconds']:.1f} ms")
    return found


def _slowdown(results: dict[str, Any]) -> dict[str, float]:
    """Median and mean step time beside the refresher over those alone, and of the two runs alone over each other."""
    alone, beside, again = (results[name] for name in RUNS)
    found = {}
    for which in ("median", "mean"):
        one, two, three = (each[f"{which}_seconds"] for each in (alone, beside, again))
        found |= {which: two / ((one + three) / 2), f"{which}_alone_again": three / one}
    return found


def show(results: dict[str, Any]) -> Table:
    """One row a run."""
    shown = Table(
        title=f"{results['blocks']:,} blocks, a snapshot every {results['interval']} steps", title_justify="left",
        box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    shown.add_column("run", no_wrap=True)
    for heading in (
        "steps",
        "ms a step\nmedian, mean, slowest",
        "generations",
        "age, steps\nmean, most",
        "blocked s",
        "snapshots\npublished, dropped, most there",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    for name in RUNS:
        one, ages = results[name], results[name]["ages"]
        times = (one["median_seconds"], one["mean_seconds"], one["slowest_seconds"])
        shown.add_row(
            name,
            str(one["steps"]),
            ", ".join(f"{1000 * seconds:.1f}" for seconds in times),
            str(ages["generations"]),
            f"{ages['age_mean']:.0f}, {ages['age_max']}",
            f"{ages['blocked_seconds']:.3f}",
            f"{one['published']}, {one['dropped_snapshots']}, {one['waiting_snapshots']}",
        )
    return shown


def said(results: dict[str, Any]) -> list[str]:
    """Each refresh, and the slowdown in words."""
    interval, lines = results["interval"], []
    for swap in results["beside"]["swaps"][1:]:
        lines.append(
            f"generation {swap['generation']}: adopted at step {swap['step']}, {swap['age']} steps "
            f"({swap['age'] / interval:.1f} intervals) after its snapshot; {swap['refresh_seconds']:.1f} s, "
            f"{swap['blocks_per_second']:.0f} blocks/s; the index it replaced was {swap['replaced_age']} steps old"
        )
    slow = results["slowdown"]
    lines.append(
        f"beside a refresher a step takes {slow['median']:.3f} times as long (median; mean {slow['mean']:.3f}); two "
        f"runs alone differ by {slow['median_alone_again']:.3f} (mean {slow['mean_alone_again']:.3f})"
    )
    return lines
