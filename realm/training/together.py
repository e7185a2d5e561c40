"""Going over to a new index in a job of several processes: all of them, at one step boundary, when all have it open.

The target is the newest generation that any process has seen. Each opens it beside its steps and says so in its
ballots; when the smallest of them names the target, all go over. Where one cannot open it, all leave it. Storage that
several machines share shows a new folder to some of them late, or in part at first, so it is looked for with patience.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from realm.protocols import GenerationLike
from realm.training.opener import Opened, Opener
from realm.training.processes import NONE, Ballot

PATIENCE = 60.0  # seconds that shared storage may take to show a generation, and all of it
LOOK = 0.2  # seconds between two looks for it


class Together:
    """What one process knows of it. `look` gives a published generation by number, or raises at once."""

    def __init__(self, opener: Opener, look: Callable[[int], GenerationLike], patience: float = PATIENCE) -> None:
        self.opener, self.look, self.patience = opener, look, patience
        self.target: int | None = None
        self.left = NONE  # the last generation that one of the processes could not open
        self.ready: Opened | None = None

    def ballot(self) -> int:
        """What this process says of the target: its number when it is open, a number below NONE where it cannot be."""
        if self.target is None:
            return NONE
        if self.opener.refused == self.target:
            return NONE - 1 - self.target
        return NONE if self.ready is None else self.target

    def open(self, count: Ballot, adopted: int) -> Opened | None:
        """The generation that every process goes over to at this boundary, or None. count: of the last ballots."""
        if self.target is None and count.newest > max(adopted, self.left):
            self.target = count.newest
        if self.target is None:
            return None
        if count.opened == NONE - 1 - self.target:
            self.left, self.target, self.ready = self.target, None, None
            return None
        if count.opened == self.target:
            ready, self.target, self.ready = self.ready, None, None
            return ready
        if self.ready is None and self.opener.refused != self.target:
            opened = self.opener.find_beside(self.target, self.find)
            if opened is not None and opened.generation.number == self.target:  # not one that all left meanwhile
                self.ready = opened
        return None

    def find(self, number: int) -> GenerationLike:
        """A published generation by number, waited for. Raises what `look` raises after so many seconds."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return self.look(number)
            except (OSError, ValueError):  # missing, or a part of it is
                if time.monotonic() >= until:
                    raise
            time.sleep(LOOK)
