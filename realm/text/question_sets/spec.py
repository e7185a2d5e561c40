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
    path, format = _parted(spec)
    return read_question_set(path, format=format)


def same_questions(one: str, other: str) -> bool:
    """Whether two names mean the same file, however its path is written and whether or not the format is said."""
    paths = [Path(_parted(spec)[0]) for spec in (one, other)]
    return one == other or (all(path.exists() for path in paths) and paths[0].samefile(paths[1]))


def name_of(spec: str) -> str:
    """What a report calls the questions of `spec`: the file's name."""
    return Path(spec).name


def _parted(spec: str) -> tuple[str, str | None]:
    """(path, format) of `FORMAT:PATH`, or of a path alone."""
    format, _, path = spec.partition(":")
    known = path and format in FORMATS and format != "tfds"  # a dataset is told by its whole name
    return (path, format) if known else (spec, None)


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
