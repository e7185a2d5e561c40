"""How far the adopted index has drifted from what a fresh one would say, measured on a sample.

The same blocks are embedded by the towers that the index was made with and by those of now; the probe's questions,
embedded by those of now, are asked of both. What the two disagree on is retrieval that a refresh would change.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from realm.protocols import GenerationLike, Hits, Objective, Params
from realm.text.packing import pack_blocks
from realm.text.table import BlockTable
from realm.training.side_by_side import SideBySide
from realm.training.watch import Probe

SAMPLE, BATCH = 2048, 64


class DriftError(ValueError):
    """A drift that cannot be measured."""


class SampleSearcher:
    """Exact search over a few rows in numpy; see `realm.protocols.Searcher`."""

    kind = "sample"

    def __init__(self, row_N: np.ndarray, vector_NE: np.ndarray) -> None:
        self.row_N, self.vector_NE = row_N, vector_NE
        self.rows, self.dim = vector_NE.shape

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        score_BN = query_BE @ self.vector_NE.T
        place_BK = np.argsort(-score_BN, axis=1, kind="stable")[:, :k]
        id_BK = self.row_N[place_BK].astype(np.int32)
        return Hits(np.take_along_axis(score_BN, place_BK, axis=1), id_BK, np.ones(id_BK.shape, bool))

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def save(self, folder: Any) -> None:
        raise DriftError("a sample is no index")


class Drift:
    """Measures on the probe's blocks and others, `SAMPLE` in all, the same ones every time.

    length: blocks are cut there. Raises DriftError where the watch has no probe.
    """

    def __init__(self, objective: Objective, table: BlockTable, probe: Probe | None, *, length: int, seed: int) -> None:
        if probe is None:
            raise DriftError("a refresh schedule by drift needs questions: found watch.blocks=0, wanted some")
        self.probe, self.table, self.length = probe, table, length
        rest = np.random.default_rng([seed, 0x85EBCA6B]).permutation(table.indexed)
        own = np.unique(probe.group_Q[probe.group_Q < table.indexed])
        rest = rest[~np.isin(rest, own)][: max(0, SAMPLE - len(own))]
        self.row_N = np.sort(np.concatenate([own, rest]))
        self._embed = jax.jit(objective.embed_items)
        self._stale: tuple[int, SampleSearcher] | None = None

    def measure(self, params: Params, generation: GenerationLike) -> float:
        """Share of the fresh top 5 that the stale sample does not have, over all questions; 0 without any."""
        if self._stale is None or self._stale[0] != generation.number:
            self._stale = (generation.number, self._searcher(generation.query_params()))
        both = SideBySide(self._searcher({"retriever": params["retriever"]}), self._stale[1])
        self.probe.run(params, both)
        return 1.0 - both.same / both.asked if both.asked else 0.0

    def _searcher(self, towers: Params) -> SampleSearcher:
        padded = np.concatenate([self.row_N, np.full(-len(self.row_N) % BATCH, -1)])
        vectors = [
            np.asarray(self._embed(towers, pack_blocks(self.table, padded[low : low + BATCH], self.length)))
            for low in range(0, len(padded), BATCH)
        ]
        return SampleSearcher(self.row_N, np.concatenate(vectors)[: len(self.row_N)].astype(np.float32))
