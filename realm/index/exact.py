"""Exact maximum inner product search in JAX: every score is computed, the k best are kept.

The vectors lie on the device as [C, chunk, E]. A scan goes over the chunks, so that only [B, chunk] scores exist at a
time, and merges each chunk's k best into the k best so far. With a mesh the chunks are divided over its 'data' axis,
every device keeps its own k best, and the merge of those is exact. Equal scores: lowest row first, however the rows
are chunked or divided. The approximate kinds are measured against this one, and it runs everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from realm.index.exact_place import place
from realm.index.index_bytes import FACTS, IndexBytes, itemsize, piece_bytes
from realm.index.vectors import (
    IndexBuildError,
    IndexLoadError,
    check_query,
    counted_shards,
    read_facts,
    read_shards,
    write_facts,
)
from realm.protocols import Hits

# Whole vector lanes: rows in the remainder of a matrix product may get another last bit, which would break a tie.
LANES = 128


@dataclass(frozen=True)
class Exact:
    """Rows per chunk (bounds the score memory: 4 * B * chunk bytes) and how vectors and queries are stored.

    The chunk is rounded up to a multiple of 128 rows, and no larger than the corpus needs.
    bfloat16 halves the memory and rounds both sides of the inner product; it still accumulates in float32.
    """

    chunk: int = 65536
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        if self.chunk < 1:
            raise IndexBuildError(f"chunk is {self.chunk}, wanted at least 1")
        if self.dtype not in ("float32", "bfloat16"):
            raise IndexBuildError(f"dtype is {self.dtype!r}, wanted 'float32' or 'bfloat16'")

    def build(self, shards: Iterable[np.ndarray], mesh: Mesh | None = None, rows: int | None = None) -> ExactSearcher:
        """Puts all rows on the device, or divided over the 'data' axis of `mesh`.

        shards: arrays [n, E]; with `rows` known they are streamed, else held once on the host before placing.
        Raises IndexBuildError as vectors.read_shards does, and for a mesh without an axis 'data'.
        """
        if mesh is not None and "data" not in mesh.axis_names:
            raise IndexBuildError(f"the mesh has axes {mesh.axis_names}, wanted one named 'data'")
        pieces, rows = counted_shards(shards, jnp.dtype(self.dtype), rows)
        first_NE = next(pieces)
        parts = 1 if mesh is None else mesh.shape["data"]
        chunk, count = self._chunks(rows, parts)
        base_C = np.arange(count) * chunk
        row_sharding = SingleDeviceSharding(jax.local_devices()[0]) if mesh is None else NamedSharding(mesh, P("data"))
        return ExactSearcher(
            rows=rows,
            dim=first_NE.shape[1],
            config=self,
            mesh=mesh,
            vector_CNE=place(chain([first_NE], pieces), (count, chunk, first_NE.shape[1]), row_sharding),
            base_C=jax.device_put(base_C.astype(np.int32), row_sharding),
            # Counts, not a comparison of ids with `rows`: the ids of padding may pass 2**31.
            real_C=jax.device_put(np.clip(rows - base_C, 0, chunk).astype(np.int32), row_sharding),
        )

    def bytes_plan(self, rows: int, dim: int, devices: int = 1) -> IndexBytes:
        """The vectors on the device, filled up to whole chunks. A search holds 4 * B * chunk bytes of scores too."""
        chunk, count = self._chunks(rows, devices)
        device = count * chunk * dim * itemsize(self.dtype)
        return IndexBytes(FACTS, 0, device, 2 * piece_bytes(min(rows, chunk), dim), device)

    def _chunks(self, rows: int, parts: int) -> tuple[int, int]:
        """(rows of a chunk, chunks): a small corpus is padded little, and still reaches every device."""
        chunk = _round_up(min(self.chunk, -(-rows // parts)), LANES)
        return chunk, _round_up(-(-rows // chunk), parts)

    def load(self, folder: Any, shards: Iterable[np.ndarray], mesh: Mesh | None = None) -> ExactSearcher:
        """The index described in `folder` over `shards`. Raises IndexLoadError: another kind, rows or width."""
        facts = read_facts(folder, ExactSearcher.kind)
        try:
            searcher = self.build(shards, mesh, rows=facts["rows"])
        except IndexBuildError as error:
            raise IndexLoadError(f"{folder}: {error}") from error
        if searcher.dim != facts["dim"]:
            raise IndexLoadError(f"{folder}: the shards hold vectors of width {searcher.dim}, wanted {facts['dim']}")
        return searcher


@dataclass(frozen=True, eq=False)
class ExactSearcher:
    """A built exact index. `search` compiles once for each (B, k); keep B to few values."""

    rows: int
    dim: int
    config: Exact
    mesh: Mesh | None = field(repr=False)
    vector_CNE: jax.Array = field(repr=False)
    base_C: jax.Array = field(repr=False)
    real_C: jax.Array = field(repr=False)
    kind: ClassVar[str] = "exact"

    def search(self, query_BE: Any, k: int) -> Hits:
        """The k best rows of each query [B, E], best first, equal scores by row. Raises QueryError.

        With a mesh over several processes each passes the same queries and gets the same hits.
        """
        query_BE = check_query(query_BE, self.dim, k).astype(self.vector_CNE.dtype)
        if self.mesh is not None:
            query_BE = jax.device_put(query_BE, NamedSharding(self.mesh, P()))
        found = _search(self.vector_CNE, self.base_C, self.real_C, query_BE, int(k), self.mesh)
        return Hits(*map(np.array, found))

    def with_rows(self, spans: Iterable[tuple[int, np.ndarray]]) -> ExactSearcher:
        """The same index with other vectors [n, E] from some rows on, spans = (first row, vectors); this one stays.

        Only the new vectors are put on the device, where both indexes lie until this one is let go.

        Raises IndexBuildError: vectors that no index takes, of another width, or of rows that are not there.
        """
        vector_CNE, chunk = self.vector_CNE, self.vector_CNE.shape[1]
        for first, vector_NE in spans:
            if first < 0 or first + len(vector_NE) > self.rows or np.shape(vector_NE)[1:] != (self.dim,):
                raise IndexBuildError(
                    f"found vectors {np.shape(vector_NE)} for rows from {first} on, wanted width {self.dim} and rows "
                    f"below {self.rows}"
                )
            row_N = np.arange(first, first + len(vector_NE))
            new_NE = np.concatenate(list(read_shards([vector_NE], vector_CNE.dtype, len(row_N))))
            vector_CNE = _replace(vector_CNE, new_NE, row_N // chunk, row_N % chunk, vector_CNE.sharding)
        return replace(self, vector_CNE=vector_CNE)

    def settings(self) -> dict[str, Any]:
        """What was built, for logs and manifests."""
        chunks, chunk, _ = self.vector_CNE.shape
        devices = 1 if self.mesh is None else self.mesh.shape["data"]
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "dtype": self.config.dtype}
        return facts | {"chunk": chunk, "chunks": chunks, "devices": devices}

    def save(self, folder: Any) -> None:
        """Writes `index.json` only: the vectors are the shards, which `load` is given again."""
        write_facts(folder, {"kind": self.kind, "rows": self.rows, "dim": self.dim, "dtype": self.config.dtype})


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


@partial(jax.jit, static_argnames="sharding")
def _replace(vector_CNE, new_NE, chunk_N, place_N, sharding):
    return jax.lax.with_sharding_constraint(vector_CNE.at[chunk_N, place_N].set(new_NE), sharding)


@partial(jax.jit, static_argnames=("k", "mesh"))
def _search(vector_CNE, base_C, real_C, query_BE, k, mesh):
    def everywhere(*arrays):
        # Gathered in device order, which is row order, so the lowest row still wins a tie.
        score_BK, id_BK = (jax.lax.all_gather(a_BK, "data", axis=1, tiled=True) for a_BK in _best(*arrays, k))
        return _keep(score_BK, id_BK, k)

    if mesh is None:
        score_BK, id_BK = _best(vector_CNE, base_C, real_C, query_BE, k)
    else:
        specs = (P("data"), P("data"), P("data"), P())
        divided = jax.shard_map(everywhere, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
        score_BK, id_BK = divided(vector_CNE, base_C, real_C, query_BE)
    valid_BK = score_BK > -jnp.inf
    return score_BK, jnp.where(valid_BK, id_BK, 0), valid_BK


def _best(vector_CNE, base_C, real_C, query_BE, k):
    """The k best of these chunks, padded with -inf."""

    def step(best, chunk):
        vector_NE, base, real = chunk
        # HIGHEST: on GPU and TPU the default would round float32 vectors to 10 or 8 bits.
        score_BN = jnp.einsum(
            "be,ne->bn",
            query_BE,
            vector_NE,
            precision=jax.lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        # top_k sorts -0.0 below 0.0, which would break a tie.
        score_BN = jnp.where(score_BN == 0, 0.0, score_BN)
        score_BN = jnp.where(jnp.arange(vector_NE.shape[0]) < real, score_BN, -jnp.inf)
        score_BK, at_BK = jax.lax.top_k(score_BN, min(k, vector_NE.shape[0]))
        joined = (jnp.concatenate(pair, axis=1) for pair in zip(best, (score_BK, base + at_BK), strict=True))
        return _keep(*joined, k), None

    batch = query_BE.shape[0]
    nothing = jnp.full((batch, k), -jnp.inf, jnp.float32), jnp.zeros((batch, k), jnp.int32)
    return jax.lax.scan(step, nothing, (vector_CNE, base_C, real_C))[0]


def _keep(score_BK, id_BK, k):
    """The k best columns; top_k is stable, so equal scores keep the order of their columns."""
    score_BK, at_BK = jax.lax.top_k(score_BK, k)
    return score_BK, jnp.take_along_axis(id_BK, at_BK, axis=1)
