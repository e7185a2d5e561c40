"""Measuring what a main job learned: recall of stages and baselines, masked-word loss, generations and their age."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.clozes import SEARCHED, ClozeSet
from experiments.clozes import summary as summary_of_facts
from experiments.config import Preset, Stage
from experiments.console import wide_console
from experiments.dump_places import RETRIEVERS
from experiments.heldout_words import masked_words, masked_words_line
from experiments.last_index import last_index
from experiments.open_answers import AnswerTable, StoredRows, frozen_proof
from experiments.questions import KS, QuestionSet, asked_of, embed_questions
from experiments.recall_rows import RecallRows
from experiments.searching import block_vectors, search_all
from experiments.warm_start import initial_params, noted_hashes, start_hashes
from realm.evaluation.bm25 import Bm25
from realm.evaluation.clozes import ClozeScores
from realm.evaluation.table import ResultTable, Setting
from realm.index.exact import Exact
from realm.protocols import Hits, Params, Searcher
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.metrics import read_metrics
from realm.training.run_folder import read_json

FACTS_ASKED = 1000  # statements of each split, at most


class Measurement:
    """What `realm pretrain` shows at its end, from the finished stages of `out`."""

    def __init__(self, preset: Preset, table: BlockTable, out: Path, finished: dict[str, Path]):
        self.preset, self.table, self.out, self.finished = preset, table, out, finished
        self.recall = ResultTable("Retrieval on questions, blocks embedded afresh")
        self.facts = ResultTable("Held-out statements of facts, blocks embedded afresh")
        self.answers: ResultTable | None = None

    def summary(self) -> dict[str, Any]:
        """`recall`: stage -> "1", "5", "20" -> fraction; `utility`; `generations`; `masked_words`; see the README."""
        # masked_words is null, with a masked_words_reason, where nothing is held out
        summary: dict[str, Any] = {"corpus": {"rows": self.table.indexed, "fingerprint": self.table.fingerprint}}
        found = self._measure()
        if "recall" in found:
            summary["recall"] = found["recall"]
            summary |= found["beside_recall"]
        if self.recall.notes:
            summary["question_warnings"] = self.recall.notes
        if "realm" in self.finished:
            records = [r for r in read_metrics(self.finished["realm"] / "metrics.jsonl") if "event" not in r]
            summary["utility"] = [{"step": r["step"], "utility": r["utility"]} for r in records]
            summary["null_probability"] = [
                {"step": r["step"], "null_probability": r["null_probability"]} for r in records
            ]
            summary["generations"] = generations(self.finished["realm"], self.preset.realm.training.steps)
            summary |= found["words"]
        if "open_qa" in found:
            summary["open_qa"] = found["open_qa"]
        if "facts" in found:
            facts = found["facts"]
            if not self.preset.questions:  # a job of facts alone: they are its result
                summary["utility_by_step"] = summary.pop("utility")
                summary |= facts
            summary["facts"] = facts
        summary["stages"] = {name: read_json(folder / "done.json") for name, folder in self.finished.items()}
        return summary

    def _measure(self) -> dict[str, Any]:
        """Recall on questions, clozes of facts, and `masked_words` of a realm stage ("words"), where there are such.

        Each retriever embeds the corpus once for all of them.
        """
        preset, table, found = self.preset, self.table, {}
        asked = asked_of(preset, table)
        self.recall.notes += asked.warnings if asked else []
        clozes = None
        if preset.facts and "realm" in self.finished:
            clozes = ClozeSet(self.out / "facts", table, preset.realm.objective, FACTS_ASKED)
            self._add_facts("bm25", "bm25", clozes, clozes.bm25())
        hits, started, scores = {}, None, None
        rows = RecallRows(asked, self.recall, self._last()) if asked else None
        for name, stage, params, step in self._towers(every=bool(asked or clozes)):
            if step is not None:
                last_index(name, stage, params, step, table, self.finished[name])
            searcher = cache(partial(self._searcher, stage, params))
            if asked:
                if name in ("start", "open_qa"):  # the reader wants the vectors too
                    stored = StoredRows(self._vectors(stage, params))
                    searcher = cache(partial(Exact().build, [stored.vector_NE]))
                q_QE = embed_questions(stage.objective, params, table, asked.questions)
                hits[name] = search_all(searcher(), q_QE, max(KS))
                rows.add(name, "exact", hits[name], step=step)
            if clozes:
                scores = clozes.scores(params, searcher()) if name == "realm" else None
                rank_Q = scores.rank_Q if scores else clozes.ranks(params, searcher())
                started = rank_Q if name in ("untrained", "ict") else started
                self._add_facts(name, "exact", clozes, rank_Q, scores)
            if name == "realm":
                found["words"] = masked_words(stage, params, step, table, searcher)
        if asked:
            hits["bm25"] = Bm25(table).search([q.question for q in asked.questions], max(KS))
            rows.add("bm25", "bm25", hits["bm25"])
            found["recall"] = {
                name: {str(k): row[f"gold@{k}"].value for k in (1, 5, 20)} for name, row in rows.values.items()
            }
            found["beside_recall"] = rows.to_json()
        if "open_qa" in self.finished:
            found["open_qa"] = self._answers(asked, hits, stored)
        if clozes:
            found["facts"] = summary_of_facts(clozes, started, scores)
        return found

    def _vectors(self, stage: Stage, params: Params) -> Iterable[np.ndarray]:
        """Those of every block by these towers; what a stage of this job began with is read."""
        stages = self.preset.stages()
        runs = [(one, self.finished[name]) for name, one in stages.items() if name in self.finished]
        return block_vectors(stage, params, self.table, [run for run in runs if run[0].objective.candidates])

    def _searcher(self, stage: Stage, params: Params) -> Searcher:
        return Exact().build(self._vectors(stage, params))

    def _towers(self, every: bool):
        """(name, stage, parameters, their step) of the realm stage's retriever or, with `every`, of all, the untrained
        first. The step is None where this job did not train them."""
        if every:
            first = self.preset.ict or self.preset.realm
            if first is None:  # fine-tuning alone: what it starts from
                start = self._start()
                if start is not None:
                    yield "start", self.preset.open_qa, start, None
            else:
                yield "untrained", first, first.objective.init(jax.random.key(first.training.seed)), None
        stages = {**self.preset.stages(), "ict_continued": self.preset.ict}
        for name in reversed(RETRIEVERS) if every else ("realm",):
            if name in self.finished:
                yield name, stages[name], *restore_params(self.finished[name] / "checkpoints")

    def _last(self) -> Path | None:
        """The folder of the last stage with a retriever: where ranks and answers are dumped."""
        return next((self.finished[name] for name in RETRIEVERS if name in self.finished), None)

    def _start(self) -> Params | None:
        """What the fine-tuning started from; None where the run that it is of has trained on since."""
        stage = self.preset.open_qa
        params, noted = initial_params(stage, self.finished), noted_hashes(self.finished["open_qa"])
        if noted is None or noted["retriever"] == start_hashes(stage, params)["retriever"]:
            return params
        sources = ", ".join(sorted(set(stage.warm_start.values())))
        print(f"{sources} has trained on since open_qa started from it: no row `start`", file=sys.stderr)
        return None

    def _frozen_hash(self) -> str | None:
        """Of what must not change, when training began."""
        stage, noted = self.preset.open_qa, noted_hashes(self.finished["open_qa"])
        return (noted or start_hashes(stage, initial_params(stage, self.finished)))["frozen"]

    def _answers(self, asked: QuestionSet, hits: dict[str, Hits], stored: StoredRows) -> dict[str, Any]:
        """Rows of answers, and the proof that what had to stay frozen did; dumps go into the stage's folder."""
        folder, stage = self.finished["open_qa"], self.preset.open_qa
        params, step = restore_params(folder / "checkpoints")
        proof = frozen_proof(stage.objective, self._frozen_hash(), params)
        answers = AnswerTable(stage, params, step, self.table, asked)
        self.answers = answers.rows
        return {
            "rows": answers.all(hits["open_qa"], hits["bm25"], lambda: stored, folder),
            "document_side": proof,
            "training": training_shares(folder),
            "questions_trained_on": stage.objective.units(self.table).counts,
            "questions_left_out": asked.left_out,
        }

    def _add_facts(
        self, name: str, index: str, clozes: ClozeSet, rank_Q: np.ndarray, scores: ClozeScores | None = None
    ) -> None:
        split, table = f"{len(clozes.clozes)} statements", self.table
        setting = Setting("facts", split, table.indexed, table.fingerprint, SEARCHED, index)
        self.facts.add(name, setting, clozes.row(rank_Q, scores))

    def show(self, summary: dict[str, Any]) -> None:
        console = wide_console()
        if self.recall.rows:
            console.print(self.recall)
        if self.facts.rows:
            console.print(self.facts)
        if self.answers is not None:
            console.print(self.answers)
            console.print(document_side_line(summary["open_qa"]["document_side"]), markup=False)
        steps = summary.get("utility_by_step", summary.get("utility"))
        if steps:
            console.print(curve("utility (nats a masked wordpiece)", steps, "utility"))
            known = summary["generations"]
            for at, g in enumerate(known):
                if len(known) > 8 and 3 <= at < len(known) - 3:  # all are in summary.json
                    continue
                console.print(
                    f"generation {g['number']}: vectors of step {g['step']}, adopted at step {g['adopted_at']}, "
                    f"{g['age_when_replaced']} steps old when replaced"
                )
            console.print(masked_words_line(summary), markup=False)
        console.print(f"{summary['minutes']} minutes, {self.out / 'summary.json'}")


