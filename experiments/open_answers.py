"""Answers of a fine-tuned run: EM and F1 beside BM25 with the same reader and two baselines without one.

Every block is embedded afresh and searched exactly, so no number here has an index age or an approximation: the
`ann_recall` of such a row is 1 by definition, not by measurement, and null where BM25 or nothing was searched.
Intervals are bootstrapped over articles (the title of a question's document): questions about one stand and fall
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.config import Stage
from experiments.console import progress
from experiments.dump_places import answers_file
from experiments.questions import QuestionSet
from realm.evaluation.baselines import majority, overlap_answers
from realm.evaluation.bootstrap import interval
from realm.evaluation.dump import write_dump
from realm.evaluation.reader import Answer, predictions, read_answers
from realm.evaluation.scores import MODES, REGEX_MODES, Mode, ScoreError, score
from realm.evaluation.table import Rate, ResultTable
from realm.models.tree_hash import tree_hash
from realm.objectives.open_qa import OpenQa
from realm.protocols import Hits, Params
from realm.retrieve import Retrieval
from realm.text.table import BlockTable
from realm.training.feed import collate


class FrozenMoved(RuntimeError):
    """What training must not change has changed."""


class StoredRows:
    """Vectors in memory by row, as an index's stored ones are asked for."""

    def __init__(self, vectors: Sequence[np.ndarray]):
        self.vector_NE = np.concatenate(list(vectors))

    def take(self, row_N: np.ndarray) -> np.ndarray:
        return self.vector_NE[row_N]


def frozen_proof(objective: OpenQa, before: str | None, end: Params) -> dict[str, Any]:
    """{"frozen": whether anything had to stay, "before", "after": its tree_hash}.

    before: its hash when training began. Raises FrozenMoved where the two differ: then the index is not of these
    parameters.
    """
    frozen = objective.frozen(end)
    if not frozen:
        return {"frozen": False}
    after = tree_hash(frozen)
    if before != after:
        found = before[:12] if before else "not noted"
        raise FrozenMoved(f"the block tower was {found} before training and is {after[:12]}: it had to stay")
    return {"frozen": True, "before": before, "after": after}


def chosen_mode(asked: QuestionSet, mode: Mode | None = None) -> Mode:
    """The rules asked for; by default ORQA's, as REALM was scored by, and for regular expressions its prefix match.

    Raises ScoreError where these rules are not for answers of this kind.
    """
    fitting = [one for one in MODES if (one in REGEX_MODES) == (asked.kind == "regex")]
    if mode is not None and mode not in fitting:
        raise ScoreError(f"{asked.path}: found {asked.kind} answers and mode {mode}, wanted {' or '.join(fitting)}")
    return mode or ("regex-match" if asked.kind == "regex" else "orqa")


