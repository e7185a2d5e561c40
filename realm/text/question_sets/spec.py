"""Which questions a command means: a path, what it is where the content does not tell, or a set of the sample.

    FORMAT:PATH    the format, one of FORMATS: `dpr:questions.csv`
    PATH#SET       the set, and its split behind a colon: `questions.jsonl#squad`, `questions.jsonl#squad:dev`
    PATH#regex     that answers are regular expressions, as those of `#curatedtrec` are; `#text`: that they are not

All of them together: `realm:questions.jsonl#mine:test,regex`. A set may have a name of one's own: scores on it are told
apart from those on others. A file with such a name is always that file.
`sample:questions` is the embedded set; `sample:questions-dev` and `sample:questions-test` are its two halves, which
share no article.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

from realm.text.question_sets.read import FORMATS, QuestionSet, fingerprint_of, read_question_set
from realm.text.question_sets.source import Source
from realm.text.questions import AnswerKind, QuestionsError
from realm.text.sample import sample_path

SAMPLE = "sample:"
HALVES = ("dev", "test")
_SET = re.compile(r"([a-z][\w-]*)(?::([\w-]+))?")


class _Spec(NamedTuple):
    """What one name of questions says; None for what it leaves to the content."""

    path: str
    format: str | None = None
    dataset: str | None = None
    split: str | None = None
    kind: AnswerKind | None = None


def open_question_set(spec: str | Path) -> QuestionSet:
    """The questions that `spec` names. Raises QuestionsError as read_question_set does, and for a name of a set that is
    none; SampleError for no sample."""
    spec = str(spec)
    if spec.startswith(SAMPLE):
        name, _, half = spec.removeprefix(SAMPLE).partition("-")
        return _sample(name, half)
    return read_question_set(**_parted(spec)._asdict())


def same_questions(one: str, other: str) -> bool:
    """Whether two names mean the same file, however its path is written and whatever else is said of it."""
    paths = [Path(_parted(spec).path) for spec in (one, other)]
    return one == other or (all(path.exists() for path in paths) and paths[0].samefile(paths[1]))


def name_of(spec: str, dataset: str | None = None) -> str:
    """What a report calls the questions of `spec`: the set that they are of, else the file's name. The sample keeps its
    own: its halves are not SQuAD's splits."""
    return spec if spec.startswith(SAMPLE) else dataset or Path(_parted(spec).path).name


def _parted(spec: str) -> _Spec:
    format, _, path = spec.partition(":")
    if not path or format not in FORMATS or format == "tfds":  # a dataset is told by its whole name
        format, path = None, spec
    file, _, said = path.rpartition("#")
    if not file or os.path.exists(path):
        return _Spec(path, format)
    words = said.lower().split(",")
    kinds = [word for word in words if word in get_args(AnswerKind)]
    names = [_SET.fullmatch(word) for word in words if word not in kinds]
    if None in names or max(len(kinds), len(names)) > 1:
        wanted = "SET or SET:SPLIT, text or regex, one of each and a comma between"
        raise QuestionsError(f"{spec}: found no such file, and {said!r} behind its #, wanted {wanted}")
    dataset, split = names[0].groups() if names else (None, None)
    return _Spec(file, format, dataset, split, kinds[0] if kinds else None)


def _sample(name: str, half: str) -> QuestionSet:
    path = sample_path(name)
    whole = read_question_set(path, dataset="squad")
    whole = replace(whole, warnings=())  # a part of SQuAD by design: its size is no doubt
    if not half:
        return whole
    if half not in HALVES:
        raise QuestionsError(f"found the half {half!r} of the sample's questions, wanted one of {', '.join(HALVES)}")
    own = {record["id"] for _, record in _records(path) if record["split"] == half}
    chosen = tuple(question for question in whole.questions if question.id in own)
    return replace(whole, questions=chosen, split=half, fingerprint=fingerprint_of(chosen))


def _records(path: Path):
    return ((where, json.loads(line)) for where, line in Source(path).lines())
