"""`realm refresh RUN`: the refresher as a job of its own; `realm drill`: what goes wrong with it, done on purpose;
`realm bench index`: the index kinds side by side."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.arguments import UsageError, make_room, parse, run_and


@dataclass(frozen=True)
class RefreshOptions:
    """Embeds and publishes what the trainer of RUN snapshots (a preset whose realm.refresh.engine is External).

    May start before the trainer and outlive its restarts; ends when the run is done. Only one works on a run."""

    poll: float = 2.0
    """Seconds between two looks at the folder."""
    until_idle: bool = False
    """End when no snapshot is waiting, instead of waiting for the next."""


def refresh(arguments: list[str]) -> int:
    """realm refresh RUN"""
    run, given = run_and(RefreshOptions, arguments, "refresh")
    from experiments.locate import open_retrieving
    from experiments.pipeline import recipe_of
    from index_refresh.standalone import refresh_run

    folder, stage, table = open_retrieving(run)
    refresh_run(folder, recipe_of(stage, table), poll=given.poll, until_idle=given.until_idle)
    return 0


def drill(arguments: list[str]) -> int:
    """realm drill"""
    from experiments.drill import drill as run

    return run(arguments)


def bench(arguments: list[str]) -> int:
    """realm bench index"""
    if not arguments or arguments[0] != "index":
        raise UsageError("wanted `realm bench index [--rows N] [--kinds ...]` (realm bench index --help)")
    from experiments.bench_index import BenchIndex, bench_index

    given = parse(BenchIndex, arguments[1:], "realm bench index")
    make_room(given.json)
    bench_index(given)
    return 0
