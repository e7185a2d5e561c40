"""Measuring a retriever and a reader on the held-out statements of a facts corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from realm.evaluation.bm25 import Bm25
from realm.evaluation.clozes import ClozeScores, cloze_ranks, cloze_rows, cloze_scores, ranks
from realm.evaluation.table import Rate
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
        unit_of = {(units[i].row, units[i].sentence): i for i in range(len(units))}
        kind = table.kinds.index(OBJECT)
        self.clozes: list[Cloze] = []
        hidden, self.gold, self.rows, self.left_out = [], [], [], 0
        for cloze in _sample(read_clozes(folder), limit, seed):
            row = table.rows_of_document(cloze.document)[0]
            span_P6 = table.spans(row)
            span_P6 = span_P6[span_P6[:, 5] == kind]
            sentence, start, end = span_P6[0, :3].tolist() if len(span_P6) == 1 else (-1, 0, 0)
            if (row, sentence) not in unit_of or end - start > objective.max_predictions:
                self.left_out += 1
                continue
            position = np.arange(start, end) - table.sentences(row)[sentence, 0]
            unit = units[unit_of[row, sentence]]
            hidden.append((unit, position))
            rows = [r for name in cloze.gold for r in table.rows_of_document(name)]
            self.gold.append(np.array([r for r in rows if cloze.object in table.text(r)]))
            self.rows.append(row)
            self.clozes.append(cloze)
        longest = 2 + max((len(unit.token_T) for unit, _ in hidden), default=0)
        length = next(one for one in sorted(objective.batch_lengths) if one >= longest)
        self.examples = [self.objective.hidden(unit, position, length) for unit, position in hidden]
        self.split_Q = np.array([cloze.split for cloze in self.clozes])

    def ranks(self, params: Params, searcher: Searcher) -> np.ndarray:
        """int64 [Q]: the rank of the first gold block (SEARCHED: not found) by the towers in `params`."""
        return cloze_ranks(
            self.objective,
            params,
            self.examples,
            self.gold,
            collate=collate,
            searcher=searcher,
            search=SEARCHED,
        )

    def rows_found(self, params: Params, searcher: Searcher, k: int) -> np.ndarray:
        """int [Q, k]: the rows that the towers in `params` find first."""
        return cloze_rows(self.objective, params, self.examples, collate=collate, searcher=searcher, k=k)

    def scores(self, params: Params, searcher: Searcher) -> ClozeScores:
        """What a retriever and a reader make of them, with the objective's number of candidates."""
        objective = self.objective
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

    def by_split(self, value_Q: np.ndarray) -> dict[str, float]:
        """Mean of a value a statement, by split; only splits that have statements."""
        return {name: float(value_Q[self.split_Q == name].mean()) for name in SPLITS if (self.split_Q == name).any()}

    def row(self, rank_Q: np.ndarray, scores: ClozeScores | None = None) -> dict[str, Any]:
        """A row of the table: recall by split, and what the reader makes of held-out facts."""
        values: dict[str, Any] = {}
        for name in SPLITS:
            of_split = rank_Q[self.split_Q == name]
            for k in (1, 5) if name == SPLITS[0] else (1,):
                values[f"{name}@{k}"] = Rate(int((of_split < k).sum()), len(of_split))
        first = self.split_Q == SPLITS[0]
        for title, array in (("right", "correct_Q"), ("right, null block", "correct_null_Q")):
            right = None if scores is None else getattr(scores, array)[first]
            values[title] = "" if right is None else Rate(int(right.sum()), len(right))
        return values


def _sample(clozes: list[Cloze], limit: int | None, seed: int) -> list[Cloze]:
    if limit is None:
        return clozes
    rng = np.random.default_rng(seed)
    kept: list[int] = []
    for name in SPLITS:
        number = np.array([i for i, cloze in enumerate(clozes) if cloze.split == name], np.int64)
        kept += rng.permutation(number)[:limit].tolist()
    return [clozes[i] for i in sorted(kept)]


def summary(clozes: ClozeSet, before: np.ndarray, scores: ClozeScores) -> dict[str, Any]:
    """What REALM did on held-out facts, and the same by split. `before`: ranks of the retriever that it started from.

    recall1_before, recall1_after: share whose block is found first; accuracy_with, accuracy_without: share of objects
    guessed right, with retrieval and by the null block; utility: nats that retrieval is worth, a wordpiece of the
    object.
    """
    by_split = {
        "recall1_before": clozes.by_split(before < 1),
        "recall1_after": clozes.by_split(scores.rank_Q < 1),
        "accuracy_with": clozes.by_split(scores.correct_Q),
        "accuracy_without": clozes.by_split(scores.correct_null_Q),
        "utility": clozes.by_split(scores.log_prob_Q - scores.log_prob_null_Q),
    }
    first = {name: value.get(SPLITS[0]) for name, value in by_split.items()}
    return first | {"by_split": by_split, "statements": len(clozes.clozes), "left_out": clozes.left_out}
