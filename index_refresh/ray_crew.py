"""The actors of the `ray` engine, seen from its driver: who embeds what, who lives, and who takes over.

Nothing here waits for one actor alone. Restarts and repeated calls are Ray's; only where Ray finds no room for an actor
that it lost does an idle one get its shard.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index_refresh.child import SETTINGS
from index_refresh.draft import Draft
from index_refresh.ray_hand import Hand, Task
from index_refresh.recipe import Recipe

if TYPE_CHECKING:
    from index_refresh.ray_engine import Ray

PULSE = 0.5  # seconds between two questions to an actor whether it lives
LOST = 10.0  # seconds without an answer after which an idle actor takes over its shard


def _task(recipe: Recipe, folder: Path, cpu: bool) -> Task:
    import jax

    settings = {name: getattr(jax.config, name) for name in SETTINGS}
    return Task(str(folder), pickle.dumps(recipe), settings, tuple(sys.path), cpu)


class Crew:
    """The actors that embed one generation."""

    def __init__(self, ray: Any, config: Ray, recipe: Recipe, draft: Draft) -> None:
        self.ray = ray
        kind = ray.remote(Hand).options(
            num_cpus=config.shard_cpus,
            num_gpus=config.shard_gpus,
            resources=config.shard_resources,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=2,
        )
        task = _task(recipe, draft.folder, not (config.shard_gpus or config.shard_resources))
        self.hands = [kind.remote(task) for _ in range(config.actors)]
        self.starting = {hand.ready.remote(): hand for hand in self.hands}
        self.pulses = Pulses(ray)
        self.idle: list[Any] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self.hands:
            self.ray.kill(hand)

    def width(self) -> int:
        """Waits for the first actor; the width of its vectors."""
        (first,), _ = self.ray.wait(list(self.starting), num_returns=1)
        self.idle.append(self.starting.pop(first))
        return self.ray.get(first)

    def embed(
        self, spans: dict[str, tuple[int, int]], tick: Callable[[int], None]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The records of the shards `spans` = {name: (low, high)} and the peaks, as they are finished. `tick` hears how
        many rows of unfinished ones are done, whenever an actor is seen to work."""
        waiting, running, unfinished = deque(spans), {}, set(spans)
        while unfinished:
            while self.idle and (name := self._next(waiting, running, unfinished)):
                hand = self.idle.pop()
                running[hand.embed.remote(name, *spans[name])] = (hand, name)
            busy = [hand for hand, _ in running.values()]
            done, _ = self.ray.wait([*self.starting, *running], num_returns=1, timeout=PULSE)
            for ref in done:
                if ref in self.starting:
                    self.ray.get(ref)
                    self.idle.append(self.starting.pop(ref))
                    continue
                hand, name = running.pop(ref)
                record = self.ray.get(ref)
                self.idle.append(hand)
                if name in unfinished:
                    unfinished.remove(name)
                    yield record
            if self.pulses.ask(busy):
                tick(sum(self.pulses.rows(hand) for hand, name in running.values() if name in unfinished))

    def _next(self, waiting: deque[str], running: dict[Any, tuple[Any, str]], unfinished: set[str]) -> str | None:
        """The next shard nobody has; else one whose actor does not answer and that nobody else has taken over."""
        if waiting:
            return waiting.popleft()
        names = [name for _, name in running.values()]
        for hand, name in running.values():
            if name in unfinished and names.count(name) == 1 and self.pulses.silence(hand) > LOST:
                return name
        return None


class Pulses:
    """Whether actors live: each is asked again when it has answered, and nobody waits for the answer."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.asked: dict[Any, Any] = {}  # hand -> the question it has not answered
        self.told: dict[Any, tuple[int, float]] = {}
        self.heard: dict[Any, float] = {}
        self.last = 0.0

    def ask(self, hands: list[Any]) -> bool:
        """Whether any of these has made progress, or burnt processor time, since the last time."""
        if time.monotonic() - self.last < PULSE:
            return False
        self.last, moved = time.monotonic(), False
        for hand in hands:
            self.heard.setdefault(hand, self.last)
            if hand not in self.asked:
                self.asked[hand] = hand.pulse.remote()
                continue
            if not self.ray.wait([self.asked[hand]], timeout=0)[0]:
                continue
            told = self.ray.get(self.asked.pop(hand))
            moved |= told != self.told.get(hand)
            self.told[hand], self.heard[hand] = told, self.last
            self.asked[hand] = hand.pulse.remote()
        return moved

    def rows(self, hand: Any) -> int:
        return self.told.get(hand, (0, 0.0))[0]

    def silence(self, hand: Any) -> float:
        return time.monotonic() - self.heard.get(hand, time.monotonic())


class Builder:
    """The actor that builds one index."""

    def __init__(self, ray: Any, config: Ray, recipe: Recipe, folder: Path) -> None:
        self.ray = ray
        kind = ray.remote(Hand).options(
            num_cpus=config.build_cpus,
            resources=config.build_resources,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=2,
        )
        self.hand = kind.remote(_task(recipe, folder, not config.build_resources))

    def build(self, work: tuple[Any, ...], alive: Callable[[], None]) -> tuple[Any, float, dict[str, Any]]:
        pulses, ref = Pulses(self.ray), self.hand.build.remote(*work)
        try:
            while not self.ray.wait([ref], timeout=PULSE)[0]:
                if pulses.ask([self.hand]):
                    alive()
            return self.ray.get(ref)
        finally:
            self.ray.kill(self.hand)
