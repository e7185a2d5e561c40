"""The hash functions of asymmetric LSH and the closed forms of their collision probabilities.

Inner products are no metric, so no symmetric hash serves them; with one transform P for rows and another Q for queries,
P(x) and Q(q) are near each other just where q.x is large. Rows are scaled to length at most u, queries to length 1.
  l2      P(x) = [x; |x|^2; |x|^4; ..; |x|^(2^m)], Q(q) = [q; 1/2; ..; 1/2], then floor(a.z + b), Shrivastava & Li 2014
  sign    P(x) = [x; 1/2 - |x|^2; ..; 1/2 - |x|^(2^m)], Q(q) = [q; 0; ..; 0], then sign(a.z), Shrivastava & Li 2015
  simple  P(x) = [x; sqrt(1 - |x|^2)], Q(q) = [q; 0], then sign(a.z), Neyshabur & Srebro 2015 (u = 1, no m)
Shape letters: N rows, E width, F = L * K hash functions, L tables, K functions a table, M values that P appends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Variant = Literal["l2", "sign", "simple"]
# What the papers recommend: (m, u, r).
PAPER = {"l2": (3, 0.83, 2.5), "sign": (2, 0.75, 0.0), "simple": (1, 1.0, 0.0)}

LANES = 16
# An odd number whose bits look random (2^64 divided by the golden ratio): multiplying spreads keys over the high bits.
MIX = np.uint64(0x9E3779B97F4A7C15)

_erf = np.vectorize(math.erf, otypes=[np.float64])


def l2_collision(ip: Any, norm: Any, m: int = 3, r: float = 2.5) -> np.ndarray:
    """P[floor((a.P(x) + b) / r) is that of Q(q)] = F_r(d), d^2 = 1 + m/4 - 2 ip + norm^(2^(m+1)).

    F_r(d) = 1 - 2 Phi(-r/d) - 2 / (sqrt(2 pi) r/d) (1 - exp(-(r/d)^2 / 2)); Datar et al. 2004 for F_r,
    Shrivastava & Li 2014 for d.
    ip: q.x with |q| = 1 and x scaled; norm: |x| after scaling.
    """
    squared = 1 + m / 4 - 2 * np.asarray(ip, np.float64) + np.asarray(norm, np.float64) ** 2.0 ** (m + 1)
    wide = r / np.sqrt(np.maximum(squared, 1e-12))
    tails = 1 - _erf(wide / math.sqrt(2))  # 2 Phi(-r/d)
    return 1 - tails - 2 / (math.sqrt(2 * math.pi) * wide) * (1 - np.exp(-(wide**2) / 2))


def sign_collision(ip: Any, norm: Any, m: int = 2) -> np.ndarray:
    """P[sign(a.P(x)) = sign(a.Q(q))] = 1 - arccos(ip / sqrt(m/4 + norm^(2^(m+1)))) / pi; Shrivastava & Li 2015."""
    length = np.sqrt(m / 4 + np.asarray(norm, np.float64) ** 2.0 ** (m + 1))
    return 1 - np.arccos(np.clip(ip / length, -1, 1)) / math.pi


def simple_collision(ip: Any) -> np.ndarray:
    """P[sign(a.P(x)) = sign(a.Q(q))] = 1 - arccos(ip) / pi, whatever |x|; Neyshabur & Srebro 2015."""
    return 1 - np.arccos(np.clip(np.asarray(ip, np.float64), -1, 1)) / math.pi


@dataclass(frozen=True)
class Family:
    """One of the three variants with its parameters: m appended norms, u the length of the longest row, r the width."""

    variant: Variant
    m: int
    u: float
    r: float

    def collision(self, ip: Any, norm: Any) -> np.ndarray:
        """The closed form of this variant for one hash function; grows with ip = q.x, at any given length of x."""
        if self.variant == "l2":
            return l2_collision(ip, norm, self.m, self.r)
        return sign_collision(ip, norm, self.m) if self.variant == "sign" else simple_collision(ip)

    def row_tail(self, x_NE: np.ndarray) -> np.ndarray:
        """What P appends to scaled rows, [N, M]."""
        square_N = np.einsum("ne,ne->n", x_NE, x_NE)
        if self.variant == "simple":
            return np.sqrt(np.maximum(1 - square_N, 0))[:, None]
        power_NM = square_N[:, None] ** 2.0 ** np.arange(self.m)
        return (power_NM if self.variant == "l2" else 0.5 - power_NM).astype(x_NE.dtype)

    def query_tail(self) -> float:
        """What Q appends, the same value M times."""
        return 0.5 if self.variant == "l2" else 0.0


@dataclass(frozen=True, eq=False)
class Hashes:
    """F = L * K drawn functions over rows centred by mean_E and multiplied by scale.

    Centring is free for maximum inner product search: q.(x - mean) orders rows as q.x does, for every query. It matters
    because encoders put a large common part into every vector, in which all rows collide.
    The K codes of a table are joined by whole-number weights into one key, and that into one of 2^bits buckets. Keys
    stay below 2^53, so that float64 products, which are fast, hold them exactly.
    """

    family: Family
    bits: int
    scale: float
    mean_E: np.ndarray
    direction_AF: np.ndarray
    offset_F: np.ndarray
    weight_LK: np.ndarray

    @staticmethod
    def draw(
        family: Family, mean_E: np.ndarray, scale: float, tables: int, functions: int, bits: int, seed: int
    ) -> Hashes:
        """`functions` K for each of `tables` L; a bucket of the sign variants is the K signs, so there `bits` is K."""
        rng = np.random.default_rng(seed)
        direction_AF = rng.normal(size=(len(mean_E) + family.m, tables * functions)).astype(np.float32)
        if family.variant == "l2":
            direction_AF /= np.float32(family.r)
            offset_F = rng.random(tables * functions, dtype=np.float32)
            weight_LK = rng.integers(1, 2**36, (tables, functions)).astype(np.float64)
        else:
            offset_F = np.zeros(tables * functions, np.float32)
            weight_LK = np.tile(2.0 ** np.arange(functions), (tables, 1))
        return Hashes(family, bits, scale, mean_E, direction_AF, offset_F, weight_LK)

    def row_buckets(self, vector_NE: np.ndarray) -> np.ndarray:
        """The bucket of each row in each table, uint32 [N, L]."""
        x_NE = self.scaled(vector_NE)
        width = x_NE.shape[1]
        value_NF = x_NE @ self.direction_AF[:width]
        value_NF += self.family.row_tail(x_NE) @ self.direction_AF[width:] + self.offset_F
        return self._buckets(self._keys(self._codes(value_NF)))

    def query_buckets(self, query_BE: np.ndarray, flip_TP: np.ndarray) -> np.ndarray:
        """The buckets to look at, uint32 [B, L, T], the query's own first (multi-probe LSH, Lv et al. 2007).

        flip_TP: which of a table's P least certain functions take their nearest other code, in each of T probes.
        """
        value_BF = self._query_values(query_BE)
        code_BF = self._codes(value_BF)
        if self.family.variant == "l2":
            above_BF = value_BF - code_BF
            doubt_BF, step_BF = np.minimum(above_BF, 1 - above_BF), np.where(above_BF > 0.5, 1.0, -1.0)
        else:
            doubt_BF, step_BF = np.abs(value_BF), 1 - 2 * code_BF
        shape = (len(query_BE), *self.weight_LK.shape)
        least_BLP = np.argsort(doubt_BF.reshape(shape), axis=2, kind="stable")[:, :, : flip_TP.shape[1]]
        change_BLP = np.take_along_axis(step_BF.reshape(shape) * self.weight_LK, least_BLP, axis=2)
        return self._buckets(self._keys(code_BF)[:, :, None] + change_BLP @ flip_TP.T.astype(np.float64))

    def scaled(self, vector_NE: np.ndarray) -> np.ndarray:
        """Rows as they are hashed: centred, the longest of length u."""
        return (vector_NE - self.mean_E) * np.float32(self.scale)

    def _query_values(self, query_BE: np.ndarray) -> np.ndarray:
        # A whole number of vector lanes, so that the last bit of a query does not depend on its batch mates.
        unit_BE = np.zeros((-(-len(query_BE) // LANES) * LANES, query_BE.shape[1]), np.float32)
        unit_BE[: len(query_BE)] = unit(query_BE)
        tail_F = self.direction_AF[query_BE.shape[1] :].sum(axis=0) * np.float32(self.family.query_tail())
        return (unit_BE @ self.direction_AF[: query_BE.shape[1]] + (tail_F + self.offset_F))[: len(query_BE)]

    def _codes(self, value_NF: np.ndarray) -> np.ndarray:
        return np.floor(value_NF) if self.family.variant == "l2" else (value_NF > 0).astype(np.float32)

    def _keys(self, code_NF: np.ndarray) -> np.ndarray:
        tables, functions = self.weight_LK.shape
        weight_FL = np.zeros((tables * functions, tables))
        for table in range(tables):
            weight_FL[table * functions : (table + 1) * functions, table] = self.weight_LK[table]
        return code_NF.astype(np.float64) @ weight_FL

    def _buckets(self, key: np.ndarray) -> np.ndarray:
        key = key.astype(np.int64)
        if self.family.variant == "l2":
            key = (key.view(np.uint64) * MIX) >> np.uint64(64 - self.bits)
        return key.astype(np.uint32)


def unit(query_BE: np.ndarray) -> np.ndarray:
    """Queries at length one, those of length zero as they are."""
    length_B = np.sqrt(np.einsum("be,be->b", query_BE, query_BE, dtype=np.float64))
    return (query_BE / np.where(length_B > 0, length_B, 1)[:, None]).astype(np.float32)
