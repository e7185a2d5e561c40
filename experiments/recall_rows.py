"""Rows of recall over one question set: a table, and of each row its setting, its intervals and a dump of its ranks.

Intervals are bootstrapped over articles (the title of a question's document, or the question where none is known): what
is asked about one article stands and falls together. A dump is what `realm compare` takes, for any two retrievers that
were asked the same questions over the same blocks.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments.dump_places import recall_file
from experiments.questions import KS, QuestionSet
from realm.evaluation.bootstrap import interval
from realm.evaluation.dump import write_recall
from realm.evaluation.recall import Ranks
from realm.evaluation.table import Cell, ResultTable
from realm.protocols import Hits

MOST = max(KS)


class RecallRows:
    """Rows of the table `shown`, with their dumps in `folder` (None: no dumps)."""

    def __init__(self, asked: QuestionSet, shown: ResultTable, folder: Path | None = None):
        self.asked, self.shown, self.folder = asked, shown, folder
        self.articles = asked.articles()
        self.values: dict[str, dict[str, Cell]] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self.intervals: dict[str, dict[str, Any]] = {}

    def add(
        self,
        name: str,
        index: str,
        hits: Hits,
        *,
        shown_as: str | None = None,
        more: dict[str, Cell] | None = None,
        step: int | None = None,
    ) -> None:
        """Adds the row of one retriever, whose blocks and questions both come from its parameters at `step`; None where
        no training made it. shown_as: its name in the table. more: further cells."""
        ranks = self.asked.ranks(hits)
        setting = self.asked.setting(index, generation_step=step, index_age=None if step is None else 0)
        values: dict[str, Cell] = {f"{kind}@{k}": ranks[kind].recall(k) for kind in ranks for k in KS}
        values[f"MRR@{MOST}"] = ranks["gold"].mrr(MOST)
        self.shown.add(shown_as or name, setting, values | (more or {}))
        self.values[name], self.settings[name] = values, asdict(setting)
        self.intervals[name] = {f"{kind}@{k}": self._interval(ranks[kind], k) for kind in ranks for k in KS}
        if self.folder is not None:
            measured = {"row": name, "step": step, "k": MOST, "index": index}
            measured |= {"corpus": self.asked.table.fingerprint, "rows": self.asked.table.indexed}
            write_recall(
                self.folder / recall_file(name),
                self.asked.questions,
                **ranks,
                **self.asked.source(),
                header=measured,
                extra={q.id: {"article": one} for q, one in zip(self.asked.questions, self.articles, strict=True)},
            )

    def to_json(self) -> dict[str, Any]:
        """What belongs beside the numbers. `recall_setting`: row -> the fields of `Setting`. `recall_intervals`: row ->
        "gold@5" -> an interval, null where there is no number. `question_counts`: see `QuestionSet.counts`."""
        return {
            "recall_setting": self.settings,
            "recall_intervals": self.intervals,
            "question_counts": self.asked.counts,
        }

    def _interval(self, ranks: Ranks, k: int) -> dict[str, Any] | None:
        counted_Q = ranks.counted_Q
        if ranks.recall(k).value is None:
            return None
        groups = [one for one, counted in zip(self.articles, counted_Q, strict=True) if counted]
        return interval(ranks.within(k)[counted_Q], group_Q=groups).to_json()
