"""`realm sweep NAME` and `realm figure NAME`: controls and ablations over seeds, as a table and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.arguments import HELP_FLAGS, UsageError, make_room, parse, write_answer


@dataclass(frozen=True)
class SweepOptions:
    """Runs the variants of a sweep with several seeds, or what is left of them, and prints the table."""

    out: Path | None = None
    """Folder of the sweep; runs/NAME by default. A killed sweep goes on where it was."""
    seeds: int = 3
    """Seeds 0 to this minus 1, for every variant."""
    jobs: int = 1
    """Runs beside each other; the cores are divided among them."""
    only: tuple[str, ...] = ()
    """Only these variants (and the first one, with which they are compared)."""
    json: Path | None = None
    """Also write the table to this file: `rows`, each with its `variant` and `values`, and every run's numbers."""


@dataclass(frozen=True)
class FigureOptions:
    """Draws a finished sweep: recall, utility and index age against the step."""

    out: Path | None = None
    """Folder of the sweep; runs/NAME by default."""
    png: Path = Path("facts.png")
    """The picture."""
    variants: tuple[str, ...] = ("realm", "gradient stopped", "never refreshed")
    """Which variants."""


def sweep(arguments: list[str]) -> int:
    """realm sweep NAME"""
    name = _name(arguments, "sweep")
    given = parse(SweepOptions, arguments[1:], f"realm sweep {name}")
    make_room(given.json)
    from experiments.sweep import run_sweep
    from experiments.sweeps import SWEEPS

    found = run_sweep(SWEEPS[name](), name, given.out or Path("runs") / name, given.seeds, given.jobs, given.only)
    write_answer(given.json, found)
    return 0


def figure(arguments: list[str]) -> int:
    """realm figure NAME"""
    name = _name(arguments, "figure")
    given = parse(FigureOptions, arguments[1:], f"realm figure {name}")
    make_room(given.png)
    from experiments.figure import draw

    draw(name, given.out or Path("runs") / name, given.variants, given.png)
    return 0


def _name(arguments: list[str], verb: str) -> str:
    from experiments.sweeps import SWEEPS, card

    if not arguments or arguments[0] in HELP_FLAGS:
        sweeps = "\n".join(f"  {name}: {card(name)}" for name in SWEEPS)
        print(f"usage: realm {verb} NAME [--out DIR] [--FIELD VALUE ...]\n{sweeps}")
        raise SystemExit(0 if arguments else 2)
    if arguments[0] not in SWEEPS:
        raise UsageError(f"no sweep {arguments[0]!r}: wanted one of {', '.join(SWEEPS)}")
    return arguments[0]
