"""A question set over a corpus: which questions can be asked, how they are embedded, and the row that hits give."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from experiments.samples import resolve
from realm.evaluation.answers import BlockAnswers
from realm.evaluation.recall import answer_recall_at, gold_rows, recall_at
from realm.evaluation.table import Rate, Setting
from realm.protocols import Hits, Objective, Params
from realm.text.packing import pack_queries
from realm.text.questions import Question, QuestionsError, read_questions
from realm.text.table import BlockTable

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
