"""Vectors cut anew for the parts of an index: shards come in any length, and a part wants its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RowsFrom:
    """Stored vectors counted from row `start`."""

    vectors: Any
    start: int

    def take(self, row_N: np.ndarray) -> np.ndarray:
        return self.vectors.take(row_N + self.start)


@dataclass(frozen=True, eq=False)
class Part:
    """The next `rows` rows of a stream, as shards that know their shape; read once, or not at all."""

    stream: Stream
    rows: int
    dim: int

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.stream.read(self.rows)


class Stream:
    """Arrays [n, E] cut anew at part boundaries, without a copy."""

    def __init__(self, pieces: Iterator[np.ndarray], dim: int):
        self.pieces, self.dim, self.rest_NE = pieces, dim, None

    def take(self, rows: int) -> Part:
        return Part(self, rows, self.dim)

    def read(self, rows: int) -> Iterator[np.ndarray]:
        while rows:
            piece_NE = next(self.pieces, None) if self.rest_NE is None else self.rest_NE
            if piece_NE is None:
                return
            self.rest_NE = piece_NE[rows:] if len(piece_NE) > rows else None
            yield piece_NE[:rows]
            rows -= min(rows, len(piece_NE))
