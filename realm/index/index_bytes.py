"""What an index costs in bytes, before it is built: every kind tells it of itself by `bytes_plan(rows, dim)`.

Disk is counted from the files that `save` writes; memory from the arrays a searcher holds. What a library holds beside
its arrays is measured, where a kind says so. All of it is without the vector shards, which exist for every kind.
"""

from __future__ import annotations

from typing import NamedTuple

from realm.index.vectors import PIECE_ROWS

FACTS = 512  # index.json, about


class IndexBytes(NamedTuple):
    """disk: saved. host, device: held by a loaded searcher. build_host, build_device: the most while it is built, what
    was built included. device counts all devices together, and is host memory where the device is the CPU."""

    disk: int
    host: int
    device: int
    build_host: int
    build_device: int


def itemsize(dtype: str) -> int:
    """Bytes of a number as vectors are stored."""
    return {"float32": 4, "bfloat16": 2}[dtype]


def piece_bytes(rows: int, dim: int) -> int:
    """The piece of the shards that is being read, in float32."""
    return 4 * min(rows, PIECE_ROWS) * dim
