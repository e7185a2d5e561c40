"""The refresher as the other processes of a job see it: one process publishes and keeps order, these only read.

They read the run folder, which all processes share. Shared storage shows a new file to some machines later than to
others; who asks for a generation by number waits for it (`realm.training.together`), whichever process it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from index_refresh.external import LOOK
from index_refresh.generation import Generation
from index_refresh.heartbeat import read_heartbeat
from index_refresh.recipe import Recipe
from index_refresh.store import GenerationStore
from index_refresh.sync import facts
from realm.protocols import GenerationLike, Params


class Follower:
    """See `realm.protocols.Refresher`; what changes anything is left to the process that leads."""

    asynchronous = True

    def __init__(self, recipe: Recipe, folder: str | Path, max_age: int | None = None) -> None:
        self.store, self.max_age = GenerationStore(folder, recipe), max_age
        self.seen: Generation | None = None
        self.looked = 0.0

    def tick(self, step: int) -> None:
        """Nothing to look after."""

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        """Never: the process that leads follows the schedule."""
        return False

    def publish(self, step: int, params: Params) -> None:
        """The process that leads has the same parameters, and publishes them."""

    def newest(self) -> Generation | None:
        """The latest published generation, None before the first; looked for on the disk a few times a second."""
        if time.monotonic() - self.looked >= LOOK:
            self.looked = time.monotonic()
            self.seen = self.store.later(self.seen) or self.seen  # the process that leads tells of what is left out
        return self.seen

    def open(self, number: int) -> Generation:
        """A published generation by number. Raises GenerationMissing, GenerationCorrupt."""
        return self.store.open(number)

    def adopted(self, generation: GenerationLike, step: int, kept: Collection[int] = ()) -> None:
        """Logged by the process that leads."""

    def rewind(self, step: int) -> None:
        """Done by the process that leads; what was seen before is forgotten."""
        self.seen, self.looked = None, 0.0

    def status(self) -> dict[str, Any]:
        """Numbers for logs, as of the refresher's last heartbeat."""
        beat = read_heartbeat(self.store.run) or {}
        return {
            "engine": "follower",
            "state": beat.get("state", "absent"),
            "published": 0,
            "dropped_snapshots": beat.get("dropped", 0),
            "last_error": beat.get("last_error"),
            "hopeless": False,
        } | facts(self.store, self.newest())

    def close(self) -> None:
        """Nothing is held."""
