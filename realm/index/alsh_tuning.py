"""The sample that an ALSH index is chosen and measured by: rows asked as queries, with noise, and their true best rows.

A query lies near its block, not on it, and the farther it lies, the more seldom it collides with its best rows: bare
rows promise too much (built for 0.9 over 100,000 clustered rows, an index found 0.886 of the hits of queries with noise
of a quarter of the spread). So say how far queries lie (`query_noise`) or, better, give some (`build(queries=...)`):
a query tower may put its vectors elsewhere than the item tower. What counts in the end is `recall_at_k` against Exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from realm.index.alsh_hash import Family, unit
from realm.index.alsh_settings import (
    EVERY_ROW,
    MOST_BITS,
    MOST_FUNCTIONS,
    SCORED,
    TABLES,
    AlshSettings,
    bucket_bits,
    choose_functions,
    search_cost,
)
from realm.index.alsh_store import CHUNK, as_float32, chunks
from realm.index.alsh_tables import PROBED_FUNCTIONS

WANTED = 8
FAR = 512
# The sample is small: this share of the misses that the target allows is kept in reserve.
RESERVE = 0.25


@dataclass(frozen=True, eq=False)
class Pairs:
    """Q queries, the row each was made from (-1: none), their W best other rows, and how both hash: inner products at
    query length 1, scaled lengths."""

    rows: int
    own_Q: np.ndarray
    query_QE: np.ndarray
    near_QW: np.ndarray
    near_ip_QW: np.ndarray
    near_length_QW: np.ndarray
    far_ip_QR: np.ndarray
    far_length_R: np.ndarray

    def choose(
        self,
        family: Family,
        target: float,
        functions: int | None,
        tables: int | None,
        probes: int | None,
        scored: int | None,
    ) -> AlshSettings:
        """What is given, and the rest from the closed forms; probes and scored are a start where they are None."""
        if functions is None:
            near_QW = family.collision(self.near_ip_QW, self.near_length_QW)
            far_QR = family.collision(self.far_ip_QR, np.broadcast_to(self.far_length_R, self.far_ip_QR.shape))
            most = MOST_FUNCTIONS if family.variant == "l2" else min(MOST_BITS, self.rows.bit_length())
            functions = choose_functions(near_QW, far_QR, self.rows, reserved(target), most) if near_QW.size else 0
        if not functions:
            return EVERY_ROW
        bits = bucket_bits(family.variant, functions, self.rows)
        probes = min(probes or 1, 2 ** min(functions, PROBED_FUNCTIONS))
        return AlshSettings(functions, tables or TABLES, bits, probes, scored or SCORED)


def reserved(target: float) -> float:
    """The recall that the sample must show, so that other queries reach `target`."""
    return 1 - (1 - target) * (1 - RESERVE)


def sample_pairs(
    vector_NE: np.ndarray,
    mean_E: np.ndarray,
    scale: float,
    sample: int,
    seed: int,
    noise: float = 0.0,
    queries: np.ndarray | None = None,
) -> Pairs:
    """Draws the sample and finds its true best rows by scoring every row, in chunks.

    noise: of sampled rows, as a share of the spread of the vectors. queries: [n, E], asked instead of rows.
    """
    rows = len(vector_NE)
    rng = np.random.default_rng([seed, 1])
    own_Q = np.sort(rng.choice(rows, min(sample, rows), replace=False))
    far_R = rng.integers(0, rows, FAR)
    query_QE = as_float32(vector_NE[own_Q])
    if queries is not None:
        chosen = np.sort(rng.choice(len(queries), min(sample, len(queries)), replace=False))
        query_QE, own_Q = queries[chosen], np.full(len(chosen), -1)
    elif noise:
        spread = np.sqrt(np.square(query_QE - mean_E).mean())
        query_QE = query_QE + np.float32(noise * spread) * rng.standard_normal(query_QE.shape, np.float32)
    score_QW = np.full((len(own_Q), 0), 0, np.float32)
    near_QW = np.full((len(own_Q), 0), 0, np.int64)
    for number, chunk_NE in enumerate(chunks(vector_NE)):
        first = number * CHUNK
        score_QN = query_QE @ chunk_NE.T
        mine = (own_Q >= first) & (own_Q < first + len(chunk_NE))
        score_QN[mine, own_Q[mine] - first] = -np.inf
        score_QN = np.concatenate([score_QW, score_QN], axis=1)
        id_QN = np.concatenate([near_QW, np.tile(np.arange(first, first + len(chunk_NE)), (len(own_Q), 1))], axis=1)
        if score_QN.shape[1] > WANTED:
            best_QW = np.argpartition(-score_QN, WANTED - 1, axis=1)[:, :WANTED]
            score_QN, id_QN = (np.take_along_axis(a_QN, best_QW, axis=1) for a_QN in (score_QN, id_QN))
        score_QW, near_QW = score_QN, id_QN
    if queries is None and rows <= WANTED:  # then the row itself is still there, as the last
        near_QW = np.take_along_axis(near_QW, np.argsort(-score_QW, axis=1)[:, : rows - 1], axis=1)
    direction_QE = unit(query_QE)
    near_QWE = (as_float32(vector_NE[near_QW]) - mean_E) * np.float32(scale)
    far_RE = (as_float32(vector_NE[far_R]) - mean_E) * np.float32(scale)
    return Pairs(
        rows=rows,
        own_Q=own_Q,
        query_QE=query_QE,
        near_QW=near_QW,
        near_ip_QW=np.einsum("qe,qwe->qw", direction_QE, near_QWE),
        near_length_QW=np.linalg.norm(near_QWE, axis=2),
        far_ip_QR=direction_QE @ far_RE.T,
        far_length_R=np.linalg.norm(far_RE, axis=1),
    )


def tune(
    searcher: Any, pairs: Pairs, target: float, probes: int | None, scored: int | None
) -> tuple[AlshSettings, float | None, float]:
    """Probes and scored rows of the lowest expected cost with which the sample reaches the target; its recall@8, and
    that cost in nanoseconds a query.

    Probes double; where none suffices, the best recall. What is given stands. Counted, not timed, so that a second
    build chooses the same.
    """
    most = 2 ** min(searcher.chosen.functions, PROBED_FUNCTIONS)
    counts = [2**power for power in range(most.bit_length())] if probes is None else [searcher.chosen.probes]
    depths = (SCORED, 4 * SCORED) if scored is None else (scored,)
    best = (False, -np.inf)
    for count in counts:
        buckets, colliding = _work(replace(searcher, chosen=replace(searcher.chosen, probes=count)), pairs)
        if best[0] and search_cost(pairs.rows, buckets, colliding, 0) > -best[1]:
            break
        for depth in depths:
            chosen = replace(searcher.chosen, probes=count, scored=depth)
            recall = sample_recall(replace(searcher, chosen=chosen), pairs)
            reached = recall is None or recall >= reserved(target)
            cost = search_cost(pairs.rows, buckets, colliding, depth)
            best = max(best, (reached, -cost if reached else recall, chosen, recall, cost), key=lambda each: each[:2])
    return best[2:]


def _work(searcher: Any, pairs: Pairs) -> tuple[float, float]:
    """Buckets looked at and rows that collide, a query."""
    bucket_QLT = searcher.buckets(pairs.query_QE)
    colliding = sum(int(searcher.tables.colliding(bucket_LT)[1].sum()) for bucket_LT in bucket_QLT)
    return bucket_QLT[0].size, colliding / len(bucket_QLT)


def sample_recall(searcher: Any, pairs: Pairs) -> float | None:
    """recall@8 on the sample, each query's own row left out; None without any other row."""
    if not pairs.near_QW.size:
        return None
    hits = searcher.search(pairs.query_QE, WANTED + 1)
    other_QK = hits.valid_BK & (hits.id_BK != pairs.own_Q[:, None])
    other_QK &= np.cumsum(other_QK, axis=1) <= WANTED
    found_QW = ((hits.id_BK[:, None, :] == pairs.near_QW[:, :, None]) & other_QK[:, None, :]).any(axis=2)
    return float(found_QW.mean())
