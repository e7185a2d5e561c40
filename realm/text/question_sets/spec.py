"""Which questions a command means: a path, `FORMAT:PATH` where the content does not tell, or a set of the sample.

`sample:questions` is the embedded set; `sample:questions-dev` and `sample:questions-test` are its two halves, which
share no article.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from realm.text.question_sets.read import FORMATS, QuestionSet, fingerprint_of, read_question_set
from realm.text.question_sets.source import Source
from realm.text.questions import QuestionsError
from realm.text.sample import sample_path

SAMPLE = "sample:"
HALVES = ("dev", "test")


def open_question_set(spec: str | Path) -> QuestionSet:
    """The questions that `spec` names. Raises QuestionsError as read_question_set, and SampleError for no sample."""
    spec = str(spec)
    if spec.startswith(SAMPLE):
        name, _, half = spec.removeprefix(SAMPLE).partition("-")
        return _sample(name, half)
    format, _, path = spec.partition(":")
    if path and format in FORMATS and format != "tfds":  # a dataset is told by its whole name
        return read_question_set(path, format=format)
    return read_question_set(spec)


def name_of(spec: str) -> str:
    """What a report calls the questions of `spec`: the file's name."""
    return Path(spec).name


def _sample(name: str, half: str) -> QuestionSet:
    path = sample_path(name)
    whole = read_question_set(path)
    if not half:
        return whole
    if half not in HALVES:
        raise QuestionsError(f"found the half {half!r} of the sample's questions, wanted one of {', '.join(HALVES)}")
    own = {record["id"] for _, record in _records(path) if record["split"] == half}
    chosen = tuple(question for question in whole.questions if question.id in own)
    return replace(whole, questions=chosen, split=half, fingerprint=fingerprint_of(chosen))


def _records(path: Path):
    return ((where, json.loads(line)) for where, line in Source(path).lines())
