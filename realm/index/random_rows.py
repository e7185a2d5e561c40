"""A control, not an index: rows drawn at random, whatever is asked.

What a run gains over this one it gains by finding the right blocks, not by having blocks to read. The draw depends on
the bytes of the query vector, so that a resumed run is given the same rows again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from realm.index.index_bytes import FACTS, IndexBytes, piece_bytes
from realm.index.vectors import IndexLoadError, check_query, read_facts, read_shards, shape_of, write_facts
from realm.protocols import Hits


@dataclass(frozen=True)
class RandomRows:
    """Gives k different random rows. Scores fall from 0 in steps of 1: they mean nothing."""

    seed: int = 0

    def build(self, shards: Iterable[np.ndarray], mesh: Any = None, rows: int | None = None) -> RandomRowsSearcher:
        """Reads the vectors only to count and check them. Raises IndexBuildError as vectors.read_shards does."""
        total, dim = 0, 0
        for piece_NE in read_shards(shards, rows=rows):
            total, dim = total + len(piece_NE), piece_NE.shape[1]
        return RandomRowsSearcher(total, dim, self)

    def bytes_plan(self, rows: int, dim: int, devices: int = 1) -> IndexBytes:
        """It keeps nothing of the vectors."""
        return IndexBytes(FACTS, 0, 0, piece_bytes(rows, dim), 0)

    def load(self, folder: Any, shards: Iterable[np.ndarray], mesh: Any = None) -> RandomRowsSearcher:
        """Raises IndexLoadError for another kind, seed, rows or width."""
        facts = read_facts(folder, RandomRowsSearcher.kind)
        rows, dims = shape_of(shards)
        found, wanted = (facts["rows"], [facts["dim"]], facts.get("seed")), (rows, dims, self.seed)
        if found != wanted:
            raise IndexLoadError(f"{folder}: found rows, widths and seed {found}, wanted {wanted}")
        return RandomRowsSearcher(rows, dims[0], self)


@dataclass(frozen=True)
class RandomRowsSearcher:
    """See `realm.protocols.Searcher`."""

    rows: int
    dim: int
    config: RandomRows
    kind: ClassVar[str] = "random_rows"

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        """k different rows a query, all of them where k is larger. Raises QueryError."""
        query_BE = check_query(query_BE, self.dim, k)
        some, shape = min(k, self.rows), (len(query_BE), k)
        id_BK, valid_BK = np.zeros(shape, np.int32), np.zeros(shape, bool)
        for number, query_E in enumerate(query_BE):
            rng = np.random.default_rng([self.config.seed, zlib.crc32(query_E.tobytes())])
            id_BK[number, :some] = rng.choice(self.rows, some, replace=False, shuffle=True)
        valid_BK[:, :some] = True
        score_BK = np.broadcast_to(-np.arange(k, dtype=np.float32), shape)
        return Hits(np.where(valid_BK, score_BK, -np.inf).astype(np.float32), id_BK, valid_BK)

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "rows": self.rows, "dim": self.dim, "seed": self.config.seed}

    def save(self, folder: Any) -> None:
        """Writes `index.json` only."""
        write_facts(folder, self.settings())
