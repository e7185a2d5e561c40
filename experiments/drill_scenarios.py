"""What a power cut may interrupt: parts of a run's life on the disk, each an act of trainer or refresher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.drill_fakes import make_params, make_recipe
from index_refresh.schedule import Every, Rolling
from index_refresh.snapshot import SnapshotStore
from index_refresh.store import GenerationStore
from index_refresh.sync import Sync, SyncRefresher
from index_refresh.worker import Worker

KEPT = {0, 2}  # the generations that kept checkpoints refer to
BEFORE = (0, 5, 10)  # steps of the generations before the drill
CHECKPOINT = 12
SLICES = 3  # of a rolling index: a shard each
OTHER = 500  # added to a step: the parameters of another course
Act = tuple[Callable[[Path], Any], set[int]]  # what happens, and which newest steps may be seen while it does


@dataclass(frozen=True)
class Scenario:
    """acts: in order. `seeds[step]`: the parameters that a step ends with. rewind: to where its job is resumed. slices:
    how many a generation divides the corpus into, of which it embeds one."""

    name: str
    acts: tuple[Act, ...]
    seeds: dict[int, int]
    rewind: int = CHECKPOINT
    slices: int = 1


def engine(run: Path, slices: int = 1) -> SyncRefresher:
    schedule = Every(5) if slices == 1 else Rolling(slices, 5)
    return Sync(keep=2).start(make_recipe(slices=slices), schedule, run)


def publish(step: int, seed: int, run: Path, slices: int = 1) -> None:
    refresher = engine(run, slices)
    refresher.publish(step, make_params(seed))
    refresher.close()


def adopt(step: int, run: Path, slices: int = 1) -> None:
    refresher = engine(run, slices)
    refresher.adopted(refresher.newest(), step, KEPT)
    refresher.close()


def rewind(step: int, run: Path, slices: int = 1) -> None:
    refresher = engine(run, slices)
    store = SnapshotStore(run)
    store.remove([waiting for waiting in store.steps() if waiting > step])
    refresher.rewind(step)
    refresher.close()


def snapshots(steps: tuple[int, ...], run: Path) -> None:
    """The trainer's side of an asynchronous engine: hands over, unless that is done already."""
    newest, store = GenerationStore(run, make_recipe()).newest(), SnapshotStore(run)
    for step in steps:
        if newest is None or newest.step < step:
            store.write(step, make_params(step))


def work(run: Path) -> None:
    """The refresher's loop, and the trainer that notes what came of it."""
    Worker(run, make_recipe(), stop=lambda: False, poll=0.001).run(until_idle=True)
    GenerationStore(run, make_recipe()).log_published()


def _publish(step: int, seed: int, newest: set[int], slices: int = 1) -> Act:
    return partial(publish, step, seed, slices=slices), newest | {step}


SCENARIOS = (
    Scenario(
        "publish, adopt, delete",
        (
            _publish(20, 20, {10}),
            (partial(adopt, 21), {20}),
            _publish(30, 30, {20}),
            (partial(adopt, 31), {30}),
        ),
        {0: 0, 10: 10, 20: 20, 30: 30},
    ),
    Scenario(
        "resume, taking back",
        ((partial(rewind, 3), {0, 5, 10}), _publish(5, 5, {0}), _publish(10, 10, {5})),
        {0: 0, 5: 5, 10: 10},
        rewind=3,
    ),
    Scenario(
        "resume, another course",
        ((partial(rewind, 3), {0, 5, 10}), _publish(5, 5 + OTHER, {0}), _publish(10, 10 + OTHER, {5})),
        {0: 0, 5: 5 + OTHER, 10: 10 + OTHER},
        rewind=3,
    ),
    Scenario(
        "the refresher's loop",
        (
            (partial(snapshots, (20, 30)), {10}),
            (work, {10, 30}),
            (partial(snapshots, (40,)), {30}),
            (work, {30, 40}),
            (partial(adopt, 41), {40}),
        ),
        {0: 0, 10: 10, 30: 30, 40: 40},
    ),
    Scenario(
        "a rolling index",
        (
            _publish(20, 20, {10}, SLICES),
            (partial(adopt, 21, slices=SLICES), {20}),
            _publish(30, 30, {20}, SLICES),
            _publish(40, 40, {30}, SLICES),
            (partial(adopt, 41, slices=SLICES), {40}),
        ),
        {0: 0, 5: 5, 10: 10, 20: 20, 30: 30, 40: 40},
        slices=SLICES,
    ),
    Scenario(
        "a rolling index, another course",
        (
            (partial(rewind, 3, slices=SLICES), {0, 5, 10}),
            _publish(5, 5 + OTHER, {0}, SLICES),
            _publish(10, 10 + OTHER, {5}, SLICES),
        ),
        {0: 0, 5: 5 + OTHER, 10: 10 + OTHER},
        rewind=3,
        slices=SLICES,
    ),
)
