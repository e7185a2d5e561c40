"""What may enter an index and what may be asked of it: the checks that every index kind shares.

Vectors arrive as an iterator of shards, so that a corpus larger than memory can be read piece by piece. A vector with a
NaN would poison every search silently (ScaNN accepts it), so it is refused here, by shard and row. The small file
`index.json` beside an index says what it is; a mismatch is refused with both values named. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MOST_ROWS = 2**31 - 1
PIECE_ROWS = 65536
FILE = "index.json"
UNSOUND = "holds a NaN or an infinity, or is longer than 9e18"


class IndexBuildError(ValueError):
    """The vectors or the settings given cannot make an index."""


class IndexLoadError(ValueError):
    """The folder does not hold the index that was asked for."""


class QueryError(ValueError):
    """The queries or k cannot be searched for."""


def read_shards(shards: Iterable[np.ndarray], dtype: Any = np.float32, rows: int | None = None) -> Iterator[np.ndarray]:
    """Vectors in row order, as fresh pieces [n, E] of `dtype` with at most 65536 rows.

    shards: arrays [n, E] of one width; n may differ and may be 0. rows: what the caller knows to be there.
    Raises IndexBuildError: no rows at all, not `rows`, widths that differ, a NaN, an infinity or
    a vector longer than 9e18, more than 2**31 - 1 rows.
    """
    total, dim, first = 0, None, None
    for number, shard in enumerate(shards):
        shard_NE = np.asarray(shard)
        if shard_NE.ndim != 2 or shard_NE.shape[1] == 0:
            raise IndexBuildError(
                f"shard {number} has shape {shard_NE.shape}, wanted [rows, width]; put a single array into a list"
            )
        if dim is None:
            dim, first = shard_NE.shape[1], number
        if shard_NE.shape[1] != dim:
            raise IndexBuildError(f"shard {number} has vectors of width {shard_NE.shape[1]}, shard {first} has {dim}")
        before, total = total, total + shard_NE.shape[0]
        if total > MOST_ROWS:
            raise IndexBuildError(f"{total} rows and more; ids are int32, so an index holds at most {MOST_ROWS} rows")
        if rows is not None and total > rows:
            raise IndexBuildError(f"the shards hold {total} rows or more, wanted {rows}")
        for start in range(0, shard_NE.shape[0], PIECE_ROWS):
            piece_NE = _as_float32(shard_NE[start : start + PIECE_ROWS])
            sound_N = _sound(piece_NE)
            if not sound_N.all():
                row = start + int(np.argmin(sound_N))
                raise IndexBuildError(
                    f"shard {number}, row {row} (index row {before + row}) {UNSOUND}; "
                    "embed this block again before building the index"
                )
            yield piece_NE.astype(dtype, copy=False)
    if total == 0:
        raise IndexBuildError("the shards hold 0 rows, wanted at least 1; is the corpus empty?")
    if rows is not None and total != rows:
        raise IndexBuildError(f"the shards hold {total} rows, wanted {rows}")


def counted_shards(
    shards: Iterable[np.ndarray], dtype: Any = np.float32, rows: int | None = None
) -> tuple[Iterator[np.ndarray], int]:
    """The pieces of read_shards and how many rows they hold: streamed if `rows` is known, else held until taken."""
    pieces = read_shards(shards, dtype, rows)
    if rows is not None:
        return pieces, rows
    held = list(pieces)
    rows = sum(map(len, held))
    held.reverse()
    return (held.pop() for _ in range(len(held))), rows


def gather_shards(shards: Iterable[np.ndarray], rows: int | None = None, dtype: Any = np.float32) -> np.ndarray:
    """All vectors as one array [N, E] of `dtype`; never a second copy if `rows` is known. Raises as read_shards."""
    pieces, rows = counted_shards(shards, dtype, rows)
    vector_NE, filled = None, 0
    for piece_NE in pieces:
        if vector_NE is None:
            vector_NE = np.empty((rows, piece_NE.shape[1]), piece_NE.dtype)
        vector_NE[filled : filled + len(piece_NE)] = piece_NE
        filled += len(piece_NE)
    return vector_NE


def shape_of(shards: Iterable[np.ndarray]) -> tuple[int, list[int]]:
    """Rows and all widths; stored shards know their `rows` and `dim`, of others the shapes are looked at."""
    if hasattr(shards, "rows") and hasattr(shards, "dim"):
        return shards.rows, [shards.dim]
    shapes = [np.shape(shard_NE) for shard_NE in shards]
    return sum(shape[0] for shape in shapes), sorted({shape[1] for shape in shapes})


def check_query(query_BE: Any, dim: int, k: int) -> np.ndarray:
    """The queries as float32 [B, E]. Raises QueryError: a wrong width, k < 1, a NaN, infinity or length over 9e18."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise QueryError(f"k is {k!r}, wanted a whole number of at least 1")
    query_BE = np.asarray(query_BE)
    if query_BE.ndim != 2 or query_BE.shape[1] != dim:
        raise QueryError(f"queries have shape {query_BE.shape}, wanted [batch, {dim}]: the index holds width {dim}")
    query_BE = np.ascontiguousarray(_as_float32(query_BE))
    sound_B = _sound(query_BE)
    if not sound_B.all():
        raise QueryError(f"query row {int(np.argmin(sound_B))} {UNSOUND}")
    return query_BE


def _as_float32(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array(array, dtype=np.float32)


def _sound(vector_NE: np.ndarray) -> np.ndarray:
    """Whether (2 |v|)**2 is finite in float32: then no inner product overflows, nor the distance of two vectors.

    ScaNN ends the whole process over an infinite distance; with a NaN it goes on and finds nothing.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.isfinite(4 * np.einsum("ne,ne->n", vector_NE, vector_NE))


def write_facts(folder: Any, facts: dict[str, Any]) -> None:
    """Writes `index.json`: kind, rows, dim and whatever else `load` needs."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def read_facts(folder: Any, kind: str) -> dict[str, Any]:
    """Reads `index.json`. Raises IndexLoadError: no such file, unreadable, of another kind (both named)."""
    path = Path(folder) / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        found, _, _ = facts["kind"], int(facts["rows"]), int(facts["dim"])
    except FileNotFoundError:
        raise IndexLoadError(f"{path} does not exist; was this index saved with searcher.save(folder)?") from None
    except (ValueError, KeyError, TypeError) as error:
        raise IndexLoadError(f"{path} is no index description ({type(error).__name__}: {error})") from error
    if found != kind:
        raise IndexLoadError(f"{path} describes an index of kind {found!r}, wanted {kind!r}; load it with that kind")
    return facts
