"""The engines that the contract suite runs on, and how a test waits for an asynchronous one."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from index_refresh.claim import Claim
from index_refresh.external import External, TrainerSide
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from index_refresh.sync import Sync, silent
from index_refresh.worker import Worker
from tests.index_refresh.refresh_fakes import make_recipe


class Thread:
    """The refresher's loop in a thread of the test: what a stand-alone one does, without its start-up time."""

    def __init__(self, recipe, run):
        self.recipe, self.run, self.stopped = recipe, run, threading.Event()
        self.claim = Claim(run, on_loss=self.end)
        self.thread = None

    def wake(self):
        if self.thread is None:
            worker = Worker(self.run, self.recipe, stop=self.stopped.is_set, poll=0.01)
            self.thread = threading.Thread(target=worker.run)
            self.thread.start()

    def check(self): ...

    def end(self):
        self.stopped.set()
        if self.thread is not None:
            self.thread.join()
        self.claim.release()

    def facts(self):
        return {}


@dataclass(frozen=True)
class InThread(External):
    """External, with the refresher beside it."""

    def start(self, recipe, schedule, folder, *, report=silent):
        return TrainerSide(self, recipe, schedule, folder, report, Thread(recipe, Path(folder)), "external")


ENGINES = [Sync(keep=2), Interleave(batches=3, keep=2), InThread(keep=2), Process(keep=2, poll_seconds=0.02)]


def wait_until(true, seconds=60.0):
    """Polls; an AssertionError when it never comes."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def published(refresher, step, seconds=60.0):
    """The generation of `step`, waited for over as many step boundaries as an engine may need."""
    end, boundary = time.monotonic() + seconds, step
    while time.monotonic() < end:
        refresher.tick(boundary)
        newest = refresher.newest()
        if newest is not None and newest.step >= step:
            assert newest.step == step
            return newest
        boundary += 1
        time.sleep(0.01)
    raise AssertionError(refresher.status())


def work(run, recipe=None, said=None, **more):
    """Does what is there to do."""
    report = (lambda line: None) if said is None else said.append
    Worker(run, recipe or make_recipe(), stop=lambda: False, report=report, poll=0.01, **more).run(until_idle=True)
