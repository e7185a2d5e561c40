"""Drills of refreshers: two on one folder, a slow one, dead and hung ones, and clocks that jump."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.drill_crash import is_right
from experiments.drill_fakes import make_params, make_recipe
from experiments.drill_scenarios import publish
from experiments.drill_table import Row
from index_refresh import heartbeat
from index_refresh.claim import Claim, RefresherTaken
from index_refresh.external import External, TrainerSide
from index_refresh.schedule import Every
from index_refresh.snapshot import SnapshotStore
from index_refresh.store import GenerationStore
from index_refresh.worker import Worker

DAY = 86_400.0


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Polls; whether it came true."""
    end = time.monotonic() + seconds
    while not (came := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return came


@contextmanager
def beside(run: Path, seconds: float = 0.0) -> Iterator[Worker]:
    """A refresher in a thread, a batch taking `seconds`."""
    stopped = threading.Event()
    worker = Worker(run, make_recipe(seconds=seconds), stop=stopped.is_set, poll=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        stopped.set()
        thread.join()


def boundaries(trainer: TrainerSide, step: int, seconds: float = 60.0) -> bool:
    """Ticks until the generation of `step` is there; whether it came."""
    return wait_until(lambda: trainer.tick(step) or bool(trainer.newest() and trainer.newest().step >= step), seconds)


def clock_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """The wall clock jumps by up to a day, either way, between any two looks at it: a refresher that works is never
    called silent, one that has stopped is, and generations are right."""
    row, said = Row("clock jumps of up to a day"), []
    run, real = scratch / "clock", time.time
    trainer = External(hang_seconds=5.0).start(make_recipe(), Every(10), run, report=said.append)
    heartbeat.time = replaced_time(lambda: real() + float(rng.uniform(-DAY, DAY)))
    try:
        with beside(run):
            for number in range(tries):
                row.tries += 1
                trainer.publish(10 * number, make_params(number))
                if not boundaries(trainer, 10 * number):
                    row.wrong(f"no generation of step {10 * number}: {trainer.status()}")
                elif not is_right(trainer.newest(), number):
                    row.wrong(f"{trainer.newest()} is not right")
        row.wrong_results += sum("silent" in line for line in said)
        trainer.other.seconds = 0.1
        if not wait_until(lambda: trainer.tick(0) or any("silent" in line for line in said), 10):
            row.missed("a refresher that has ended was not found silent")
    finally:
        heartbeat.time = time
        trainer.close()
    return row


def replaced_time(wall: Callable[[], float]) -> object:
    """The time module, with another wall clock."""
    names = {name: staticmethod(getattr(time, name)) for name in ("monotonic", "perf_counter", "process_time", "sleep")}
    return type("Time", (), names | {"time": staticmethod(wall)})


def slow_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """A refresher slower than the schedule: nothing queues up, the newest snapshot wins, the dropped ones count."""
    row, said = Row("slow refresher"), []
    run = scratch / "slow"
    trainer = External().start(make_recipe(), Every(10), run, report=said.append)
    with beside(run, seconds=0.02):
        for number in range(tries):
            row.tries += 1
            trainer.publish(10 * number, make_params(number))
            trainer.tick(10 * number)
            time.sleep(0.03)
            if len(trainer.snapshots.steps()) > 3:
                row.wrong(f"step {10 * number}: snapshots {trainer.snapshots.steps()} have piled up")
        last = 10 * (tries - 1)
        if not boundaries(trainer, last) or not is_right(trainer.newest(), tries - 1):
            row.wrong(f"ended with {trainer.newest()}, wanted step {last}")
    steps = [generation.step for generation in trainer.store.all()]
    dropped = trainer.status()["dropped_snapshots"]
    if steps != sorted(steps) or len(steps) + dropped != tries:
        row.wrong(f"{len(steps)} generations and {dropped} dropped snapshots of {tries}")
    if dropped and not any(line.startswith("slow") for line in said):
        row.missed("nobody said that the refresher is slow")
    trainer.close()
    return row


def two_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Row:
    """Processes that all want to refresh one folder: one at a time does, the others are refused with its name."""
    row = Row("two refreshers on one folder")
    run = scratch / "two"
    publish(0, 0, run)
    for number in range(1, tries + 1):
        row.tries += 1
        reader, writer = os.pipe()
        children = [_rival(run, 10 * number, number, writer) for _ in range(3)]
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
        told = os.read(reader, 100).decode()
        os.close(reader)
        if sorted(told) != sorted("w" + "r" * (len(told) - 1)) or len(told) != 3:
            row.wrong(f"try {number}: {told!r}, wanted one to work (w) and the others to be refused (r)")
        if not is_right(GenerationStore(run, make_recipe()).newest(), number):
            row.wrong(f"try {number}: {GenerationStore(run, make_recipe()).newest()} is not right")
    return row


def _rival(run: Path, step: int, seed: int, writer: int) -> int:
    child = os.fork()
    if child == 0:
        told = b"e"
        try:
            claim = Claim(run)
            store = SnapshotStore(run)
            store.write(step, make_params(seed))
            Worker(run, make_recipe(seconds=0.05), stop=lambda: False, poll=0.01).run(until_idle=True)
            time.sleep(0.3)  # the slowest of the others must have asked by then
            claim.release()
            told = b"w"
        except RefresherTaken as error:
            told = b"r" if "pid" in str(error) else b"e"
        finally:
            os.write(writer, told)
            os._exit(0)
    return child


def child_drill(scratch: Path, rng: np.random.Generator, tries: int) -> Iterator[Row]:
    """A real child of the `process` engine that is killed, or stopped for good, half way: noticed and replaced."""
    from index_refresh.process import Process

    for what, number in (("killed", signal.SIGKILL), ("hung", signal.SIGSTOP)):
        row, said, began = Row(f"refresher child {what}"), [], time.monotonic()
        run = scratch / f"child-{what}"
        config = Process(restart_seconds=0.05, poll_seconds=0.02, keep=100)
        trainer = config.start(make_recipe(seconds=0.1), Every(10), run, report=said.append)
        for turn in range(tries):
            row.tries += 1
            step = 10 * turn
            trainer.publish(step, make_params(turn))
            wait_until(lambda: trainer.tick(step) or trainer.status()["state"] == "embedding")  # noqa: B023
            time.sleep(float(rng.uniform(0, 0.5)))
            os.kill(trainer.status()["pid"], number)
            if what == "hung":
                trainer.other.config = replace(config, hang_seconds=1.0)
                if not wait_until(lambda: trainer.tick(step) or trainer.status()["hangs"] == turn + 1, 30):  # noqa: B023
                    row.missed(f"turn {turn}: a hung child was not noticed")
                trainer.other.config = config
            if not boundaries(trainer, step) or not is_right(trainer.newest(), turn):
                row.wrong(f"turn {turn}: {trainer.newest()}: {trainer.status()['last_error']}")
        word = "SIGKILL" if what == "killed" else "of silence"
        if sum(word in line for line in said) < tries:
            row.missed(f"told {said}")
        trainer.close()
        row.seconds = time.monotonic() - began
        yield row
