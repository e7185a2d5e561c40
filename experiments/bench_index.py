"""`realm bench index`: index kinds side by side on the same vectors, each phase in a process of its own.

Phases of a kind: build (and save), cold load (files put out of the page cache), warm load, search, and swap, which has
two generations in memory at once. Results are written after every phase, and a second call goes on where the first
stopped; a phase that failed is tried again.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from experiments.bench_phases import PHASES, index_of
from experiments.bench_vectors import DESCRIPTION
from experiments.console import wide_console
from index_refresh import files

RESULT = "result.json"


class BenchError(ValueError):
    """A benchmark that cannot be run as asked."""


@dataclass(frozen=True)
class BenchIndex:
    """Queries a second, recall against exact search, seconds to build and load, bytes and peak memory of index kinds.

    On clustered vectors by default, on a generation's with --vectors. Interrupted, the same command goes on.
    """

    rows: int = 10_000
    """How many clustered vectors."""
    dim: int = 128
    """Their width."""
    queries: int = 256
    """How many queries; recall is measured on all of them."""
    kinds: tuple[str, ...] = ("exact", "scann", "alsh", "sharded-scann")
    """Of exact, scann, alsh, alsh-sign, alsh-l2, sharded-exact, sharded-scann, sharded-alsh."""
    k: int = 8
    """Hits a query."""
    batch: int = 256
    """Queries a call; one by one is measured too."""
    shards: int | None = None
    """Parts of the sharded kinds; by default at most 1.5 million rows each, and two at least."""
    leaf_shares: tuple[float, ...] = (0.01, 0.02, 0.05)
    """Further points of ScaNN: shares of its leaves that are searched (a tenth by default), where it has leaves."""
    vectors: Path | None = None
    """A generation's folder (RUN/generations/...), instead of clustered vectors."""
    query_vectors: Path | None = None
    """A .npy of float queries [n, dim]; by default stored rows with noise."""
    seconds: float = 2.0
    """How long each rate is measured."""
    seed: int = 0
    """Of vectors and queries."""
    work: Path | None = None
    """Where vectors, indexes and results lie; runs/bench/ROWSxDIM by default. Vectors and indexes can be deleted."""
    json: Path | None = None
    """Also write all results to this file: `spec`, `machine`, `vectors`, `truth`, `kinds` -> phase -> numbers."""


def bench_index(given: BenchIndex, report: Callable[[str], None] = print) -> dict[str, Any]:
    """Runs what is not yet there, prints the table and returns all results.

    Raises BenchError: unknown kinds, impossible numbers, results of another benchmark in the same folder.
    """
    _check(given)
    name = given.vectors.resolve().name if given.vectors else f"{given.rows}x{given.dim}"
    work = given.work or Path("runs") / "bench" / name
    folder = given.vectors or work / "vectors"
    spec = {key: getattr(given, key) for key in ("dim", "queries", "k", "batch", "shards", "leaf_shares", "seed")}
    spec |= {"rows": given.rows, "seconds": given.seconds, "vectors": str(folder)}
    spec["leaf_shares"] = list(given.leaf_shares)
    spec["query_vectors"] = None if given.query_vectors is None else str(given.query_vectors)
    work.mkdir(parents=True, exist_ok=True)
    results = _begun(work / RESULT, spec)
    common = spec | {"work": str(work)}
    made = (folder / DESCRIPTION).exists() or given.vectors
    for phase in ("vectors", "truth"):
        there = "peak" in results[phase] and (made if phase == "vectors" else (work / "truth.npz").exists())
        if not there:
            results[phase] = _phase(common | {"kind": None, "phase": phase}, phase, report)
            files.write_json(work / RESULT, results)
        if "error" in results[phase]:
            raise BenchError(f"{phase}: {results[phase]['error']}")
    for kind in given.kinds:
        done = results["kinds"].setdefault(kind, {})
        for phase in PHASES:
            if "peak" in done.get(phase, {}) and (phase != "build" or (work / kind / "index.json").exists()):
                continue
            done[phase] = _phase(common | {"kind": kind, "phase": phase}, f"{kind} {phase}", report)
            files.write_json(work / RESULT, results)
            if "error" in done[phase]:
                break
    wide_console().print(table(results, given.kinds))
    for line in overhead_lines(results, given.kinds):
        report(line)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def _check(given: BenchIndex) -> None:
    for name in ("rows", "dim", "queries", "k", "batch"):
        if getattr(given, name) < 1:
            raise BenchError(f"--{name} is {getattr(given, name)}, wanted at least 1")
    if not all(0 < share <= 1 for share in given.leaf_shares):
        raise BenchError(f"--leaf-shares are {given.leaf_shares}, wanted above 0 and at most 1")
    for kind in given.kinds:
        try:
            index_of(kind, given.rows, given.dim, given.shards)
        except KeyError:
            raise BenchError(f"no kind {kind!r}; realm bench index --help names them") from None


