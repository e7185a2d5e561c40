"""Questions as units: what one example of question answering is made from.

Which questions may be examples is decided once, when the set is opened over a corpus, and what is left out is counted
by reason; after that unit i is always there. Whether retrieval finds an answer is another matter, seen in training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from realm.text.answer_places import wanted
from realm.text.question_sets.spec import open_question_set
from realm.text.questions import Question
from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer
from realm.text.units import inside

REASONS = (
    "regular expressions",
    "answers without a word",
    "nothing to tokenize",
    "too long",
    "document not in the corpus",
)


class QuestionUnit(NamedTuple):
    """A question: its id, its wordpieces (int32, no special tokens) and its accepted answers. special: the tokenizer,
    which knows the numbers of [CLS], [SEP] and padding. row_R: the rows of the document it is about, none if it names
    none."""

    id: str
    token_T: np.ndarray
    answers: tuple[str, ...]
    special: Tokenizer
    row_R: range = range(0)


class QuestionUnits:
    """The questions that may be examples over one corpus, in their order.

    heldout: False leaves out questions about held-out documents, True takes these alone, None takes both; a question
    that names no document is never held out. Left out too: answers that are regular expressions or have no word,
    questions of more than max_tokens - 2 wordpieces or of none, and those about a document that the corpus lacks.
    length_N int32: wordpieces with [CLS] and [SEP]. texts: the questions as they are written. counts: units taken, and
    questions left out by their first reason.
    """

    def __init__(
        self, table: BlockTable, questions: Sequence[Question], *, max_tokens: int, heldout: bool | None = False
    ):
        self.table = table
        other = "not held out" if heldout else "held out"
        left_out = Counter(dict.fromkeys((*REASONS, other), 0))
        self._units: list[QuestionUnit] = []
        self.texts: list[str] = []
        encodings = table.tokenizer.encode_batch([question.question for question in questions])
        for question, encoding in zip(questions, encodings, strict=True):
            row_R = range(0) if question.document is None else table.document_rows(question.document)
            if reason := _reason(question, len(encoding.id_T), max_tokens, row_R):
                left_out[reason] += 1
            elif heldout is not None and (len(row_R) > 0 and bool(table.heldout_N[row_R[0]])) != heldout:
                left_out[other] += 1
            else:
                unit = QuestionUnit(question.id, encoding.id_T, question.answers, table.tokenizer, row_R)
                self._units.append(unit)
                self.texts.append(question.question)
        self.length_N = np.array([len(unit.token_T) + 2 for unit in self._units], np.int32)
        self.counts = {"taken": len(self._units), **left_out}

    @classmethod
    def read(
        cls, path: str | Path, table: BlockTable, *, max_tokens: int, heldout: bool | None = False
    ) -> QuestionUnits:
        """The units of a question file in any known format, of `FORMAT:PATH` or `PATH#SET`, or of the embedded
        `sample:questions`.

        Raises QuestionsError as open_question_set does.
        """
        return cls(table, question_file(path), max_tokens=max_tokens, heldout=heldout)

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, index: int) -> QuestionUnit:
        """Unit `index`. Raises IndexError outside 0 .. len - 1."""
        return self._units[inside(index, self)]

    def name(self, index: int) -> str:
        """What a message calls unit `index`: the question's id."""
        return f"question {self[index].id}"


def question_file(path: str | Path) -> tuple[Question, ...]:
    """The questions of a file, of `FORMAT:PATH` or `PATH#SET`, or of the embedded sample (`sample:questions`)."""
    return open_question_set(path).questions


def question_unit(question: str, tokenizer: Tokenizer, *, id: str = "", answers: Sequence[str] = ()) -> QuestionUnit:
    """The unit of one question from anywhere; without answers it can be asked, not trained on."""
    return QuestionUnit(id, tokenizer.encode(question).id_T, tuple(answers), tokenizer)


def _reason(question: Question, pieces: int, max_tokens: int, row_R: range) -> str | None:
    if question.kind == "regex":
        return "regular expressions"
    if not wanted(question.answers):
        return "answers without a word"
    if pieces == 0:
        return "nothing to tokenize"
    if pieces > max_tokens - 2:
        return "too long"
    if question.document is not None and not row_R:
        return "document not in the corpus"
    return None
