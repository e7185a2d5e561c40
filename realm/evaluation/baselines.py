"""Answers without a trained reader: the most frequent one, and the name in the sentence most like the question.

`majority` looks at nothing but the training answers. `overlap_answers` is the lexical baseline of reading (after the
sliding window of Rajpurkar et al. 2016, arXiv 1606.05250): of all sentences of the retrieved blocks the one that shares
the rarest words with the question, and in it the first salient span that the question does not already say.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from realm.evaluation.bm25 import words
from realm.evaluation.scores import Mode, normalise
from realm.protocols import Hits
from realm.text.table import BlockTable


class BaselineError(ValueError):
    """A baseline that has nothing to go by."""


def majority(answers: Iterable[Sequence[str]], mode: Mode) -> str:
    """The answer that is right for the most training questions, as it is written most often.

    Raises BaselineError where there is no answer.
    """
    counted: Counter[str] = Counter()
    written: dict[str, Counter[str]] = {}
    for alternatives in answers:
        for text in dict.fromkeys(alternatives):
            written.setdefault(normalise(text, mode), Counter())[text] += 1
        counted.update({normalise(text, mode) for text in alternatives})
    counted.pop("", None)  # what normalises to nothing is no answer
    if not counted:
        raise BaselineError("found no training answers, wanted at least one")
    best = max(counted, key=lambda text: (counted[text], text))
    return max(written[best], key=lambda text: (written[best][text], text))


def overlap_answers(table: BlockTable, questions: Sequence[str], hits: Hits, blocks: int) -> list[str | None]:
    """One answer a question from its first `blocks` hits; None where there is no block.

    A shared word counts by its rarity among the sentences looked at. Equal sentences: the earlier one.
    """
    found: list[str | None] = []
    for number, question in enumerate(questions):
        rows = hits.id_BK[number, :blocks][hits.valid_BK[number, :blocks]]
        found.append(_overlap(table, set(words(question)), rows))
    return found


def _overlap(table: BlockTable, asked: set[str], rows: np.ndarray) -> str | None:
    places = [(int(row), s) for row in rows for s in range(len(table.sentences(int(row))))]
    said = [set(words(_sentence(table, *place))) for place in places]
    often = Counter(word for one in said for word in one)
    best, score = None, -1.0
    for place, one in zip(places, said, strict=True):
        shared = sum(math.log(1 + len(said) / often[word]) for word in one & asked)
        if shared > score:
            best, score = place, shared
    return None if best is None else _name(table, *best, asked)


def _sentence(table: BlockTable, row: int, sentence: int) -> str:
    start, end = table.sentences(row)[sentence, 2:].tolist()
    return table.text(row)[start:end]


def _name(table: BlockTable, row: int, sentence: int, asked: set[str]) -> str:
    """The first salient span with a word that was not asked for; the whole sentence where there is none."""
    text = table.text(row)
    for ordinal, _, _, start, end, _ in table.spans(row).tolist():
        if ordinal == sentence and not set(words(text[start:end])) <= asked:
            return text[start:end]
    return _sentence(table, row, sentence)