def training_shares(folder: Path) -> dict[str, Any]:
    """`no_correct_block`, `no_correct_span`: shares of the questions trained on whose part of the loss was 0, each the
    mean over the steps of the run (a record is the mean of the steps since the one before); null without a record.
    `steps`: the last one logged; `logged`: records."""
    records = [r for r in read_metrics(folder / "metrics.jsonl") if "event" not in r and "no_correct_block" in r]
    steps = [record["step"] for record in records]
    shares: dict[str, Any] = {"steps": steps[-1] if steps else 0, "logged": len(records)}
    for name in ("no_correct_block", "no_correct_span"):
        found = [record[name] for record in records]
        shares[name] = float(np.average(found, weights=np.diff([0, *steps]))) if records else None
    return shares


def document_side_line(proof: dict[str, Any]) -> str:
    """What `frozen_proof` found, in one line."""
    if not proof["frozen"]:
        return "document side: trained"
    return f"document side: frozen, sha256 {proof['before'][:12]} before and after"


def generations(folder: Path, steps: int) -> list[dict[str, Any]]:
    """Number, step of the vectors, step of adoption and age when replaced (or at the end) of every index used."""
    lines = [r for r in read_metrics(folder / "generations.jsonl") if r["event"] == "adopted"]
    ends = [r["step"] for r in lines[1:]] + [steps]
    return [
        {
            "number": r["generation"],
            "step": r["generation_step"],
            "adopted_at": r["step"],
            "age_when_replaced": end - r["generation_step"],
        }
        for r, end in zip(lines, ends, strict=True)
    ]


def curve(title: str, points: list[dict[str, float]], name: str, width: int = 12) -> str:
    """A curve in words: at most `width` points, evenly taken, first and last among them."""
    at = np.unique(np.linspace(0, len(points) - 1, width).round().astype(int)) if points else []
    return f"{title}: " + "  ".join(f"{points[i]['step']}: {points[i][name]:.3f}" for i in at)
