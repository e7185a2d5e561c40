"""Every index kind by name: a new kind adds one line here and is held to the whole contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.scann import Scann
from realm.index.sharded import Sharded
from realm.protocols import Hits


@dataclass(frozen=True)
class Divided:
    """Exact, or parts of it, divided over the eight virtual devices, as an index kind of its own."""

    index: Any

    def build(self, shards, mesh=None, rows=None):
        return self.index.build(shards, jax.make_mesh((8,), ("data",)), rows)

    def load(self, folder, shards, mesh=None):
        return self.index.load(folder, shards, jax.make_mesh((8,), ("data",)))


@dataclass(frozen=True)
class OnDevices:
    """The parts of an index on three of the virtual devices in turn."""

    index: Sharded

    def build(self, shards, mesh=None, rows=None):
        return self.index.build(shards, jax.devices()[:3], rows)

    def load(self, folder, shards, mesh=None):
        return self.index.load(folder, shards, jax.devices()[:3])


@dataclass(frozen=True)
class Kind:
    """index: builds and loads. finds_all: its hits are the true ones. least: the fewest rows its settings allow."""

    index: Any
    finds_all: bool = True
    least: int = 1


KINDS = {
    "exact": Kind(Exact()),
    "exact-chunked": Kind(Exact(chunk=128)),
    "exact-divided": Kind(Divided(Exact(chunk=128))),
    "exact-bfloat16": Kind(Exact(dtype="bfloat16"), finds_all=False),
    "scann": Kind(Scann()),
    "scann-hash": Kind(Scann(dims_per_block=2), finds_all=False, least=16),
    "scann-tree": Kind(Scann(leaves=16, leaves_to_search=4), finds_all=False, least=16),
    "scann-tree-hash": Kind(
        Scann(leaves=16, leaves_to_search=4, dims_per_block=2, reorder=50, reorder_dtype="bfloat16"),
        finds_all=False,
        least=16,
    ),
    # So few rows that scoring all of them costs less than any table.
    "alsh": Kind(Alsh()),
    "alsh-simple": Kind(Alsh(functions=5, tables=12), finds_all=False, least=16),
    "alsh-sign": Kind(Alsh("sign", functions=5, tables=12), finds_all=False, least=16),
    "alsh-l2": Kind(Alsh("l2", functions=6, tables=12), finds_all=False, least=16),
    "sharded-exact": Kind(Sharded(Exact(), shards=3)),
    "sharded-exact-devices": Kind(OnDevices(Sharded(Exact(chunk=128), shards=5))),
    "sharded-scann": Kind(Sharded(Scann(), shards=3)),
    "sharded-scann-tree-hash": Kind(
        Sharded(Scann(leaves=8, leaves_to_search=3, dims_per_block=2, reorder=50), shards=2),
        finds_all=False,
        least=64,
    ),
    "sharded-alsh": Kind(Sharded(Alsh(functions=4, tables=12), shards=2), finds_all=False, least=64),
}


def kinds_for(rows: int) -> dict[str, Kind]:
    return {name: kind for name, kind in KINDS.items() if kind.least <= rows}


def clustered(rows: int, dim: int, seed: int = 0, centres: int = 20) -> np.ndarray:
    """Vectors around a few centres: what trained encoders give, and what a tree can use."""
    rng = np.random.default_rng(seed)
    centre_CE = rng.normal(size=(centres, dim))
    return (centre_CE[rng.integers(0, centres, rows)] + 0.5 * rng.normal(size=(rows, dim))).astype(np.float32)


def shards_of(vector_NE: np.ndarray, *cuts: int) -> Iterator[np.ndarray]:
    """The rows as a one-shot iterator of shards, cut before the rows given."""
    yield from np.split(vector_NE, cuts)


def brute_force(query_BE: np.ndarray, vector_NE: np.ndarray, k: int) -> Hits:
    """The definition, in float64: best first, equal scores by row, padded to k."""
    all_BN = query_BE.astype(np.float64) @ vector_NE.astype(np.float64).T
    width = min(k, len(vector_NE))
    order_BK = np.argsort(-all_BN, axis=1, kind="stable")[:, :width]
    score_BK = np.full((len(query_BE), k), -np.inf, np.float32)
    id_BK = np.zeros((len(query_BE), k), np.int32)
    score_BK[:, :width] = np.take_along_axis(all_BN, order_BK, axis=1)
    id_BK[:, :width] = order_BK
    return Hits(score_BK, id_BK, score_BK > -np.inf)


def assert_sound(
    hits: Hits, query_BE: np.ndarray, vector_NE: np.ndarray, k: int, tolerance: float = 1e-3, unit: float = 1.0
) -> None:
    """What every result must be, whatever was found: k columns, best first, real rows with their scores, no phantom.

    unit: a score of ordinary size; smaller ones may be off by as much as `tolerance` of it.
    """
    shape = (len(query_BE), k)
    assert (hits.score_BK.shape, hits.id_BK.shape, hits.valid_BK.shape) == (shape,) * 3
    assert (hits.score_BK.dtype, hits.id_BK.dtype, hits.valid_BK.dtype) == (np.float32, np.int32, bool)
    assert not np.isnan(hits.score_BK).any()
    assert np.array_equal(hits.valid_BK, hits.score_BK > -np.inf)
    assert (hits.id_BK[~hits.valid_BK] == 0).all()
    assert (hits.id_BK >= 0).all() and (hits.id_BK < len(vector_NE)).all()
    for score_K, id_K, valid_K in zip(*hits, strict=True):
        found = id_K[valid_K]
        assert valid_K[: len(found)].all(), "a gap before the last valid column"
        assert len(set(found.tolist())) == len(found), "a row twice"
        keys = list(zip(-score_K[valid_K], found, strict=True))
        assert keys == sorted(keys), "not best first, equal scores by row"
    true_BK = np.einsum("be,bke->bk", query_BE, vector_NE[hits.id_BK])
    off_BK = np.abs(hits.score_BK - true_BK) / (unit + np.abs(true_BK))
    assert (off_BK[hits.valid_BK] < tolerance).all(), "a score that is not its row's inner product"
