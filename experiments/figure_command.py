"""`realm figure`: the picture of a sweep, or of the ages of one run's index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.arguments import UsageError, make_room, parse, write_answer
from experiments.sweep_command import figure as figure_of_sweep


@dataclass(frozen=True)
class AgesOptions:
    """Draws the index age of a run against the step, in steps and seconds, adoptions marked; states the seconds that
    training was blocked."""

    what: Literal["ages"] = "ages"
    """What of the run."""
    png: Path = Path("ages.png")
    """The picture."""
    json: Path | None = None
    """Also write the numbers to this file: `steps`, `generations`, `age_mean`, `age_max`, `blocked_seconds`, ..."""


def figure(arguments: list[str]) -> int:
    """realm figure NAME | realm figure RUN --what ages"""
    if not arguments or not _of_a_run(arguments):
        return figure_of_sweep(arguments)
    run = Path(arguments[0])
    if not run.is_dir():
        raise UsageError(f"{run}: no such folder, wanted a run such as runs/sample or runs/sample/realm")
    given = parse(AgesOptions, arguments[1:], f"realm figure {run}")
    make_room(given.png)
    make_room(given.json)
    from experiments.ages import read_ages
    from experiments.figure import draw_ages

    ages = read_ages(run / "realm" if (run / "preset.json").exists() else run)
    draw_ages(ages, given.png)
    print(f"{ages.line()}; {given.png}")
    write_answer(given.json, ages.summary())
    return 0


def _of_a_run(arguments: list[str]) -> bool:
    """Whether a run is meant: where --what says so, or there is such a folder and no sweep of that name."""
    if any(one.partition("=")[0] == "--what" for one in arguments):
        return True
    if not Path(arguments[0]).is_dir():
        return False
    from experiments.sweeps import SWEEPS

    return arguments[0] not in SWEEPS
