"""The vectors of an ALSH index as they are kept, float32 or bfloat16, and the whole index on disk.

On disk are plain .npy arrays, opened as memory maps; nothing is pickled. What is computed from all vectors is computed
in chunks of one size counted from row 0, so that an index never depends on the shards it was built from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from realm.index.alsh_hash import Family, Hashes
from realm.index.alsh_settings import AlshSettings
from realm.index.alsh_tables import Tables
from realm.index.vectors import IndexLoadError

CHUNK = 16384
VECTORS = "vectors.npy"
DRAWN = ("mean_E", "direction_AF", "offset_F", "weight_LK")


def as_float32(vector_NE: np.ndarray) -> np.ndarray:
    """bfloat16 as float32 (its bits are the upper half), float32 as it is."""
    if vector_NE.dtype == np.float32:
        return vector_NE
    return (vector_NE.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def chunks(vector_NE: np.ndarray) -> Iterator[np.ndarray]:
    """All rows in order as float32 [n, E]."""
    for start in range(0, len(vector_NE), CHUNK):
        yield as_float32(vector_NE[start : start + CHUNK])


def moments(vector_NE: np.ndarray) -> tuple[np.ndarray, float]:
    """(the mean row, float32 [E]; the length of the row that lies farthest from it)."""
    mean_E = sum(chunk_NE.sum(axis=0, dtype=np.float64) for chunk_NE in chunks(vector_NE)) / len(vector_NE)
    mean_E = mean_E.astype(np.float32)
    # In float64: the square of a difference may pass what float32 holds.
    farthest = max(
        float(np.square(chunk_NE - mean_E, dtype=np.float64).sum(axis=1).max()) for chunk_NE in chunks(vector_NE)
    )
    return mean_E, farthest**0.5


def write_arrays(folder: Any, vector_NE: np.ndarray, hashes: Hashes | None, tables: Tables | None) -> None:
    """Vectors (bfloat16 as its bits), and where there are tables those and their hash functions."""
    folder = Path(folder)
    np.save(folder / VECTORS, vector_NE if vector_NE.dtype == np.float32 else vector_NE.view(np.uint16))
    if hashes is not None:
        for name in DRAWN:
            np.save(folder / f"{name}.npy", getattr(hashes, name))
        np.save(folder / "row_LN.npy", tables.row_LN)
        np.save(folder / "start_LS.npy", tables.start_LS)


def read_arrays(
    folder: Any, family: Family, chosen: AlshSettings, scale: float, shape: tuple[int, int], dtype: str
) -> tuple[np.ndarray, Hashes | None, Tables | None]:
    """What write_arrays wrote, as memory maps. Raises IndexLoadError: a file missing, or of another shape or type."""
    folder = Path(folder)
    (rows, dim), tables, functions = shape, chosen.tables, chosen.functions
    stored = np.float32 if dtype == "float32" else np.uint16
    vector_NE = _open(folder / VECTORS, (rows, dim), stored)
    if stored is np.uint16:
        vector_NE = vector_NE.view(ml_dtypes.bfloat16)
    if not functions:
        return vector_NE, None, None
    count = tables * functions
    shapes = ((dim,), (dim + family.m, count), (count,), (tables, functions))
    types = (np.float32, np.float32, np.float32, np.float64)
    drawn = [_open(folder / f"{name}.npy", *each) for name, *each in zip(DRAWN, shapes, types, strict=True)]
    row_LN = _open(folder / "row_LN.npy", (tables, rows), np.int32)
    start_LS = _open(folder / "start_LS.npy", (tables, 2**chosen.bits + 1), np.int32)
    hashes = Hashes(family, chosen.bits, scale, *(np.array(array) for array in drawn))
    return vector_NE, hashes, Tables(row_LN, start_LS)


def _open(path: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise IndexLoadError(f"{path} cannot be read ({error}); build the index anew") from error
    if array.shape != shape or array.dtype != dtype:
        raise IndexLoadError(f"{path} holds {array.dtype} {array.shape}, wanted {np.dtype(dtype)} {shape}")
    return array
