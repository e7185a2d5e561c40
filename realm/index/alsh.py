"""Asymmetric LSH for maximum inner product search: hash tables, many probes, and the best candidates scored exactly.

Rows and queries get different transforms, so that collisions grow with the inner product (alsh_hash has the three
variants). Of the rows that share a probed bucket with the query, those that do so in most tables are scored with the
vectors themselves. Functions, tables and probes follow from `target_recall` (alsh_settings): the closed forms of the
collision probabilities choose, a sample of rows asked as queries measures. Where scoring every row costs less, that is
what happens. A search runs on one core.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import ml_dtypes
import numpy as np

from realm.index.alsh_hash import Family, Hashes, Variant
from realm.index.alsh_scan import likeliest
from realm.index.alsh_settings import (
    BRUTE_NS,
    EVERY_ROW,
    MOST_BITS,
    TABLES,
    AlshSettings,
    bucket_bits,
    check_given,
    family,
)
from realm.index.alsh_store import as_float32, chunks, moments, read_arrays, write_arrays
from realm.index.alsh_tables import Tables, most_collided, probe_template
from realm.index.alsh_tuning import sample_pairs, tune
from realm.index.index_bytes import FACTS, IndexBytes, itemsize, piece_bytes
from realm.index.vectors import (
    IndexBuildError,
    IndexLoadError,
    check_query,
    gather_shards,
    read_facts,
    shape_of,
    write_facts,
)
from realm.protocols import Hits

log = logging.getLogger(__name__)

SCORE_ROWS = 65536
QUERIES_AT_ONCE = 64
# Bucket numbers held at a time, which is what a batch of queries costs in memory.
BUCKETS_AT_ONCE = 2**20


@dataclass(frozen=True)
class Alsh:
    """Settings left None follow from the corpus and `target_recall`; any may be given.

    variant, m, u, r: the transforms and their parameters as in the papers. functions: hash functions K a table, 0 to
    score every row. tables: L, 4 bytes a row each. probes: buckets a table. scored: rows a query scored exactly, never
    fewer than 2k. target_recall: of recall@8 on `sample` rows asked as queries with noise of `query_noise` times the
    spread of the vectors (0: the bare rows, and queries farther away find less). dtype: how the vectors are kept.
    """

    variant: Variant = "simple"
    target_recall: float = 0.9
    functions: int | None = None
    tables: int | None = None
    probes: int | None = None
    scored: int | None = None
    m: int | None = None
    u: float | None = None
    r: float | None = None
    sample: int = 128
    query_noise: float = 0.0
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0

    def __post_init__(self):
        check_given(asdict(self))
        self.family()

    def family(self) -> Family:
        """The variant with its parameters."""
        return family(self.variant, self.m, self.u, self.r)

    def build(
        self,
        shards: Iterable[np.ndarray],
        mesh: Any = None,
        rows: int | None = None,
        queries: np.ndarray | None = None,
    ) -> AlshSearcher:
        """Gathers the vectors, chooses, and fills the tables; the same seed and rows give the same index.

        shards: arrays [n, E]; with `rows` known never a second copy of the vectors. Memory: the vectors, 4 bytes for
        each row and table, and 24 bytes a row while a table is sorted. mesh is for the kinds that search on devices.
        queries: held-out ones [n, E], of which `sample` are asked instead of noisy rows, where there are such.
        Raises IndexBuildError as read_shards does.
        """
        vector_NE = gather_shards(shards, rows, np.float32 if self.dtype == "float32" else ml_dtypes.bfloat16)
        rows, dim = vector_NE.shape
        mean_E, longest = moments(vector_NE)
        transforms = self.family()
        scale = transforms.u / longest if longest > 0 else 1.0
        asked = None if queries is None else check_query(queries, dim, 1)
        pairs = sample_pairs(vector_NE, mean_E, scale, self.sample, self.seed, self.query_noise, asked)
        chosen = pairs.choose(transforms, self.target_recall, self.functions, self.tables, self.probes, self.scored)
        hashes = tables = recall = None
        while chosen.functions:
            hashes = Hashes.draw(transforms, mean_E, scale, chosen.tables, chosen.functions, chosen.bits, self.seed)
            tables = Tables.fill(hashes, chunks(vector_NE), rows)
            searcher = AlshSearcher(rows, dim, self, chosen, None, vector_NE, hashes, tables)
            chosen, recall, cost = tune(searcher, pairs, self.target_recall, self.probes, self.scored)
            if recall is None or recall >= self.target_recall or self.functions or chosen.functions < 4:
                break
            # Probes reach no farther than the neighbouring buckets, so larger ones are needed.
            fewer = chosen.functions * 3 // 4
            chosen = pairs.choose(transforms, self.target_recall, fewer, self.tables, self.probes, self.scored)
        if tables is not None and self.functions is None and cost > rows * BRUTE_NS:
            chosen, hashes, tables, recall = EVERY_ROW, None, None, None
        log.info("ALSH (%s) over %d rows of width %d: %s", self.variant, rows, dim, chosen)
        if recall is not None and recall < self.target_recall:
            log.warning("ALSH finds %.3f of the sample's hits, wanted %s: give more tables", recall, self.target_recall)
        return AlshSearcher(rows, dim, self, chosen, recall, vector_NE, hashes, tables)

    def bytes_plan(self, rows: int, dim: int, devices: int = 1) -> IndexBytes:
        """The vectors, and 4 bytes a row for each table: as given, or as many as it begins with. An upper bound: how
        many functions a table has, and whether tables pay at all, is found out by measuring. A loaded index is a
        memory map.
        """
        vectors, tables = rows * dim * itemsize(self.dtype), self.tables or TABLES
        if self.functions == 0:
            return IndexBytes(vectors + FACTS, vectors, 0, vectors + piece_bytes(rows, dim), 0)
        most = min(MOST_BITS, rows.bit_length())
        bits = most if self.functions is None else bucket_bits(self.variant, self.functions, rows)
        drawn = 4 * (dim + self.family().m) * tables * (self.functions or most)
        disk = vectors + 4 * tables * (rows + 2**bits + 1) + drawn + FACTS
        return IndexBytes(disk, disk, 0, disk + 24 * rows + piece_bytes(rows, dim), 0)

    def load(self, folder: Any, shards: Iterable[np.ndarray] | None = None, mesh: Any = None) -> AlshSearcher:
        """The index saved in `folder`, memory-mapped. Settings left None are those it was built with.

        probes and scored may be given anew. shards: only their shapes are compared. Raises IndexLoadError: another
        kind, rows, width or built-in setting (both named), or files that do not fit.
        """
        facts = read_facts(folder, AlshSearcher.kind)
        rows, dim = facts["rows"], facts["dim"]
        if shards is not None:
            found, widths = shape_of(shards)
            if found != rows or widths != [dim]:
                raise IndexLoadError(f"{folder}: the shards hold {found} rows, widths {widths}; wanted {rows}, [{dim}]")
        try:
            built, chosen = Alsh(**facts["config"]), AlshSettings(**facts["chosen"])
            scale, recall = facts["scale"], facts["recall_on_sample"]
        except (KeyError, TypeError, IndexBuildError) as error:
            raise IndexLoadError(f"{folder}: index.json has no ALSH settings ({error})") from error
        known = asdict(built) | asdict(built.family()) | asdict(chosen)
        for name, wanted in asdict(self).items():
            was = known[name]
            # What was asked for when it was built fits too: where every row is scored, there are no tables.
            if wanted not in (None, was, getattr(built, name)) and name not in ("probes", "scored"):
                raise IndexLoadError(f"{folder} was built with {name} {was}, wanted {wanted}; build the index anew")
        chosen = chosen.searched_with(self.probes, self.scored)
        vector_NE, hashes, tables = read_arrays(folder, built.family(), chosen, scale, (rows, dim), built.dtype)
        return AlshSearcher(rows, dim, built, chosen, recall, vector_NE, hashes, tables)


@dataclass(frozen=True, eq=False)
class AlshSearcher:
    """A built ALSH index. recall_on_sample: recall@8 measured when it was built, None where every row is scored."""

    rows: int
    dim: int
    config: Alsh
    chosen: AlshSettings
    recall_on_sample: float | None
    vector_NE: np.ndarray = field(repr=False)
    hashes: Hashes | None = field(repr=False)
    tables: Tables | None = field(repr=False)
    kind: ClassVar[str] = "alsh"

    def search(self, query_BE: Any, k: int) -> Hits:
        """The k best candidates of each query [B, E], best first, equal scores by row. Raises QueryError.

        Columns for which no row collided are invalid.
        """
        query_BE = check_query(query_BE, self.dim, k)
        batch, k = len(query_BE), int(k)
        hits = Hits(
            np.full((batch, k), -np.inf, np.float32), np.zeros((batch, k), np.int32), np.zeros((batch, k), bool)
        )
        for number, candidate_C in enumerate(self._candidates(query_BE, max(self.chosen.scored, 2 * k), k)):
            score_K, id_K = self._best(query_BE[number], candidate_C, k)
            for array_BK, value_K in zip(hits, (score_K, id_K, True), strict=True):
                array_BK[number, : len(score_K)] = value_K
        return hits

    def buckets(self, query_BE: np.ndarray) -> np.ndarray:
        """The buckets probed for each query, uint32 [B, L, T]."""
        return self.hashes.query_buckets(query_BE, probe_template(self.chosen.functions, self.chosen.probes))

    def _candidates(self, query_BE: np.ndarray, most: int, k: int) -> Iterator[np.ndarray]:
        """For each query the rows to score exactly, ascending."""
        if self.tables is None:
            for start in range(0, len(query_BE), QUERIES_AT_ONCE):
                yield from likeliest(query_BE[start : start + QUERIES_AT_ONCE], self.vector_NE, self._largest, k)
            return
        block = max(1, BUCKETS_AT_ONCE // (self.chosen.tables * self.chosen.probes))
        for start in range(0, len(query_BE), block):
            for bucket_LT in self.buckets(query_BE[start : start + block]):
                yield most_collided(self.tables.candidates(bucket_LT, self.rows), most, self.rows)

    @cached_property
    def _largest(self) -> float:
        """The largest absolute value in the vectors."""
        return max(float(np.abs(chunk_NE).max()) for chunk_NE in chunks(self.vector_NE))

    def _best(self, query_E: np.ndarray, candidate_C: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k best of these rows: scores, rows. Row by row, so that equal rows get equal scores wherever they lie."""
        score_C = np.empty(len(candidate_C), np.float32)
        for start in range(0, len(candidate_C), SCORE_ROWS):
            place = slice(start, start + SCORE_ROWS)
            np.einsum("ce,e->c", as_float32(self.vector_NE[candidate_C[place]]), query_E, out=score_C[place])
        kept_C = np.arange(len(score_C))
        if len(score_C) > k:
            kept_C = np.flatnonzero(score_C >= np.partition(score_C, len(score_C) - k)[len(score_C) - k])
        kept_K = kept_C[np.argsort(-score_C[kept_C], kind="stable")[:k]]
        return score_C[kept_K], candidate_C[kept_K]

    def settings(self) -> dict[str, Any]:
        """What was built, for logs and manifests."""
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "dtype": self.config.dtype}
        facts |= asdict(self.config.family()) | asdict(self.chosen)
        return facts | {"target_recall": self.config.target_recall, "recall_on_sample": self.recall_on_sample}

    def save(self, folder: Any) -> None:
        """Writes vectors, tables and hash functions as plain arrays, and `index.json`."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_arrays(folder, self.vector_NE, self.hashes, self.tables)
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "config": asdict(self.config)}
        scale = 1.0 if self.hashes is None else self.hashes.scale
        facts |= {"chosen": asdict(self.chosen), "scale": scale, "recall_on_sample": self.recall_on_sample}
        write_facts(folder, facts)
