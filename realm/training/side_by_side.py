"""How much an index changed: the same questions asked of the old one and of the new one."""

from __future__ import annotations

from typing import Any

import numpy as np

from realm.protocols import Hits, Searcher


class SideBySide:
    """A searcher that answers as `new` does and counts how many of its hits `old` gives too."""

    def __init__(self, new: Searcher, old: Searcher) -> None:
        self.new, self.old = new, old
        self.rows, self.dim, self.kind = new.rows, new.dim, new.kind
        self.k = self.same = self.asked = 0

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        """The new index's hits."""
        new, old = self.new.search(query_BE, k), self.old.search(query_BE, k)
        id_BK = np.where(old.valid_BK, old.id_BK, -1)
        shared_BK = new.valid_BK & (new.id_BK[:, :, None] == id_BK[:, None, :]).any(axis=2)
        self.k = k
        self.same += int(shared_BK.sum())
        self.asked += int(new.valid_BK.sum())
        return new

    def overlap(self) -> dict[str, float]:
        """{"overlap@k": share of the new top k that is in the old top k}, {} before any question."""
        return {f"overlap@{self.k}": self.same / self.asked} if self.asked else {}

    def settings(self) -> dict[str, Any]:
        return self.new.settings()

    def save(self, folder: Any) -> None:
        self.new.save(folder)
