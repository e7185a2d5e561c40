"""A question set over a corpus: which questions can be asked, how they are embedded, and where hits have a match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from experiments.config import Preset
from realm.evaluation.answers import BlockAnswers, BlockPatterns
from realm.evaluation.recall import Ranks, answer_ranks, gold_ranks, gold_rows
from realm.evaluation.scores import normalise
from realm.evaluation.table import Setting
from realm.protocols import Hits, Objective, Params
from realm.text.packing import pack_queries
from realm.text.question_sets.read import QuestionSet as ReadQuestions
from realm.text.question_sets.read import fingerprint_of, training_warnings
from realm.text.question_sets.spec import name_of, open_question_set, same_questions
from realm.text.question_units import QuestionUnits
from realm.text.questions import Question, QuestionsError
from realm.text.table import BlockTable

KS = (1, 5, 20, 100)


def chosen_questions(
    questions: Sequence[Question],
    path: str,
    table: BlockTable,
    heldout: bool | None = None,
    counts: Counter | None = None,
) -> list[Question]:
    """The questions that the corpus can answer: their document is in it, or unknown.

    heldout: True takes those about held-out documents alone, False leaves these out. counts: those left out are added
    as "document_not_in_corpus" and "of_the_other_part". Raises QuestionsError where there is none.
    """
    counts = Counter() if counts is None else counts
    known = [(q, document_rows(table, q)) for q in questions]
    known = [(q, rows) for q, rows in known if q.document is None or rows]
    counts["document_not_in_corpus"] += len(questions) - len(known)
    if not known:
        raise QuestionsError(f"{path}: no question's document is in the corpus {table.path}")
    asked = [q for q, rows in known if heldout is None or bool(rows and table.heldout_N[rows[0]]) == heldout]
    counts["of_the_other_part"] += len(known) - len(asked)
    if not asked:
        which = "held-out" if heldout else "training"
        raise QuestionsError(
            f"{path}: no question is about a {which} document of {table.path}: wanted other --questions, or a corpus "
            "with another --corpus.holdout"
        )
    return asked


def sampled(questions: list[Question], limit: int | None) -> list[Question]:
    """A seeded sample of `limit`, in their order; None for all. Raises QuestionsError for a limit below 1."""
    if limit is not None and limit < 1:
        raise QuestionsError(f"found a limit of {limit} questions, wanted at least 1, or None for all")
    if limit is None or limit >= len(questions):
        return questions
    kept = np.sort(np.random.default_rng(0).permutation(len(questions))[:limit])
    return [questions[i] for i in kept]


def document_rows(table: BlockTable, question: Question) -> list[int]:
    """The rows of the document that a question names; none where it names none or the corpus lacks it."""
    return [] if question.document is None else list(table.document_rows(question.document))


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
    """A question set over one corpus: hits in, ranks of the first match out. Tokenised blocks are shared between hits.

    path: as `open_question_set` takes it. heldout: as in `chosen_questions`. trained: texts of questions that something
    learned from, which are left out however they are written; left_out: how many were. tuned_on: another set, that a
    model was tuned on; None where it was tuned on none or on this one. fingerprint: of the questions asked. warnings:
    doubts about the set and what the corpus lacks of it, which belong beside its numbers. Raises QuestionsError where
    nothing is left to ask.
    """

    def __init__(
        self,
        path: str,
        table: BlockTable,
        limit: int | None = None,
        heldout: bool | None = None,
        trained: Iterable[str] = (),
        tuned_on: ReadQuestions | None = None,
    ):
        self.path, self.table, self.heldout = path, table, heldout
        self.read = open_question_set(path)
        self.warnings = list(self.read.warnings)
        if tuned_on is not None:
            self.warnings += training_warnings(tuned_on.dataset, self.read)
        self._counts = Counter(in_file=len(self.read.questions))
        asked = chosen_questions(self.read.questions, path, table, heldout, self._counts)
        lacking = self._counts["document_not_in_corpus"]
        if lacking:
            of_all = f"{lacking:,} of {len(self.read.questions):,} questions"
            self.warnings.append(f"{of_all} are about documents that the corpus lacks and are left out")
        learned = {plain(text) for text in trained} - {""}
        fresh = [question for question in asked if plain(question.question) not in learned]
        self.left_out = len(asked) - len(fresh)
        if not fresh:
            raise QuestionsError(
                f"{path}: all {len(asked)} questions that could be asked are among those trained on: wanted other "
                "--questions"
            )
        self.questions = sampled(fresh, limit)
        self.kind = self.questions[0].kind
        self.fingerprint = fingerprint_of(self.questions)
        self.dataset = name_of(path, self.read.dataset)
        self.blocks = (BlockPatterns if self.kind == "regex" else BlockAnswers)(table)
        self.answers = [q.answers for q in self.questions]

    @cached_property
    def gold(self) -> list[np.ndarray]:
        """The gold rows of each question."""
        return self._gold[0]

    @cached_property
    def _gold(self) -> tuple[list[np.ndarray], Counter]:
        counts = Counter()
        return gold_rows(self.table, self.questions, blocks=self.blocks, counts=counts), counts

    @property
    def counts(self) -> dict[str, int]:
        """How the file's questions became those asked, and what recall makes of them.

        in_file = document_not_in_corpus + of_the_other_part (of held-out and training documents) + trained_on +
        not_sampled + asked. asked = gold + no_document_named, which recall of gold blocks leaves out; the others are as
        `gold_rows` counts them.
        """
        asked, counts = len(self.questions), dict(self._counts)
        others = counts["document_not_in_corpus"] + counts["of_the_other_part"] + self.left_out + asked
        counts |= {"trained_on": self.left_out, "not_sampled": counts["in_file"] - others, "asked": asked}
        # Of those asked no document is lacking: that count is of the whole file.
        return dict(self._gold[1]) | counts

    @property
    def split(self) -> str:
        """Split and number, as a table shows them."""
        about = {None: "", True: " about held-out documents", False: " about training documents"}[self.heldout]
        left_out = f", {self.left_out} trained on left out" if self.left_out else ""
        return " ".join(filter(None, (self.read.split, f"{len(self.questions)} questions{about}{left_out}")))

    def articles(self) -> list[str]:
        """What each question belongs to: the title of its document, or itself where there is none."""
        rows = [document_rows(self.table, question) for question in self.questions]
        titles = [self.table.title(row[0]) if row else "" for row in rows]
        return [title or question.id for title, question in zip(titles, self.questions, strict=True)]

    def setting(self, index: str, k: int = max(KS), **age: int | None) -> Setting:
        return Setting(
            dataset=self.dataset,
            split=self.split,
            rows=self.table.indexed,
            corpus=self.table.fingerprint,
            k=k,
            index=index,
            fingerprint=self.fingerprint,
            **age,
        )

    def ranks(self, hits: Hits) -> dict[str, Ranks]:
        """Where the first gold block ("gold") and the first block that holds an answer ("answer") are."""
        return {
            "gold": gold_ranks(hits.id_BK, hits.valid_BK, self.gold),
            "answer": answer_ranks(hits.id_BK, hits.valid_BK, self.blocks, self.answers),
        }

    def source(self) -> dict[str, Any]:
        """What a dump says of the questions: `dataset`, `split`, `fingerprint`."""
        return {"dataset": self.dataset, "split": self.split, "fingerprint": self.fingerprint}


def plain(text: str) -> str:
    """A question as two files may write it differently: without case, punctuation and articles."""
    return normalise(text, "orqa")


def asked_of(
    preset: Preset, table: BlockTable, limit: int | None = None, units: QuestionUnits | None = None
) -> QuestionSet | None:
    """The questions that measure a job; for a fine-tuned one without any, those it trains on, about held-out documents.

    Never the very questions that the fine-tuning learned from: of the same file only held-out documents count, and of
    any file no question that is among those trained on. limit: a sample of so many, by default what the preset says.
    units: those of the fine-tuning, where they were made already.
    """
    trained = preset.open_qa.objective.questions if preset.open_qa else None
    spec = preset.questions or trained
    limit = preset.max_questions if limit is None else limit
    if spec is None:
        return None
    if trained is None:
        return QuestionSet(spec, table, limit)
    units = preset.open_qa.objective.units(table) if units is None else units
    same = same_questions(spec, trained)
    tuned_on = None if same else open_question_set(trained)
    return QuestionSet(spec, table, limit, True if same else None, units.texts, tuned_on)
