"""The arrays of a corpus folder: appended to on disk while it is built, memory-mapped when it is read.

Every array is a plain .npy file. What has many values a row (wordpieces, sentences, spans, characters) is one flat
array and its offsets: the values of row r are flat[offset[r] : offset[r + 1]]. A folder is written aside, fsynced and
renamed into place, so one that can be seen is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# name -> (dtype, values in a row of the flat array; 0 = a plain vector). "block" arrays have N rows, "document" D.
BLOCK_RAGGED = {"token": ("<i4", 0), "sentence": ("<i4", 4), "span": ("<i4", 6), "text": ("|u1", 0)}
DOCUMENT_RAGGED = {"title": ("|u1", 0), "title_token": ("<i4", 0), "document_id": ("|u1", 0)}
BLOCK_PLAIN = {"document": "<i4", "length": "<i4", "duplicate": "<i4", "heldout": "|b1"}
# first_row has D + 1 entries; support one for each span; id_hash is sorted, id_order says whose each hash is.
# Beside these: `tagger`, |u1 for each span, which a corpus built before there was one lacks.
OTHER_PLAIN = {"first_row": "<i8", "support": "<i4", "id_hash": "<u8", "id_order": "<i4"}


class Column:
    """A .npy file that grows by its first axis. The header is written again at the end, when the rows are known."""

    def __init__(self, path: Path, dtype: str, width: int = 0):
        self.dtype, self.width, self.rows = np.dtype(dtype), width, 0
        self._file = open(path, "wb", buffering=1 << 20)
        self._header()
        self._start = self._file.tell()

    def _header(self) -> None:
        shape = (self.rows, self.width) if self.width else (self.rows,)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)  # leaves room for a longer first axis

    def append(self, values) -> None:
        """Adds rows: an array, a list, or the bytes of a |u1 column."""
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values, self.dtype).tobytes()
        self._file.write(data)
        self.rows += len(data) // (self.dtype.itemsize * (self.width or 1))

    def close(self) -> None:
        """Makes the file readable. A second call does nothing."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._header()
        if self._file.tell() != self._start:
            raise RuntimeError(f"{self._file.name}: the array header outgrew its room at {self.rows} rows")
        self._file.close()


class RaggedColumn:
    """A flat column and the column of its offsets."""

    def __init__(self, folder: Path, name: str, dtype: str, width: int):
        self.flat = Column(folder / f"{name}.npy", dtype, width)
        self.offset = Column(folder / f"{name}_offset.npy", "<i8")
        self.offset.append(struct.pack("<q", 0))

    def extend(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Adds many rows at once: their values one after the other, and how many values each row has."""
        self.offset.append(self.flat.rows + np.cumsum(counts))
        self.flat.append(values)

    def close(self) -> None:
        self.flat.close()
        self.offset.close()


@dataclass(frozen=True)
class Ragged:
    """A flat array and its offsets, memory-mapped."""

    flat: np.ndarray
    offset: np.ndarray

    @classmethod
    def open(cls, folder: Path, name: str) -> Ragged:
        return cls(open_array(folder, name), open_array(folder, f"{name}_offset"))

    def __len__(self) -> int:
        return len(self.offset) - 1

    def row(self, number: int) -> np.ndarray:
        return self.flat[self.offset[number] : self.offset[number + 1]]

    def string(self, number: int) -> str:
        return self.row(number).tobytes().decode()


def open_array(folder: Path, name: str) -> np.ndarray:
    """The memory-mapped array `name` as a plain read-only ndarray. Raises OSError or ValueError as numpy does."""
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def save_array(folder: Path, name: str, values: np.ndarray, dtype: str) -> None:
    """Writes a finished array as `open_array` reads it."""
    np.save(folder / f"{name}.npy", np.ascontiguousarray(values, dtype), allow_pickle=False)


def sha256_of(path: str | Path) -> str:
    """The sha256 of a file, in hexadecimal. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def written_aside(out: Path, replace: bool) -> Iterator[Path]:
    """A new folder to write into, which becomes `out` when the block ends well and disappears when it does not.

    With `replace` a folder that is there goes away, after the new one is complete; without, OSError if there is one
    that is not empty.
    """
    tag = uuid.uuid4().hex[:8]
    partial = out.with_name(f"{out.name}.partial-{tag}")
    partial.mkdir(parents=True)
    try:
        yield partial
        for path in [*partial.iterdir(), partial]:
            _fsync(path)
        if replace and out.exists():
            old = out.with_name(f"{out.name}.old-{tag}")
            out.rename(old)
            partial.rename(out)
            shutil.rmtree(old)
        else:
            partial.rename(out)
        _fsync(out.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
