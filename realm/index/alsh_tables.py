"""The hash tables of ALSH: for each of L tables the rows in bucket order, and where each bucket starts.

4 bytes for each row and table, and 4 for each bucket. Built table by table from buckets that are computed in chunks;
saved as plain arrays and opened as memory maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from realm.index.alsh_hash import Hashes
from realm.index.alsh_settings import has_counters

PROBED_FUNCTIONS = 10


@dataclass(frozen=True, eq=False)
class Tables:
    """row_LN int32, in each table ascending within a bucket; start_LS int32, S = 2^bits + 1."""

    row_LN: np.ndarray
    start_LS: np.ndarray

    @staticmethod
    def fill(hashes: Hashes, chunks: Iterator[np.ndarray], rows: int) -> Tables:
        """Hashes all `rows` vectors, given as float32 chunks [n, E] in row order."""
        tables, buckets = len(hashes.weight_LK), 2**hashes.bits
        row_LN = np.empty((tables, rows), np.int32)
        start_LS = np.zeros((tables, buckets + 1), np.int32)
        filled = 0
        for chunk_NE in chunks:
            # The buckets stand where the rows will be.
            row_LN.view(np.uint32)[:, filled : filled + len(chunk_NE)] = hashes.row_buckets(chunk_NE).T
            filled += len(chunk_NE)
        number_N = np.arange(rows, dtype=np.int64)
        for table in range(tables):
            bucket_N = row_LN[table].view(np.uint32)
            start_LS[table, 1:] = np.cumsum(np.bincount(bucket_N, minlength=buckets))
            # Sorting bucket and row as one number is several times faster than a stable argsort.
            joined_N = (bucket_N.astype(np.int64) << 32) | number_N
            joined_N.sort()
            row_LN[table] = joined_N & 0xFFFFFFFF
        return Tables(row_LN, start_LS)

    def colliding(self, bucket_LT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each bucket begins among all L * N entries, and how many rows it holds, probe after probe: [T * L]."""
        tables, rows = self.row_LN.shape
        table_L1 = np.arange(tables)[:, None]
        first_LT = self.start_LS[table_L1, bucket_LT].astype(np.int64)
        count_LT = self.start_LS[table_L1, bucket_LT + np.uint32(1)] - first_LT
        return (first_LT + table_L1 * rows).T.ravel(), count_LT.T.ravel()

    def candidates(self, bucket_LT: np.ndarray, most: int) -> np.ndarray:
        """The rows in these buckets, [C]; a row comes once for each table in which it collides.

        No more than `most`, the first probes first: memory is bounded even where all rows are equal.
        """
        first_G, count_G = self.colliding(bucket_LT)
        before_G = np.cumsum(count_G) - count_G
        count_G = np.minimum(count_G, np.maximum(most - before_G, 0))
        place_C = np.repeat(first_G - before_G, count_G)
        place_C += np.arange(len(place_C))
        return self.row_LN.reshape(-1)[place_C]


@lru_cache
def probe_template(functions: int, probes: int) -> np.ndarray:
    """Which of the P least certain functions change their code in each probe, bool [T, P], the first none.

    The `probes` sets of smallest summed squared margin, with the margins' expected sizes in place of a query's own:
    for |N(0, 1)| those are near ((i + 1/2) / functions)^2 up to a factor (Lv et al. 2007).
    """
    width = min(functions, PROBED_FUNCTIONS)
    set_TP = np.array(list(product((False, True), repeat=width)))
    cost_T = set_TP @ ((np.arange(width) + 0.5) / functions) ** 2
    return set_TP[np.argsort(cost_T, kind="stable")[:probes]]


def most_collided(row_C: np.ndarray, most: int, rows: int) -> np.ndarray:
    """Of `rows` rows those that come most often, that is collide in most tables, ascending; of equal counts the lowest.

    At most `most`. The share of tables in which a row collides estimates its collision probability, so this keeps the
    largest inner products before any is computed.
    """
    if has_counters(rows, len(row_C)):
        count_N = np.bincount(row_C)
        row_V = np.flatnonzero(count_N)
        count_V = count_N[row_V]
    else:
        row_C = np.sort(row_C)
        first_V = np.flatnonzero(np.diff(row_C, prepend=-1))
        row_V, count_V = row_C[first_V], np.diff(first_V, append=len(row_C))
    if len(row_V) <= most:
        return row_V
    at_least = np.cumsum(np.bincount(count_V)[:0:-1])[::-1]  # how many rows come 1, 2, .. times or more
    least = 1 + int((at_least > most).sum())
    kept_V = count_V >= least
    kept_V[np.flatnonzero(count_V == least - 1)[: most - int(kept_V.sum())]] = True
    return row_V[kept_V]
