"""`realm refresh RUN`: the refresher as a job of its own; `realm drill`: what goes wrong with it, done on purpose;
`realm bench index`: the index kinds side by side; `realm bench overlap`: a trainer with a refresher beside it."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.arguments import UsageError, make_room, parse, run_and, write_answer


@dataclass(frozen=True)
class RefreshOptions:
    """Embeds and publishes what the trainer of RUN snapshots (a preset whose realm.refresh.engine, or
    open_qa's, is External).

    May start before the trainer and outlive its restarts; ends when the run is done. Only one works on a run."""

    poll: float = 2.0
    """Seconds between two looks at the folder."""
    until_idle: bool = False
    """End when no snapshot is waiting, instead of waiting for the next."""


def refresh(arguments: list[str]) -> int:
    """realm refresh RUN"""
    run, given = run_and(RefreshOptions, arguments, "refresh")
    from experiments.locate import open_retrieving
    from experiments.recipe_of import recipe_of
    from index_refresh.standalone import refresh_run

    folder, stage, table = open_retrieving(run)
    refresh_run(folder, recipe_of(stage, table), poll=given.poll, until_idle=given.until_idle)
    return 0


def drill(arguments: list[str]) -> int:
    """realm drill"""
    from experiments.drill import drill as run

    return run(arguments)


def bench(arguments: list[str]) -> int:
    """realm bench index, realm bench overlap"""
    if arguments and arguments[0] == "overlap":
        return overlap(arguments[1:])
    if not arguments or arguments[0] != "index":
        raise UsageError(
            "wanted `realm bench index [--rows N] [--kinds ...]` or `realm bench overlap [--blocks N]`; each has --help"
        )
    from experiments.bench_index import BenchIndex, bench_index

    given = parse(BenchIndex, arguments[1:], "realm bench index")
    make_room(given.json)
    bench_index(given)
    return 0


def overlap(arguments: list[str]) -> int:
    """realm bench overlap"""
    from experiments.bench_overlap import BenchOverlap, bench_overlap

    given = parse(BenchOverlap, arguments, "realm bench overlap")
    make_room(given.json)
    write_answer(given.json, bench_overlap(given))
    return 0
