"""A corpus, an embedder and an index for drills: numpy alone, so that a process of them starts, forks and dies at once.

Everything around them is the real thing: drafts, shards, checksums, manifests, order, retention.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from index_refresh import files
from index_refresh.recipe import Recipe
from realm.protocols import Hits, Params

ROWS, WIDTH, DIM = 23, 6, 5


@dataclass(frozen=True)
class DrillTokenizer:
    fingerprint: str = "drill-tokenizer"


class DrillTable:
    """ROWS blocks, each a bag of words."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.rows = self.indexed = ROWS
        self.fingerprint, self.tokenizer = "drill-corpus", DrillTokenizer()
        self.length_N = rng.integers(4, 20, ROWS).astype(np.int32)
        self.bag_NW = rng.integers(0, 3, (ROWS, WIDTH)).astype(np.float32)

    def block_id(self, row: int) -> str:
        return f"document-{row}:0"


@dataclass(frozen=True)
class DrillObjective:
    items: str = "blocks"


class DrillEmbedder:
    """tanh(bag @ words) @ out, row by row: no bit of it depends on batches."""

    dim = DIM

    def __init__(self, table: DrillTable, params: Params, batch: int, seconds: float) -> None:
        self.vector_NE, self.batch, self.seconds = vectors(table, params), batch, seconds

    def batches(self, low: int, high: int) -> Iterator[tuple[np.ndarray, int]]:
        for start in range(low, high, self.batch):
            yield np.arange(start, min(start + self.batch, high)) - low, 20

    def shard(
        self, low: int, high: int, tick: Callable[[int], None], reuse: None = None
    ) -> Generator[int, None, np.ndarray]:
        for row_N, _ in self.batches(low, high):
            time.sleep(self.seconds)
            tick(int(row_N[-1]) + 1)
            yield 1
        return self.vector_NE[low:high]


@dataclass(frozen=True)
class DrillRecipe(Recipe):
    """seconds: how long a batch takes, without using the processor."""

    seconds: float = 0.0

    def open_table(self) -> DrillTable:
        return DrillTable()

    def embedder(self, table: DrillTable, params: Params) -> DrillEmbedder:
        return DrillEmbedder(table, params, self.batch_rows, self.seconds)


@dataclass(frozen=True)
class DrillIndex:
    """All inner products; saves an array through numpy itself and a description, as the real kinds do."""

    def build(self, shards: Any, mesh: Any = None, rows: int | None = None) -> DrillSearcher:
        return DrillSearcher(np.concatenate([np.array(shard) for shard in shards]))

    def load(self, folder: Any, shards: Any, mesh: Any = None) -> DrillSearcher:
        norm_N = np.load(Path(folder) / "norms.npy", allow_pickle=False)
        searcher = self.build(shards)
        if not np.array_equal(norm_N, searcher.norm_N):
            raise ValueError(f"{folder}: found an index of other vectors")
        return searcher


class DrillSearcher:
    kind = "drill"

    def __init__(self, vector_NE: np.ndarray) -> None:
        self.vector_NE, self.norm_N = vector_NE, np.square(vector_NE).sum(1)
        self.rows, self.dim = vector_NE.shape

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        score_BN = query_BE @ self.vector_NE.T
        id_BK = np.argsort(-score_BN, axis=1, kind="stable")[:, :k].astype(np.int32)
        return Hits(np.take_along_axis(score_BN, id_BK, 1), id_BK, np.ones_like(id_BK, bool))

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def save(self, folder: Any) -> None:
        np.save(Path(folder) / "norms.npy", self.norm_N)
        files.put(Path(folder) / "index.json", json.dumps(self.settings()).encode())


def make_params(seed: int) -> Params:
    """A retriever of its own for every seed."""
    rng = np.random.default_rng(seed)
    words, out = (rng.normal(size=shape).astype(np.float32) for shape in ((WIDTH, WIDTH), (WIDTH, DIM)))
    return {"retriever": {"words": words, "layers": {0: out}}}


def vectors(table: DrillTable, params: Params) -> np.ndarray:
    """float32 [N, E]: what an index of these parameters must hold."""
    retriever = params["retriever"]
    return np.stack([np.tanh(bag_W @ retriever["words"]) @ retriever["layers"][0] for bag_W in table.bag_NW])


def make_recipe(**changes: Any) -> DrillRecipe:
    """Three shards of at most ten rows."""
    recipe = DrillRecipe(DrillObjective(), "drill", DrillIndex(), shard_rows=10, batch_rows=4, lengths=(20,))
    return replace(recipe, **changes)
