"""Watching the retriever while it learns from masked words: does it still find what it should?

At every new generation each held-out block is looked for with one of its own sentences (the inverse cloze task as a
test, no labels needed). Together with the null probability and the utility this tells learning from noise: where
documents help little, the retriever's gradient is noise, and Adam makes full-sized steps of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from realm.protocols import Objective, Params, Searcher
from realm.text.packing import pack_queries
from realm.text.table import BlockTable
from realm.text.units import BlockUnits

ALIKE = 1e-4  # nats below log K: blocks whose scores differ by less than about 0.01 are not told apart


class RetrieverCollapse(RuntimeError):
    """The watch was told to stop the run, and the retriever got worse than it allows."""


class WatchError(ValueError):
    """A setting of the watch that cannot be."""


@dataclass(frozen=True)
class Watch:
    """blocks: held-out blocks probed (0: no probe). max_drop: allowed fall of probe recall@5 below its best.
    max_null: allowed mean null probability. stop: end the run (exit code 1) instead of warning. query_length: a probe
    sentence is cut there, [CLS] and [SEP] counted. batch: sentences embedded at once.

    Raises WatchError for values out of range.
    """

    blocks: int = 256
    max_drop: float = 0.05
    max_null: float = 0.5
    stop: bool = False
    query_length: int = 64
    batch: int = 64

    def __post_init__(self) -> None:
        for name, right, wanted in (
            ("blocks", self.blocks >= 0, "0 (no probe) or more"),
            ("max_null", 0 < self.max_null <= 1, "a probability above 0 and at most 1"),
            ("query_length", self.query_length >= 4, "at least 4 wordpieces: [CLS], two of a sentence, [SEP]"),
            ("batch", self.batch >= 1, "at least 1"),
        ):
            if not right:
                raise WatchError(f"found {name} {getattr(self, name)}, wanted {wanted}")


class Probe:
    """Own-sentence recall on held-out blocks (all blocks where none is held out), with a fixed choice of sentences."""

    def __init__(self, objective: Objective, table: BlockTable, watch: Watch, seed: int):
        heldout = bool(np.asarray(table.heldout_N).any())
        units = BlockUnits(table, heldout=True if heldout else None, min_sentences=2, indexed=True)
        rng = np.random.default_rng([seed, 0x9E3779B9])
        chosen = rng.permutation(len(units))[: watch.blocks]
        queries, rows = [], []
        for i in chosen:
            unit = units[int(i)]
            start, end = unit.sentence_S2[rng.integers(len(unit.sentence_S2))]
            queries.append(unit.token_T[start:end])
            rows.append(unit.row)
        self.heldout = heldout
        self.group_Q = np.asarray(table.duplicate_N)[np.asarray(rows, np.int64)] if rows else np.zeros(0, np.int64)
        self.group_N = np.asarray(table.duplicate_N)
        self._batches = [
            pack_queries(queries[i : i + watch.batch], watch.query_length, table.tokenizer)
            for i in range(0, len(queries), watch.batch)
        ]
        self._embed = jax.jit(objective.embed_queries)

    def run(self, params: Params, searcher: Searcher) -> dict[str, Any]:
        """{"blocks", "heldout", "recall@1", "recall@5"} with the given towers and index."""
        found = []
        for token_BT, length_B in self._batches:
            batch = {"query_token_BT": token_BT, "query_length_B": length_B}
            q_BE = np.asarray(self._embed({"retriever": params["retriever"]}, batch))
            hits = searcher.search(q_BE, min(5, searcher.rows))
            found.append(np.where(hits.valid_BK, self.group_N[hits.id_BK], -1))
        if not found:
            return {"blocks": 0, "heldout": self.heldout}
        match_QK = np.concatenate(found) == self.group_Q[:, None]
        return {
            "blocks": len(match_QK),
            "heldout": self.heldout,
            "recall@1": float(match_QK[:, :1].any(axis=1).mean()),
            "recall@5": float(match_QK.any(axis=1).mean()),
        }


class Watcher:
    """Compares each probe with the best so far and with what the loss says, and warns or stops."""

    def __init__(self, watch: Watch, report: Callable[[str], None], best: float | None = None):
        self.watch, self.report, self.best, self.warnings = watch, report, best, 0

    def look(self, step: int, probe: dict[str, Any], last: dict[str, Any]) -> str | None:
        """The warning given, or None. `last` holds the newest logged metrics.

        Raises RetrieverCollapse with the same text where the watch is told to stop.
        """
        complaint = self._complaint(step, probe, last)
        if complaint is None:
            return None
        text = f"WARNING {complaint}. {_advice(last)}"
        if not self.watch.stop:
            text += "; --realm.training.watch.stop ends such a run"
        self.warnings += 1
        self.report(text)
        if self.watch.stop:
            raise RetrieverCollapse(text)
        return text

    def _complaint(self, step: int, probe: dict[str, Any], last: dict[str, Any]) -> str | None:
        recall = probe.get("recall@5")
        if recall is not None:
            self.best = recall if self.best is None else max(self.best, recall)
            if recall < self.best - self.watch.max_drop:
                blocks = "held-out blocks" if probe.get("heldout") else "training blocks, none being held out,"
                fall = f"{self.best - recall:.1%} below its best"
                return f"own-sentence recall@5 on {blocks} is {recall:.1%} at step {step}, {fall}"
        entropy, candidates = last.get("entropy"), last.get("candidates")
        if entropy is not None and candidates and candidates > 1.5 and entropy > math.log(candidates) - ALIKE:
            return (
                f"p(z|x) is uniform at step {step} (entropy {entropy:.4f} nats over {candidates:.0f} candidates): the "
                "towers give all blocks the same score, and such a retriever gets no gradient"
            )
        null = last.get("null_probability")
        if null is not None and null > self.watch.max_null:
            return f"the null block takes {null:.1%} of p(z|x) at step {step}: retrieval is being switched off"
        return None


def _advice(last: dict[str, Any]) -> str:
    """Likely cause and what to type. A retriever that has had no update yet cannot be to blame for itself."""
    if last.get("rate/retriever") == 0:
        return (
            "The retriever has had no update yet (--realm.training.optimizer.retriever.start lies ahead), so look at "
            "the index (its kind and recall: realm evaluate) or the joint encoder "
            "(--realm.training.optimizer.joint.peak) instead"
        )
    utility = last.get("utility")
    return (
        "Likely cause: documents help little"
        + (f" (utility {utility:.2f} nats)" if utility is not None else "")
        + ", so the retriever's gradient is mostly noise. Lower --realm.training.optimizer.retriever.peak, raise "
        "--realm.training.optimizer.retriever.start until utility has risen, or raise --realm.training.batch-size"
    )
