"""What an actor of the `ray` engine does on its node: embed one shard at a time, or build the index.

It reads and writes the draft of a generation on shared storage, and knows nothing of Ray. Ray may start a second one
while the first, cut off from the cluster, is still writing: so everything is written under a name of its own and
renamed, and both give the same bytes.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PIECES = ".index-"


@dataclass(frozen=True)
class Task:
    """What a Hand is for. `folder`: the draft; `recipe`: pickled, it is read when jax has its `settings`; `path`: where
    its classes may be imported from; `cpu`: no accelerator was asked for."""

    folder: str
    recipe: bytes
    settings: dict[str, Any]
    path: tuple[str, ...]
    cpu: bool


class Hand:
    """Methods are called by Ray: `pulse` at any time from a second thread, the others one after another."""

    def __init__(self, task: Task) -> None:
        sys.path.extend(place for place in task.path if place not in sys.path)
        if task.cpu:
            os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        for name, value in task.settings.items():
            jax.config.update(name, value)
        if task.cpu:
            jax.config.update("jax_platforms", "cpu")
        self.folder, self.recipe = Path(task.folder), pickle.loads(task.recipe)
        self.table, self.embedder, self.done = None, None, 0

    def ready(self) -> int:
        """Puts the parameters on the device; the width of a vector."""
        from index_refresh.generation import ENCODER
        from index_refresh.snapshot import read_params

        self.table = self.recipe.open_table()
        self.embedder = self.recipe.embedder(self.table, read_params(self.folder / ENCODER))
        return self.embedder.dim

    def embed(self, name: str, low: int, high: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Writes the shard `name` of rows [low, high); (its record, this process's peaks)."""
        from index_refresh import files
        from index_refresh.build import peaks
        from index_refresh.embed import finish, write_vectors

        if self.embedder is None:  # Ray started this one anew for a shard of its predecessor's
            self.ready()
        self.done, started = 0, time.perf_counter()
        vector_NE = finish(self.embedder.shard(low, high, self._count))
        aside = self.folder / f".{name}.{uuid.uuid4().hex}.aside"
        record = write_vectors(self.recipe, self.table, aside, vector_NE, low)
        files.move(aside, self.folder / name)
        return record | {"file": name, "seconds": time.perf_counter() - started}, peaks()

    def build(self, folder: str, names: tuple[str, ...], rows: int, dim: int) -> tuple[Any, float, dict[str, Any]]:
        """Builds the index over these shards in `folder`; (the searcher's settings, seconds, this process's peaks)."""
        from index_refresh import files
        from index_refresh.build import build, peaks
        from index_refresh.vectors import StoredVectors

        target = Path(folder)
        piece = target.with_name(f"{PIECES}{uuid.uuid4().hex}")
        settings, seconds = build(
            self.recipe, piece, StoredVectors(self.folder, names, rows, dim, self.recipe.vector_dtype)
        )
        files.fsync_tree(piece)
        if target.exists():
            files.remove_tree(target)
        files.move(piece, target)
        return settings, seconds, peaks()

    def pulse(self) -> tuple[int, float]:
        """Rows done of the shard at hand, and processor seconds burnt: whether it lives."""
        return self.done, time.process_time()

    def _count(self, done: int) -> None:
        self.done = done
