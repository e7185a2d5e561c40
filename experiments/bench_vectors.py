"""What `realm bench index` measures on: stored vectors, queries, and the true hits, all made or read shard by shard.

Clustered vectors: sqrt(rows) centres drawn from N(0, 1) in every dimension; a row is a centre plus half as much noise,
and its length is multiplied by exp(0.1 z), since encoders give lengths that differ. A trained encoder's vectors have
such clusters, and random ones, which have none, would flatter no index and mislead about all. A query is a stored row
plus noise a quarter of the vectors' spread: near something, as a sentence is near its block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from index_refresh import files
from index_refresh.generation import read_manifest
from index_refresh.vectors import StoredVectors, encode, shard_name
from realm.index.exact import Exact
from realm.index.merge import merge_hits
from realm.protocols import Hits

SHARD_ROWS = 65536
NOISE, LENGTHS, QUERY_NOISE = 0.5, 0.1, 0.25
DESCRIPTION = "vectors.json"


def clustered(rows: int, dim: int, seed: int) -> Iterator[np.ndarray]:
    """Clustered vectors, float32 arrays [n, dim] of 65,536 rows; each from the seed and its number alone."""
    centre_CE = np.random.default_rng([seed, 0]).standard_normal((max(2, round(rows**0.5)), dim), np.float32)
    for number, start in enumerate(range(0, rows, SHARD_ROWS)):
        rng = np.random.default_rng([seed, 1, number])
        count = min(SHARD_ROWS, rows - start)
        vector_NE = rng.standard_normal((count, dim), np.float32)
        vector_NE *= np.float32(NOISE)
        vector_NE += centre_CE[rng.integers(0, len(centre_CE), count)]
        vector_NE *= np.exp(np.float32(LENGTHS) * rng.standard_normal((count, 1), np.float32))
        yield vector_NE


def write_clustered(folder: Path, rows: int, dim: int, seed: int, dtype: str = "bfloat16") -> StoredVectors:
    """Clustered vectors as shards on disk; the description is written last, so half a folder is none."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, vector_NE in enumerate(clustered(rows, dim, seed)):
        names.append(shard_name(number))
        np.save(folder / names[-1], encode(vector_NE, dtype))
    files.write_json(folder / DESCRIPTION, {"names": names, "rows": rows, "dim": dim, "dtype": dtype})
    return StoredVectors(folder, tuple(names), rows, dim, dtype)


def stored_vectors(folder: Path) -> StoredVectors:
    """The vectors in a folder of write_clustered or of a generation (runs/.../generations/...)."""
    if (folder / DESCRIPTION).exists():
        facts = files.read_json(folder / DESCRIPTION)
        return StoredVectors(folder, tuple(facts["names"]), facts["rows"], facts["dim"], facts["dtype"])
    manifest = read_manifest(folder)
    names = tuple(shard["file"] for shard in manifest["shards"])
    return StoredVectors(folder, names, manifest["rows"], manifest["dim"], manifest["dtype"])


def make_queries(vectors: StoredVectors, count: int, seed: int) -> np.ndarray:
    """Queries near stored rows, float32 [count, E]; rows may repeat where there are few."""
    rng = np.random.default_rng([seed, 2])
    row_Q = np.sort(rng.integers(0, vectors.rows, count))
    query_QE, first = np.empty((count, vectors.dim), np.float32), 0
    for shard_NE in vectors:
        mine_Q = (row_Q >= first) & (row_Q < first + len(shard_NE))
        query_QE[mine_Q] = shard_NE[row_Q[mine_Q] - first]
        first += len(shard_NE)
    spread = np.sqrt(np.square(query_QE - query_QE.mean(axis=0)).mean())
    query_QE += np.float32(QUERY_NOISE) * spread * rng.standard_normal(query_QE.shape, np.float32)
    return query_QE[rng.permutation(count)]


def true_hits(vectors: StoredVectors, query_QE: np.ndarray, k: int) -> Hits:
    """The exact k best rows of each query, one shard in memory at a time."""
    best, first = None, 0
    for shard_NE in vectors:
        hits = Exact().build([shard_NE], rows=len(shard_NE)).search(query_QE, k)
        best = hits if best is None else merge_hits([(0, best), (first, hits)], k)
        first += len(shard_NE)
    return best


def save_hits(path: Path, hits: Hits) -> None:
    np.savez(path, **hits._asdict())


def load_hits(path: Path) -> Hits:
    with np.load(path, allow_pickle=False) as held:
        return Hits(*(held[name] for name in Hits._fields))


def folder_bytes(folder: Any) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
