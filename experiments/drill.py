"""`realm drill`: what goes wrong with long jobs, done to the refresher on purpose, and a table of the result.

Power cuts at random disk operations, kill -9 of real trainers and refreshers, hangs, slow refreshers, a full disk,
damaged files, clocks that jump, two refreshers on one folder. What must be 0: torn generations, lost checkpoints, wrong
results, and trouble that nobody was told of.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.arguments import UsageError, make_room, parse, write_answer
from experiments.drill_crash import crash_drill
from experiments.drill_files import damage_drill, file_limit_drill, full_disk_drill
from experiments.drill_kill import kill_drill
from experiments.drill_refreshers import child_drill, clock_drill, slow_drill, two_drill
from experiments.drill_table import Row, as_json, show

SHORT = 0.04  # share of the full number of tries


@dataclass(frozen=True)
class Drill:
    """Does to a refresher what goes wrong with long jobs; exit code 1 if it, or its trainer, ever came to harm."""

    seed: int = 0
    """Of everything random: the same troubles at the same places (kills of real processes come when they come)."""
    short: bool = False
    """A twenty-fifth of the tries, and no kills of whole training jobs: under a minute."""
    points: int = 1200
    """Power cuts."""
    kills: int = 22
    """Kills for each of two training jobs."""
    json: Path | None = None
    """Also write the table to this file: `seed`, `sound`, `sums`, and `rows` with their `notes`."""


def rows_of(drill: Drill, scratch: Path) -> Iterator[Row]:
    """Each row when it is known. Processes are forked first, while this one has neither threads nor jax."""
    rng, share = np.random.default_rng(drill.seed), SHORT if drill.short else 1.0

    def times(full: int) -> int:
        return max(1, round(full * share))

    single: list[tuple[Callable[..., Row], int]] = [
        (damage_drill, 1000),
        (full_disk_drill, 200),
        (file_limit_drill, 25),
        (two_drill, 25),
        (clock_drill, 50),
        (slow_drill, 100),
    ]
    yield from crash_drill(scratch, rng, times(drill.points))
    for kind, full in single:
        began = time.monotonic()
        row = kind(scratch, rng, times(full))
        row.seconds = time.monotonic() - began
        yield row
    yield from child_drill(scratch, rng, times(10))
    if not drill.short:
        yield from kill_drill(scratch, rng, drill.kills)


def drill(arguments: list[str]) -> int:
    """realm drill"""
    given = parse(Drill, arguments, "realm drill")
    if given.points < 1 or given.kills < 1:
        raise UsageError(f"found --points {given.points} --kills {given.kills}, wanted at least 1 of each")
    make_room(given.json)
    print(f"seed {given.seed}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="realm-drill-") as scratch:
        for row in rows_of(given, Path(scratch)):
            print(f"{row.name}: {row.tries} tries, {'sound' if row.sound else 'NOT SOUND'}", file=sys.stderr)
            rows.append(row)
    show(rows, f"Drill, seed {given.seed}")
    answer = as_json(rows, seed=given.seed)
    write_answer(given.json, answer)
    return 0 if answer["sound"] else 1


if __name__ == "__main__":
    sys.exit(drill(sys.argv[1:]))
