"""Vector shards on disk: `shard-00000.npy`, ... in row order, float32 or bfloat16, never a pickle.

numpy has no bfloat16 of its own, so such a shard is stored as uint16 and the manifest names the true dtype. Reading is
by memory map, one shard at a time, so that a searcher never needs twice the index in memory.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
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

    def __iter__(self) -> Iterator[np.ndarray]:
        for name in self.names:
            yield decode(np.load(self.folder / name, mmap_mode="r", allow_pickle=False), self.dtype)
