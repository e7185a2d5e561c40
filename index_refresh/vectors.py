"""Vector shards on disk: `shard-00000.npy`, ... in row order, float32 or bfloat16, never a pickle.

numpy has no bfloat16 of its own, so such a shard is stored as uint16 and the manifest names the true dtype. Reading is
by memory map, one shard at a time, so that a searcher never needs twice the index in memory.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from index_refresh import files


def shard_name(ordinal: int) -> str:
    return f"shard-{ordinal:05d}.npy"


def encode(vector_NE: np.ndarray, dtype: str) -> np.ndarray:
    """float32 [n, E] as it is stored: itself, or rounded to bfloat16 and seen as uint16."""
    if dtype == "float32":
        return np.ascontiguousarray(vector_NE, dtype=np.float32)
    return np.ascontiguousarray(vector_NE).astype(ml_dtypes.bfloat16).view(np.uint16)


def decode(stored_NE: np.ndarray, dtype: str) -> np.ndarray:
    """What is stored as float32 [n, E]; a float32 memory map is passed through unread."""
    if dtype == "float32":
        return np.asarray(stored_NE)
    return np.asarray(stored_NE).view(ml_dtypes.bfloat16).astype(np.float32)


def write_shard(path: Path, stored_NE: np.ndarray) -> dict[str, Any]:
    """Writes one shard durably; {rows, bytes, sha256} of it, taken from memory and not from the disk."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, stored_NE, allow_pickle=False)
    content = buffer.getbuffer()
    files.write(path, content)
    return {"rows": len(stored_NE), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True)
class StoredVectors:
    """The shards of one generation: iterates float32 [n, E] arrays in row order, as often as wanted."""

    folder: Path
    names: tuple[str, ...]
    rows: int
    dim: int
    dtype: str

    def __len__(self) -> int:
        return len(self.names)

    def take(self, row_N: np.ndarray) -> np.ndarray:
        """float32 [N, E]: the vectors of these rows, in this order; only what is asked for is read.

        Raises IndexError for a row that is not there.
        """
        row_N = np.asarray(row_N, np.int64)
        if row_N.size and not 0 <= row_N.min() <= row_N.max() < self.rows:
            raise IndexError(f"found rows {row_N.min()} to {row_N.max()}, wanted 0 to {self.rows - 1}")
        stored, first_S = _maps(self.folder, self.names, self._inodes)
        vector_NE = np.empty((len(row_N), self.dim), np.float32)
        shard_N = np.searchsorted(first_S, row_N, side="right") - 1
        for shard in np.unique(shard_N):
            here_N = shard_N == shard
            vector_NE[here_N] = decode(stored[shard][row_N[here_N] - first_S[shard]], self.dtype)
        return vector_NE

    @cached_property
    def _inodes(self) -> tuple[int, ...]:
        """Tells these files from earlier ones of the same names: a run is rewound, or begun again in its folder."""
        return tuple(os.stat(self.folder / name).st_ino for name in self.names)

    def __iter__(self) -> Iterator[np.ndarray]:
        for name in self.names:
            yield decode(np.load(self.folder / name, mmap_mode="r", allow_pickle=False), self.dtype)


@lru_cache(maxsize=2)  # of the adopted generation and the one before it
def _maps(folder: Path, names: tuple[str, ...], inodes: tuple[int, ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """Memory maps of the shards, and the row that each begins with. `inodes` only tells which files they are: a map
    keeps its own from being given to another file."""
    stored = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in names]
    return stored, np.cumsum([0, *(len(one) for one in stored[:-1])])
