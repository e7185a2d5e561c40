"""Drill: power cuts over the generation store, embedding, building, retention, resume and the refresher's loop.

Every point forks a process, does a part of a run's life in it and cuts its power at a random disk operation. Then a
reader looks at the folder, the job is resumed (a third of the time into a second power cut), and what it ends with is
compared with the job that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.drill_fakes import DrillTable, make_params, make_recipe, vectors
from experiments.drill_power import CUT, PowerCut
from experiments.drill_scenarios import BEFORE, SCENARIOS, Scenario, adopt, publish, rewind
from experiments.drill_table import Row
from index_refresh.generation import MANIFEST, Generation, verify
from index_refresh.snapshot import SnapshotStore
from index_refresh.store import GenerationStore

LONGEST = 60  # seconds that any part may take


class DrillError(RuntimeError):
    """The drill itself does not work, so that it says nothing."""


class Crash:
    """The drill in one scratch folder; `rows`: the lines of the table, by scenario."""

    def __init__(self, scratch: Path, rng: np.random.Generator, scenarios: tuple[Scenario, ...]) -> None:
        self.scenarios, self.rng = scenarios, rng
        self.before, self.run = scratch / "before", scratch / "run"
        for slices in sorted({scenario.slices for scenario in scenarios}):
            acts = [
                *(partial(publish, step, step, slices=slices) for step in BEFORE),
                partial(adopt, 11, slices=slices),
            ]
            for act in acts:
                in_child(lambda tell, act=act, slices=slices: act(self.before / str(slices)), 0, rng)
        self.rows = {scenario.name: Row(f"power cut: {scenario.name}") for scenario in scenarios}
        self.whole: dict[str, dict[str, Any]] = {}
        self.boundaries: dict[str, int] = {}
        for scenario in scenarios:
            self.boundaries[scenario.name] = self._count(scenario)
            self.whole[scenario.name] = state(self.run)

    def point(self) -> None:
        """One power cut, looked at, resumed, and compared."""
        scenario = self.scenarios[self.rng.integers(len(self.scenarios))]
        at = int(self.rng.integers(1, self.boundaries[scenario.name] + 1))
        row = self.rows[scenario.name]
        row.tries += 1
        self._fresh(scenario)
        began = time.monotonic()
        status, done, _ = in_child(partial(act_out, scenario, self.run), at, self.rng)
        where = f"{scenario.name}, boundary {at}"
        if status != CUT:
            row.wrong(f"{where}: ended with status {status} instead of a power cut")
        self._look(scenario, row, where, scenario.acts[min(done, len(scenario.acts) - 1)][1])
        again = partial(resume, scenario, self.run)
        if self.rng.random() < 1 / 3:
            status, _, _ = in_child(again, int(self.rng.integers(1, self.boundaries[scenario.name] + 1)), self.rng)
            if status not in (CUT, 0):
                row.wrong(f"{where}: the resumed job ended with status {status}")
            self._look(scenario, row, where, None)
        status, _, _ = in_child(again, 0, self.rng)
        if status != 0:
            row.wrong(f"{where}: cannot be resumed, status {status}; what it said stands above")
            return
        self._compare(row, where, scenario, state(self.run))
        row.seconds += time.monotonic() - began

    def _look(self, scenario: Scenario, row: Row, where: str, newest: set[int] | None) -> None:
        """What a reader sees at once, before anybody tidies up."""
        try:
            store = GenerationStore(self.run, make_recipe(slices=scenario.slices))
            for generation in store.all():
                verify(generation)
                generation.query_params()
        except Exception as error:
            row.torn_seen(f"{where}: {type(error).__name__}: {error}")
            return
        if 0 not in store.numbers():
            row.lost_one(f"{where}: generation 0, which a checkpoint refers to, is gone")
        found = store.newest()
        if newest is not None and (found is None or found.step not in newest):
            row.wrong(f"{where}: the newest is {found}, wanted a step of {newest}")

    def _compare(self, row: Row, where: str, scenario: Scenario, found: dict[str, Any]) -> None:
        wanted = self.whole[scenario.name]
        apart = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
        if apart:
            row.wrong(f"{where}: {apart} differ from the undisturbed job")
        for generation in GenerationStore(self.run, make_recipe(slices=scenario.slices)).all():
            if not holds(generation, scenario.seeds):
                row.wrong(f"{where}: {generation} holds other vectors than its parameters give")

    def _count(self, scenario: Scenario) -> int:
        self._fresh(scenario)
        status, _, calls = in_child(partial(act_out, scenario, self.run), 0, self.rng)
        if status != 0:
            raise DrillError(f"{scenario.name} fails undisturbed, with status {status}")
        return calls

    def _fresh(self, scenario: Scenario) -> None:
        shutil.rmtree(self.run, ignore_errors=True)
        shutil.copytree(self.before / str(scenario.slices), self.run)


def act_out(scenario: Scenario, run: Path, tell: Callable[[], None]) -> None:
    for act, _ in scenario.acts:
        act(run)
        tell()


def resume(scenario: Scenario, run: Path, tell: Callable[[], None]) -> None:
    """What a trainer does that is started again from its checkpoint."""
    rewind(scenario.rewind, run, scenario.slices)
    act_out(scenario, run, tell)


def in_child(job: Callable[[Callable[[], None]], None], at: int, rng: np.random.Generator) -> tuple[int, int, int]:
    """(exit status, acts done, disk operations) of a forked process that does the job with a power cut at operation
    `at`, 0 for none. Its operations are counted only if it comes to its end."""
    seed = int(rng.integers(2**31))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            power = PowerCut(at, np.random.default_rng(seed))
            power.install()
            signal.alarm(LONGEST)
            job(lambda: os.write(writer, b"."))
            os.write(writer, str(power.calls).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    calls = told.lstrip(".")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told.count("."), int(calls or 0)


def state(run: Path) -> dict[str, Any]:
    """Everything that two equal jobs have in common: all but the times."""
    found: dict[str, Any] = {"folder": sorted(path.name for path in (run / "generations").iterdir())}
    for path in sorted((run / "generations").rglob("*")):
        if path.is_file():
            name = path.relative_to(run / "generations").as_posix()
            found[name] = timeless(json.loads(path.read_text())) if path.name == MANIFEST else path.read_bytes()
    found["snapshots"] = SnapshotStore(run).steps()
    found["log"] = [timeless(event) for event in GenerationStore(run, make_recipe()).log.events()]
    return found


def timeless(value: dict[str, Any]) -> dict[str, Any]:
    """Without what the clock and the machine had a part in."""
    gone = ("time", "taken", "checksum", "blocks_per_second")
    kept = {k: v for k, v in value.items() if k not in gone and not k.startswith(("seconds", "peak"))}
    if "shards" in kept:
        kept["shards"] = [timeless(shard) for shard in kept["shards"]]
    return kept


def is_right(generation: Generation, seed: int) -> bool:
    """Whether it holds, and finds, what the parameters of that seed give."""
    return holds(generation, {generation.step: seed})


def holds(generation: Generation, seeds: dict[int, int]) -> bool:
    """Whether it holds, and finds, what the parameters that `seeds` names for its steps give: of a rolling index every
    shard has its own."""
    table, low, parts = DrillTable(), 0, []
    for shard in generation.manifest["shards"]:
        seed = seeds.get(shard.get("step", generation.step))
        if seed is None:
            return False
        parts.append(vectors(table, make_params(seed))[low : low + shard["rows"]])
        low += shard["rows"]
    vector_NE = np.concatenate(parts)
    try:
        stored_NE = np.concatenate(list(generation.vectors()))
        hits = generation.searcher().search(vector_NE[:3], 4)
    except ValueError:
        return False
    wanted = np.argsort(-(vector_NE[:3] @ vector_NE.T), axis=1, kind="stable")[:, :4]
    return np.array_equal(stored_NE, vector_NE) and np.array_equal(hits.id_BK, wanted)


def crash_drill(
    scratch: Path, rng: np.random.Generator, points: int, scenarios: tuple[Scenario, ...] = SCENARIOS
) -> Iterator[Row]:
    """So many power cuts at random operations of random scenarios; one row a scenario."""
    crash = Crash(scratch, rng, scenarios)
    for _ in range(points):
        crash.point()
    yield from crash.rows.values()
