"""How many hash functions, tables and probes an ALSH index gets: from a target recall, a sample and the closed forms.

A row that collides with the query with probability p under one function shares one of W buckets of K functions with
probability 1 - (1 - p^K)^W. Few functions make buckets full of far rows, many make near rows hard to hit; so for each K
the least W that reaches the target is found on sampled pairs, and the K of the lowest cost is taken. The W buckets are
L tables times T probes. Neighbouring buckets of one table do better than as many tables, so the final T is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from realm.index.alsh_hash import PAPER, Family
from realm.index.vectors import IndexBuildError

# Nanoseconds on one core of a 2020s server, width 128: a query, a bucket looked at, a row that collides, a row scored;
# and a row where all are looked at, in matrix products over a batch.
QUERY_NS, BUCKET_NS, COLLISION_NS, SCORE_NS = 50_000.0, 60.0, 3.0, 160.0
BRUTE_NS = 10.0
# Counting how often each row collides: by sorting what collides, or with a counter for every row.
SORT_NS, COUNT_NS, COUNTER_NS = 25.0, 2.0, 0.8
TABLES = 16
MOST_TABLES = 255
MOST_BITS = 24
MOST_FUNCTIONS = 64
SCORED = 1024


@dataclass(frozen=True)
class AlshSettings:
    """functions K a table (0: no tables, every row is scored), tables L, probes T a table, scored: rows a query."""

    functions: int
    tables: int
    bits: int
    probes: int
    scored: int

    def searched_with(self, probes: int | None, scored: int | None) -> AlshSettings:
        """With other search settings; None keeps what is there, and without tables nothing changes."""
        if not self.functions:
            return self
        return replace(self, probes=probes or self.probes, scored=scored or self.scored)

    def __str__(self) -> str:
        if not self.functions:
            return "every row is scored"
        scored = f"{self.scored} rows scored"
        return f"{self.tables} tables of {self.functions} functions, {self.probes} probes a table, {scored}"


EVERY_ROW = AlshSettings(functions=0, tables=0, bits=0, probes=0, scored=0)


def family(variant: str, m: int | None, u: float | None, r: float | None) -> Family:
    """The variant with the papers' values where None is given. Raises IndexBuildError."""
    if variant not in PAPER:
        raise IndexBuildError(f"variant is {variant!r}, wanted one of {tuple(PAPER)}")
    m, u, r = (standard if value is None else value for value, standard in zip((m, u, r), PAPER[variant], strict=True))
    if variant == "simple" and (m, u) != PAPER["simple"][:2]:
        raise IndexBuildError(f"variant 'simple' has no m and no u; found m {m}, u {u}: leave them None")
    if variant != "l2" and r != 0:
        raise IndexBuildError(f"only variant 'l2' has a width r, found r {r} for {variant!r}: leave it None")
    # With u = 1 the powers of the norms, which stand for nothing, would not vanish.
    if m < 1 or not 0 < u <= 1 or (u == 1 and variant != "simple") or (variant == "l2" and r <= 0):
        raise IndexBuildError(f"m is {m}, u {u}, r {r}; wanted m of at least 1, 0 < u < 1, r > 0")
    return Family(variant, int(m), float(u), float(r))


def bucket_bits(variant: str, functions: int, rows: int) -> int:
    """2^bits buckets: the K signs, or for l2, whose codes are many, about one for two rows."""
    if variant != "l2":
        return functions
    return int(np.clip(np.ceil(np.log2(max(rows, 2))) - 1, 1, MOST_BITS))


def choose_functions(near_QW: np.ndarray, far_QR: np.ndarray, rows: int, target: float, most: int) -> int:
    """The K of the lowest expected cost; 0 where scoring every row costs less.

    near_QW: collision probability, under one function, of sampled queries with their true hits; far_QR: with rows taken
    at random.
    """
    best, least = 0, rows * BRUTE_NS
    for functions in range(2, most + 1):
        buckets = needed_buckets(near_QW**functions, target)
        colliding = rows * buckets * float(np.mean(far_QR**functions))
        cost = search_cost(rows, buckets, colliding, SCORED)
        if cost < least:
            best, least = functions, cost
    return best


def search_cost(rows: int, buckets: float, colliding: float, scored: float) -> float:
    """Nanoseconds a query: buckets looked at, rows that collide (as often as they do), rows scored at most."""
    counting = colliding * COUNT_NS + rows * COUNTER_NS if has_counters(rows, colliding) else colliding * SORT_NS
    return QUERY_NS + buckets * BUCKET_NS + colliding * COLLISION_NS + counting + min(colliding, scored) * SCORE_NS


def has_counters(rows: int, colliding: float) -> bool:
    """Whether so many rows collide that a counter for every row of the corpus is cheaper than sorting."""
    return colliding * (SORT_NS - COUNT_NS) > rows * COUNTER_NS


def needed_buckets(hit: np.ndarray, target: float) -> float:
    """The least W, to 5 %, with mean of 1 - (1 - hit)^W >= target; infinite where none is."""
    buckets = 1.0
    while np.mean(-np.expm1(buckets * np.log1p(-np.minimum(hit, 1 - 1e-12)))) < target:
        buckets *= 1.05
        if buckets > 2**20:
            return float("inf")
    return buckets


def check_given(given: dict[str, Any]) -> None:
    """Refuses settings that no index can have. Raises IndexBuildError."""
    limits = {
        "functions": (0, MOST_FUNCTIONS),
        "tables": (1, MOST_TABLES),
        "probes": (1, 1024),
        "scored": (1, 2**31 - 1),
        "sample": (1, 2**31 - 1),
    }
    for name, (low, high) in limits.items():
        value = given[name]
        if value is not None and not low <= value <= high:
            raise IndexBuildError(f"{name} is {value}, wanted {low} to {high}")
    if not 0 < given["target_recall"] < 1:
        raise IndexBuildError(f"target_recall is {given['target_recall']}, wanted above 0 and below 1")
    if not 0 <= given["query_noise"] < float("inf"):
        raise IndexBuildError(f"query_noise is {given['query_noise']}, wanted 0 or more, a share of the spread")
    if given["variant"] != "l2" and (given["functions"] or 0) > MOST_BITS:
        raise IndexBuildError(f"functions is {given['functions']}, wanted at most {MOST_BITS} signs a bucket")
    if given["dtype"] not in ("float32", "bfloat16"):
        raise IndexBuildError(f"dtype is {given['dtype']!r}, wanted 'float32' or 'bfloat16'")
