"""Measuring a retriever and a reader on the held-out statements of a facts corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from realm.evaluation.bm25 import Bm25
from realm.evaluation.clozes import ClozeScores, cloze_scores, ranks
from realm.objectives.realm import Realm
from realm.protocols import Params, Searcher
from realm.retrieve import Retrieval
from realm.text.facts import OBJECT, SPLITS, Cloze, read_clozes
from realm.text.masks import SalientSpan
from realm.text.table import BlockTable
from realm.training.feed import collate

SEARCHED = 20


class ClozeSet:
    """The clozes of a facts folder over one corpus: examples, gold rows and splits.

    limit: of each split, a seeded sample. `left_out` counts statements that cannot be asked (too long, or an object of
    too many wordpieces).
    """

    def __init__(self, folder: Path, table: BlockTable, objective: Realm, limit: int | None = None, seed: int = 0):
        self.table, self.objective = table, replace(objective, masking=SalientSpan())
        units = self.objective.units(table, heldout=True)
        unit_of = {units[i].row: i for i in range(len(units))}
        kind = table.kinds.index(OBJECT)
        self.clozes: list[Cloze] = []
        self.examples, self.gold, self.rows, self.left_out = [], [], [], 0
        for cloze in _sample(read_clozes(folder), limit, seed):
            row = table.rows_of_document(cloze.document)[0]
            span_P6 = table.spans(row)
            span_P6 = span_P6[span_P6[:, 5] == kind]
            fits = row in unit_of and len(span_P6) == 1 and np.diff(span_P6[0, 1:3])[0] <= objective.max_predictions
            if not fits:
                self.left_out += 1
                continue
            position = np.arange(*span_P6[0, 1:3])
            self.examples.append(self.objective.hidden(units[unit_of[row]], position, objective.batch_lengths[-1]))
            self.gold.append(np.array([r for name in cloze.gold for r in table.rows_of_document(name)]))
            self.rows.append(row)
            self.clozes.append(cloze)
        self.split_Q = np.array([cloze.split for cloze in self.clozes])

    def scores(self, objective: Realm, params: Params, searcher: Searcher) -> ClozeScores:
        """What a retriever and a reader make of them, with `objective.candidates` blocks."""
        retrieval = Retrieval(self.table, candidates=objective.candidates, block_lengths=objective.block_lengths)
        return cloze_scores(
            objective,
            params,
            self.examples,
            self.gold,
            collate=collate,
            retrieval=retrieval,
            searcher=searcher,
            search=SEARCHED,
        )

    def bm25(self) -> np.ndarray:
        """int64 [Q]: the rank of the first gold block by BM25, the object left out of the question."""
        questions = []
        for cloze, row in zip(self.clozes, self.rows, strict=True):
            text = self.table.text(row)
            questions.append(text[: cloze.start] + text[cloze.end :])
        hits = Bm25(self.table).search(questions, SEARCHED)
        return ranks(hits.id_BK, hits.valid_BK, self.gold)

    def recall(self, rank_Q: np.ndarray, k: int = 1) -> dict[str, float]:
        """Share with a gold block among the first k, by split."""
        return self.by_split(rank_Q < k)

    def by_split(self, value_Q: np.ndarray) -> dict[str, float]:
        """Mean of a value a statement, by split; only splits that have statements."""
        return {name: float(value_Q[self.split_Q == name].mean()) for name in SPLITS if (self.split_Q == name).any()}


def _sample(clozes: list[Cloze], limit: int | None, seed: int) -> list[Cloze]:
    if limit is None:
        return clozes
    rng = np.random.default_rng(seed)
    kept: list[int] = []
    for name in SPLITS:
        number = np.array([i for i, cloze in enumerate(clozes) if cloze.split == name], np.int64)
        kept += rng.permutation(number)[:limit].tolist()
    return [clozes[i] for i in sorted(kept)]


def summary(clozes: ClozeSet, before: np.ndarray | None, scores: ClozeScores) -> dict[str, Any]:
    """The numbers of the README: on held-out facts, and by split. `before`: ranks of the retriever before REALM."""
    of_facts = {
        "recall1_before": None if before is None else clozes.recall(before),
        "recall1_after": clozes.recall(scores.rank_Q),
        "accuracy_with": clozes.by_split(scores.correct_Q),
        "accuracy_without": clozes.by_split(scores.correct_null_Q),
        "utility": clozes.by_split(scores.log_prob_Q - scores.log_prob_null_Q),
    }
    first = {name: value and value.get("facts") for name, value in of_facts.items()}
    return first | {"splits": of_facts, "statements": len(clozes.clozes), "left_out": clozes.left_out}