class AnswerTable:
    """Rows of answers over one question set, with their dumps in `folder` (None: no dumps).

    `results`: of each row `em` and `f1` with their intervals, `counts`, and what they were measured on.
    """

    def __init__(
        self, stage: Stage, params: Params, step: int, table: BlockTable, asked: QuestionSet, mode: Mode | None = None
    ):
        self.stage, self.params, self.step, self.table, self.asked = stage, params, step, table, asked
        self.objective: OpenQa = stage.objective
        self.mode = chosen_mode(asked, mode)
        self.groups = asked.articles()
        title = f"Answers at step {step}, the reader reads {self.objective.read} blocks"
        self.rows = ResultTable(title, asked.warnings)
        self.results: dict[str, dict[str, Any]] = {}
        self.retrieval = Retrieval(
            table, candidates=self.objective.read + 1, block_lengths=self.objective.block_lengths
        )

    def all(self, hits: Hits, bm25: Hits, vectors: Callable[[], Any], folder: Path | None = None) -> dict[str, Any]:
        """All rows: the run's own retriever, BM25's blocks for the same reader, and the two baselines.

        hits: of the run's retriever. vectors: the stored ones, as `take` gives them.
        """
        read, age = self.objective.read, {"generation_step": self.step, "index_age": 0}
        own = self._read(hits, vectors)
        self.add("open_qa", "exact", hits, predictions(self.asked.questions, own), own, folder, **age)
        other = self._read(bm25, vectors)
        self.add("bm25 + reader", "bm25", bm25, predictions(self.asked.questions, other), other, folder)
        texts = overlap_answers(self.table, [q.question for q in self.asked.questions], bm25, read)
        self.add("bm25 + overlap", "bm25", bm25, self._named(texts), None, folder)
        if self.mode not in REGEX_MODES:
            units = self.objective.units(self.table)
            common = majority((units[i].answers for i in range(len(units))), self.mode)
            self.add("majority", "none", None, self._named([common] * len(self.asked.questions)), None, folder)
        return self.results

    def add(
        self,
        name: str,
        index: str,
        hits: Hits | None,
        predicted: dict[str, str | None],
        answers: list[list[Answer]] | None,
        folder: Path | None,
        **age: int | None,
    ) -> None:
        """Scores one row and writes its dump."""
        asked = self.asked
        read = min(self.objective.read, hits.id_BK.shape[1]) if hits else 0
        setting = asked.setting(index, k=read, **age)
        scores = score(asked.questions, predicted, self.mode)
        em = interval(scores.em_Q, group_Q=self.groups)
        f1 = None if scores.f1_Q is None else interval(scores.f1_Q, group_Q=self.groups)
        match_QK = None
        if hits:
            match_QK = asked.blocks.match(hits.id_BK[:, :read], hits.valid_BK[:, :read], asked.answers)
        values: dict[str, Any] = {
            "answer in read": Rate(int(match_QK.any(axis=1).sum()), len(match_QK)) if hits else None
        }
        values |= {f"EM {self.mode}": scores.em(), "EM 95 %": _span(em)}
        if f1 is not None:
            values |= {f"F1 {self.mode}": f"{100 * f1.mean:.1f}", "F1 95 %": _span(f1)}
        self.rows.add(name, setting, values)
        measured = {"k": read, "index": index, "ann_recall": 1.0 if index == "exact" else None, **age}
        measured |= {"corpus": self.table.fingerprint, "rows": self.table.indexed}
        self.results[name] = {
            **asked.source(),
            "questions": len(asked.questions),
            "mode": self.mode,
            "em": em.to_json(),
            "f1": f1.to_json() if f1 else None,
            "counts": scores.counts(),
            **measured,
        }
        if folder is not None:
            write_dump(
                folder / answers_file(name),
                asked.questions,
                predicted,
                scores,
                **asked.source(),
                header={"row": name, "step": self.step, **measured},
                extra=self._extra(hits, match_QK, answers),
            )

    def _read(self, hits: Hits, vectors: Callable[[], Any]) -> list[list[Answer]]:
        # A span's rank among the blocks read does not depend on how many more the retriever was taught on.
        narrow = replace(self.objective, beam=self.objective.read)
        return read_answers(
            narrow,
            self.params,
            self.asked.questions,
            hits,
            join=lambda candidates: self.retrieval.retrieved(candidates, vectors),
            places=self.retrieval.places,
            collate=collate,
            batch_size=16,
            tick=progress("questions"),
        )

    def _named(self, texts: Sequence[str | None]) -> dict[str, str | None]:
        return {question.id: text for question, text in zip(self.asked.questions, texts, strict=True)}

    def _extra(self, hits: Hits | None, match_QK: np.ndarray | None, answers: list[list[Answer]] | None):
        extra: dict[str, dict[str, Any]] = {}
        for number, question in enumerate(self.asked.questions):
            record: dict[str, Any] = {"article": self.groups[number]}
            if hits is not None:
                valid_K = hits.valid_BK[number, : match_QK.shape[1]]
                row_K = hits.id_BK[number, : match_QK.shape[1]]
                record["blocks"] = [self.table.block_id(int(row)) for row in row_K[valid_K]]
                record["holds_answer"] = match_QK[number][valid_K].tolist()
            if answers is not None and answers[number]:
                best = answers[number][0]
                record |= {"block": self.table.block_id(best.row), "start": best.start, "end": best.end}
                record |= {"log_p_block": best.block_log_prob, "log_p_span": best.span_log_prob}
            extra[question.id] = record
        return extra


def _span(one: Any) -> str:
    return f"{100 * one.low:.1f} to {100 * one.high:.1f}"
