"""From a question's blocks to an answer: the best span as the exact characters of its block, ready to be scored.

The blocks come as search hits, so that the retriever's own and a fixed list (BM25's, say) are read alike. The answer is
the best of all spans of all blocks together, where ORQA's code takes the best block and the best span by two maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from realm.protocols import Arrays, Hits, Objective, Params
from realm.retrieve import NULL, Candidates, device_arrays
from realm.text.answer_places import AnswerPlaces
from realm.text.question_units import question_unit


class ReaderError(ValueError):
    """Questions and hits that do not fit together."""


class Reader(Objective, Protocol):
    """An objective that finds spans. `best`: block_Bn, start_Bn, end_Bn, valid_Bn, log_prob_Bn, block_log_prob_Bn and
    span_log_prob_Bn, the n best spans of each question's blocks."""

    def best(self, params: Params, batch: Arrays, count: int = 1) -> dict[str, Any]: ...


class Asked(Protocol):
    """What is read of a question here."""

    id: str
    question: str


class Answer(NamedTuple):
    """text: exact characters of block `row`, from its character `start` to `end` - 1. log_prob: of this span among all
    spans of all blocks read; block_log_prob: log p(z|x); span_log_prob: log p(y|z,x); in nats."""

    text: str
    row: int
    start: int
    end: int
    log_prob: float
    block_log_prob: float
    span_log_prob: float


def read_answers(
    objective: Reader,
    params: Params,
    questions: Sequence[Asked],
    hits: Hits,
    *,
    join: Callable[[Candidates], Any],
    places: AnswerPlaces,
    collate: Callable[[list[Arrays]], Arrays],
    batch_size: int = 8,
    count: int = 1,
    tick: Callable[[str, int, int], None] = lambda phase, done, total: None,
) -> list[list[Answer]]:
    """The `count` best answers of each question, best first; none where it has no block.

    hits: blocks of each question, best first; `objective.beam` of them at most are looked at. join: from candidates to
    what `objective.found` takes. tick: told how many are answered, of how many. A question longer than the last batch
    length loses its tail. Raises ReaderError when questions and hits differ in number.
    """
    if len(hits.id_BK) != len(questions):
        raise ReaderError(f"found hits of {len(hits.id_BK)} questions, wanted those of {len(questions)}")
    best = _best(objective)
    found: list[list[Answer]] = []
    for low in range(0, len(questions), batch_size):
        real = min(batch_size, len(questions) - low)
        # The last batch is filled up with its first question: one shape, one compilation.
        place_B = np.array([low + (b if b < real else 0) for b in range(batch_size)])
        units = [question_unit(questions[n].question, places.table.tokenizer) for n in place_B]
        length = _length(objective.batch_lengths, max(len(unit.token_T) for unit in units) + 2)
        batch = device_arrays(collate([objective.example(unit, None, length) for unit in units]))  # no answers told
        candidates = _candidates(hits, place_B, objective.candidates)
        ready = objective.found(batch, join(candidates))
        spans = jax.device_get(best(params, ready, count=count))
        found += [_answers(spans, b, candidates.id_BK[b, 1:], places) for b in range(real)]
        tick("answering", len(found), len(questions))
    return found


def predictions(questions: Sequence[Asked], answers: Sequence[Sequence[Answer]]) -> dict[str, str | None]:
    """The best answer of each question by its id, None where there is none: what `score` takes."""
    return {question.id: few[0].text if few else None for question, few in zip(questions, answers, strict=True)}


@cache
def _best(objective: Reader) -> Callable[..., dict[str, Any]]:
    # Once for an objective: whoever asks question by question would compile each time.
    return jax.jit(objective.best, static_argnames="count")


def _length(lengths: Sequence[int], wanted: int) -> int:
    return next((one for one in lengths if one >= wanted), lengths[-1])


def _candidates(hits: Hits, place_B: np.ndarray, columns: int) -> Candidates:
    """The hits of these questions as candidates: the null block first, then as many as there is room for."""
    id_BK = np.zeros((len(place_B), columns), np.int32)
    valid_BK = np.zeros(id_BK.shape, bool)
    id_BK[:, 0], valid_BK[:, 0] = NULL, True
    width = min(columns - 1, hits.id_BK.shape[1])
    valid_BK[:, 1 : 1 + width] = hits.valid_BK[place_B, :width]
    id_BK[:, 1 : 1 + width] = np.where(hits.valid_BK[place_B, :width], hits.id_BK[place_B, :width], 0)
    return Candidates(id_BK, valid_BK, np.zeros(len(place_B), bool))


def _answers(spans: dict[str, np.ndarray], b: int, row_L: np.ndarray, places: AnswerPlaces) -> list[Answer]:
    answers = []
    for n in np.flatnonzero(spans["valid_Bn"][b]):
        row = int(row_L[spans["block_Bn"][b, n]])
        start, end = places.characters(row, int(spans["start_Bn"][b, n]), int(spans["end_Bn"][b, n]))
        numbers = (float(spans[f"{name}log_prob_Bn"][b, n]) for name in ("", "block_", "span_"))
        answers.append(Answer(places.table.text(row)[start:end], row, start, end, *numbers))
    return answers