def _begun(path: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """The results so far, or empty ones. Raises BenchError where they are of another benchmark."""
    if not path.exists():
        return {"spec": spec, "machine": machine(), "vectors": {}, "truth": {}, "kinds": {}}
    results = files.read_json(path)
    for name, wanted in spec.items():
        found = results["spec"].get(name)
        if found != wanted:
            raise BenchError(f"{path} is of {name} {found}, wanted {wanted}: give another --work, or delete the folder")
    return results


def machine() -> dict[str, Any]:
    """Processor, cores and versions that the numbers of a benchmark are of."""
    info = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    packages = ("numpy", "jax", "scann")
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in packages},
    }


def _phase(spec: dict[str, Any], title: str, report: Callable[[str], None]) -> dict[str, Any]:
    """One phase in a child process; {"error": why} where it failed."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench_phases", json.dumps(spec)], capture_output=True, text=True
    )
    took = time.perf_counter() - started
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        why = f"exit {done.returncode}: {last[0]}" if done.returncode > 0 else f"killed by signal {-done.returncode}"
        report(f"{title:22s} {took:7.1f} s  FAILED, {why}")
        return {"error": why}
    result = json.loads(done.stdout.splitlines()[-1])
    report(f"{title:22s} {took:7.1f} s  peak {_gigabytes(result['peak'])} GB{_remark(result)}")
    return result | {"seconds_process": took}


def _remark(result: dict[str, Any]) -> str:
    if "recall" in result:
        return f", recall {result['recall']:.3f}, {result['per_second']:,.0f} queries/s"
    return "" if result.get("seconds") is None else f", {result['seconds']:.2f} s of work"


def table(results: dict[str, Any], kinds: tuple[str, ...]) -> Table:
    """One row a kind and, for ScaNN with leaves, one for each share of them; GB are 10^9 bytes."""
    facts, spec, machine = results["vectors"], results["spec"], results["machine"]
    rows = facts["rows"]
    title = (
        f"{rows:,} x {facts['dim']} vectors, {facts['dtype']}, {facts['bytes'] / rows:.0f} bytes a row; "
        f"{results['truth']['queries']} queries; {machine['cores']} cores of {machine['processor']}"
    )
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    shown.add_column("index", no_wrap=True)
    for heading in (
        f"queries/s\nby {spec['batch']}",
        "times\nexact",
        "queries/s\nby one",
        f"recall\n@{spec['k']}",
        "build s\n+ save",
        "load s\ncold, warm",
        "bytes a row\ndisk, loaded",
        "peak GB: build, save,\nload, search, swap",
    ):
        shown.add_column(heading, justify="right", no_wrap=True)
    reference = results["kinds"].get("exact", {}).get("search", {}).get("per_second")
    for kind in kinds:
        done = results["kinds"].get(kind, {})
        wrong = next((f"{phase}: {done[phase]['error']}" for phase in done if "error" in done[phase]), None)
        if wrong is not None:
            shown.add_row(kind, wrong)
            continue
        build, cold, warm, search, swap = (done[phase] for phase in PHASES)
        peaks = (build["peak"], build["peak_save"], max(cold["peak"], warm["peak"]), search["peak"], swap["peak"])
        shown.add_row(
            kind,
            *_rates(search, reference),
            f"{build['seconds']:.1f} + {build['seconds_save']:.1f}",
            f"{cold['seconds']:.1f}, {warm['seconds']:.1f}",
            f"{build['bytes'] / rows:.0f}, {warm['bytes_loaded'] / rows:.0f}",
            ", ".join(map(_gigabytes, peaks)),
        )
        for point in search["curve"]:
            shown.add_row(f"  {point['share']:.0%} of leaves", *_rates(point, reference))
    return shown


def _rates(point: dict[str, float], reference: float | None) -> tuple[str, ...]:
    ratio = "" if reference is None else f"{point['per_second'] / reference:.1f}"
    return f"{point['per_second']:,.0f}", ratio, f"{point['per_second_one']:,.0f}", f"{point['recall']:.3f}"


def overhead_lines(results: dict[str, Any], kinds: tuple[str, ...]) -> list[str]:
    """What our search adds to scann's own, measured in one process in turn."""
    lines = []
    for kind in kinds:
        for size, raw in sorted(results["kinds"].get(kind, {}).get("search", {}).get("raw", {}).items(), key=_size):
            rates = f"scann itself {raw['per_second']:,.0f} queries/s, ours {raw['ours_per_second']:,.0f}"
            lines.append(f"{kind}, batch {size}: {rates}: overhead {raw['overhead']:+.1%} ({raw['calls']} calls each)")
    return lines


def _size(item: tuple[str, Any]) -> int:
    return int(item[0])


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f}"
