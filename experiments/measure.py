"""Measuring what a main job learned: recall of stages and baselines, masked-word loss, generations and their age."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from experiments.config import Preset, Stage
from experiments.locate import resolve
from index_refresh.embed import Embedder, finish
from index_refresh.recipe import Recipe
from realm.evaluation.answers import BlockAnswers
from realm.evaluation.bm25 import Bm25
from realm.evaluation.masked_words import NothingHeldOut, masked_word_loss, require_heldout
from realm.evaluation.recall import answer_recall_at, gold_rows, recall_at
from realm.evaluation.table import Rate, ResultTable, Setting
from realm.index.exact import Exact
from realm.protocols import Hits, Objective, Params, Searcher
from realm.retrieve import Retrieval
from realm.text.packing import pack_queries
from realm.text.questions import Question, QuestionsError, read_questions
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.feed import collate
from realm.training.metrics import read_metrics
from realm.training.run_folder import read_json

KS = (1, 5, 20, 100)


def chosen_questions(path: str, table: BlockTable, limit: int | None, seed: int = 0) -> list[Question]:
    """The questions that the corpus can answer (their document is in it, or unknown); a seeded sample of `limit`.

    Raises QuestionsError where there is none, or `limit` is below 1.
    """
    if limit is not None and limit < 1:
        raise QuestionsError(f"found a limit of {limit} questions, wanted at least 1, or None for all")
    known = [q for q in read_questions(resolve(path)) if q.document is None or _has_document(table, q.document)]
    if not known:
        raise QuestionsError(f"{path}: no question's document is in the corpus {table.path}")
    if limit is None or limit >= len(known):
        return known
    kept = np.sort(np.random.default_rng(seed).permutation(len(known))[:limit])
    return [known[i] for i in kept]


def _has_document(table: BlockTable, document: str) -> bool:
    try:
        return bool(table.rows_of_document(document))
    except KeyError:
        return False


def embed_questions(objective: Objective, params: Params, table: BlockTable, questions: list[Question]) -> np.ndarray:
    """q_QE float32: each question by the query tower, 64 wordpieces at most."""
    embed = jax.jit(objective.embed_queries)
    ids = [e.id_T for e in table.tokenizer.encode_batch([q.question for q in questions])]
    size, vectors = 256, np.empty((len(ids), 0), np.float32)
    order = np.argsort([len(one) for one in ids], kind="stable")
    for at in range(0, len(ids), size):
        chosen = order[at : at + size]
        part = [ids[i] for i in chosen] + [np.zeros(0, np.int32)] * (size - len(chosen))
        length = 32 if max(map(len, part)) <= 30 else 64
        token_BT, length_B = pack_queries(part, length, table.tokenizer)
        batch = {"query_token_BT": token_BT, "query_length_B": length_B}
        q_BE = np.asarray(embed({"retriever": params["retriever"]}, batch))
        if not vectors.size:
            vectors = np.empty((len(ids), q_BE.shape[1]), np.float32)
        vectors[chosen] = q_BE[: len(chosen)]
    return vectors


def search_all(searcher: Searcher, q_QE: np.ndarray, k: int, size: int = 1024) -> Hits:
    """The hits of every question, searched `size` at a time: memory does not grow with the question set."""
    parts = [searcher.search(q_QE[at : at + size], k) for at in range(0, len(q_QE), size)]
    return Hits(*(np.concatenate([np.asarray(array) for array in arrays]) for arrays in zip(*parts, strict=True)))


class QuestionSet:
    """A question set over one corpus: hits in, one row of recall out. Tokenised blocks are shared between rows."""

    def __init__(self, path: str, table: BlockTable, limit: int | None = None):
        self.path, self.table = path, table
        self.questions = chosen_questions(path, table, limit)
        self.blocks = BlockAnswers(table)
        self.gold = gold_rows(table, self.questions, blocks=self.blocks)
        self.answers = [q.answers for q in self.questions]

    def setting(self, index: str, **age: int | None) -> Setting:
        return Setting(
            dataset=Path(self.path).name,
            split=f"{len(self.questions)} questions",
            rows=self.table.indexed,
            corpus=self.table.fingerprint,
            k=max(KS),
            index=index,
            **age,
        )

    def row(self, hits: Hits) -> dict[str, Rate]:
        gold = recall_at(hits.id_BK, hits.valid_BK, self.gold, KS)
        answer = answer_recall_at(hits.id_BK, hits.valid_BK, self.blocks, self.answers, KS)
        return {f"gold@{k}": gold[k] for k in KS} | {f"answer@{k}": answer[k] for k in KS}


def embedded(stage: Stage, params: Params, table: BlockTable) -> Iterator[np.ndarray]:
    """Every block embedded now by `params`, as float32 shards in row order."""
    refresh = stage.refresh
    recipe = Recipe(
        objective=stage.objective,
        corpus=str(table.path),
        index=Exact(),
        batch_rows=refresh.batch_rows,
        lengths=refresh.block_lengths,
    )
    embedder = Embedder(recipe, table, {"retriever": params["retriever"]})
    for low in range(0, table.indexed, refresh.shard_rows):
        yield finish(embedder.shard(low, min(low + refresh.shard_rows, table.indexed), lambda done: None))


def exact_searcher(stage: Stage, params: Params, table: BlockTable) -> Searcher:
    """Exact search over every block embedded now: no index age, no approximation."""
    return Exact().build(embedded(stage, params, table))


class Measurement:
    """What `realm pretrain` shows at its end, from the finished stages of `out`."""

    def __init__(self, preset: Preset, table: BlockTable, out: Path, finished: dict[str, Path]):
        self.preset, self.table, self.out, self.finished = preset, table, out, finished
        self.recall = ResultTable("Retrieval on questions, blocks embedded afresh")

    def summary(self) -> dict[str, Any]:
        """`recall`: stage -> "1", "5", "20" -> fraction; `utility`; `generations`; `masked_words`; see the README."""
        # masked_words is null, with a masked_words_reason, where nothing is held out
        summary: dict[str, Any] = {"corpus": {"rows": self.table.indexed, "fingerprint": self.table.fingerprint}}
        if self.preset.questions:
            summary["recall"] = self._recall()
        if "realm" in self.finished:
            records = [r for r in read_metrics(self.finished["realm"] / "metrics.jsonl") if "event" not in r]
            summary["utility"] = [{"step": r["step"], "utility": r["utility"]} for r in records]
            summary["null_probability"] = [
                {"step": r["step"], "null_probability": r["null_probability"]} for r in records
            ]
            summary["generations"] = generations(self.finished["realm"], self.preset.realm.training.steps)
            params, _ = restore_params(self.finished["realm"] / "checkpoints")
            summary |= masked_words(self.preset.realm, params, self.table)
        summary["stages"] = {name: read_json(folder / "done.json") for name, folder in self.finished.items()}
        return summary

    def _towers(self):
        """(name, stage, parameters) of every retriever there is, the untrained one first."""
        first = self.preset.ict or self.preset.realm
        yield "untrained", first, first.objective.init(jax.random.key(first.training.seed))
        stages = {**self.preset.stages(), "ict_continued": self.preset.ict}
        for name in ("ict", "ict_continued", "realm"):
            if name in self.finished:
                yield name, stages[name], restore_params(self.finished[name] / "checkpoints")[0]

    def _recall(self) -> dict[str, dict[str, float]]:
        asked = QuestionSet(self.preset.questions, self.table, self.preset.max_questions)
        results = {}
        for name, stage, params in self._towers():
            searcher = exact_searcher(stage, params, self.table)
            q_QE = embed_questions(stage.objective, params, self.table, asked.questions)
            results[name] = asked.row(search_all(searcher, q_QE, max(KS)))
            self.recall.add(name, asked.setting("exact"), results[name])
        hits = Bm25(self.table).search([q.question for q in asked.questions], max(KS))
        results["bm25"] = asked.row(hits)
        self.recall.add("bm25", asked.setting("bm25"), results["bm25"])
        return {name: {str(k): row[f"gold@{k}"].value for k in (1, 5, 20)} for name, row in results.items()}

    def show(self, summary: dict[str, Any]) -> None:
        console = wide_console()
        if self.recall.rows:
            console.print(self.recall)
        if "utility" in summary:
            console.print(curve("utility (nats a masked wordpiece)", summary["utility"], "utility"))
            for g in summary["generations"]:
                console.print(
                    f"generation {g['number']}: vectors of step {g['step']}, adopted at step {g['adopted_at']}, "
                    f"{g['age_when_replaced']} steps old when replaced"
                )
            console.print(masked_words_line(summary), markup=False)
        console.print(f"{summary['minutes']} minutes, {self.out / 'summary.json'}")


def wide_console() -> Console:
    """The terminal, or 120 columns where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def heldout_loss(stage: Stage, params: Params, table: BlockTable, limit: int = 512) -> dict[str, Any]:
    """Masked-word loss on held-out sentences with and without retrieval, blocks embedded afresh, or NothingHeldOut."""
    objective = stage.objective
    units = objective.units(table, heldout=True)
    require_heldout(units)  # before the whole corpus is embedded for nothing
    searcher = exact_searcher(stage, params, table)
    retrieval = Retrieval(table, candidates=objective.candidates, block_lengths=objective.block_lengths)
    return masked_word_loss(
        objective, params, units, collate=collate, retrieval=retrieval, searcher=searcher, limit=limit
    )


def masked_words(stage: Stage, params: Params, table: BlockTable) -> dict[str, Any]:
    """{"masked_words": `heldout_loss`}, or null with a "masked_words_reason" where nothing is held out."""
    try:
        return {"masked_words": heldout_loss(stage, params, table)}
    except NothingHeldOut as error:
        return {"masked_words": None, "masked_words_reason": str(error)}


def masked_words_line(found: dict[str, Any]) -> str:
    """What `masked_words` found, in one line."""
    words = found["masked_words"]
    if words is None:
        return f"held-out masked words: not measured, {found['masked_words_reason']}"
    return (
        f"held-out masked words: {words['loss']:.3f} nats with retrieval, {words['loss_null']:.3f} without (utility "
        f"{words['utility']:.3f}, null probability {words['null_probability']:.3f}, {words['masked']:.0f} wordpieces)"
    )


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
