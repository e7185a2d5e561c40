"""Question sets that TensorFlow Datasets has prepared: `tfds:FOLDER` or `tfds:NAME[/CONFIG]`, with `:SPLIT` behind it.

Read without TensorFlow through the door of `realm.text.formats.tfds`: array_record folders only. A question is a text,
or an object that holds one; its answers are in one of these places
  answers      a list of texts (our own builder, web_questions), or {"text": [...]} (squad)
  answer       {"value": ..., "aliases": [...]} (trivia_qa), a list (natural_questions_open), or one text
  all_answers  a list in which "NULL" is none (natural_questions/longt5)
  annotations  whose short answers have texts (natural_questions, all annotators' together)
Natural Questions asks much that no annotator answered in a few words: those questions are left out and counted. Ids are
`id`, `question_id` or the row; `document` names a gold document where it is a text and not blank.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from realm.text.corpus import CorpusError
from realm.text.formats.source import is_url
from realm.text.formats.tfds import INFO, dataset_name, examples, exists, prepared_folder
from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong
from realm.text.questions import QuestionsError

PREFIX = "tfds:"
# The set that a name of TensorFlow Datasets holds, and what it calls the splits.
NAMES = {
    "natural_questions_open": "nq-open",
    "web_questions": "webquestions",
    "trivia_qa": "triviaqa",
    "squad": "squad",
}
SPLITS = {"validation": "dev"}
# All that is looked at: examples of natural_questions hold a whole page besides, token by token.
FEATURES = (
    *("id", "question_id", "question", "answers", "answer", "all_answers", "annotations"),
    *("document", "is_impossible"),
)
NONE, UNKNOWN = "NULL", "<unk>"  # how longt5 writes "no answer", and trivia_qa the answers that it does not give out


class Dataset(Source):
    """A prepared dataset in the place of a file. `spec`: what follows `tfds:`, or the folder.

    dataset: the set that it is known to hold, None where nothing tells. Raises QuestionsError as `rows`.
    """

    def __init__(self, spec: str, split: str | None = None):
        try:
            folder, named = _folder(spec)
            self.path, self.text, self.blank_answers, self.unanswered = folder, "", 0, 0
            self.split = named or split
            self.dataset = NAMES.get(dataset_name(folder))
        except CorpusError as problem:
            raise QuestionsError(str(problem)) from problem

    def rows(self) -> Iterator[Row]:
        """The questions in order. Raises QuestionsError, also for a dataset that is not prepared."""
        try:
            for where, example in examples(self.path, self.split):
                record = {name: _plain(where, example[name]) for name in FEATURES if name in example}
                row = _row(self, where, record, example)
                if row is None:
                    self.unanswered += 1
                else:
                    yield row
        except CorpusError as problem:
            raise QuestionsError(str(problem)) from problem


def is_dataset(path: str | Path) -> bool:
    """Whether a path is meant as a prepared dataset: by its prefix, or by what lies in the folder."""
    path = str(path)
    if path.startswith(PREFIX) or not is_url(path):
        return path.startswith(PREFIX) or os.path.isfile(os.path.join(path, INFO))
    try:
        return exists(f"{path.rstrip('/')}/{INFO}")
    except CorpusError:  # of a file system that holds no datasets
        return False


def read_dataset(source: Source) -> Iterator[Row]:
    if not isinstance(source, Dataset):
        wrong(str(source.path), "a file", "the folder of a prepared dataset, or tfds:NAME")
    yield from source.rows()


def _folder(spec: str) -> tuple[str, str | None]:
    """(folder, split or None)."""
    whole = spec.removeprefix(PREFIX)
    path, colon, split = whole.rpartition(":")
    if not colon or "/" in split or "\\" in split:
        path, split = whole, ""
    return prepared_folder(path), split or None


def _row(source: Dataset, where: str, record: dict[str, Any], features: Iterable[str]) -> Row | None:
    """None for a question that the makers of a set left without an answer and that belongs to it all the same."""
    answers = _answers(where, record)
    if answers is None:
        wanted = "`answers`, `answer` or `annotations`: texts, or an object that holds them"
        wrong(where, f"the features {sorted(features)}", wanted)
    if not answers and ("annotations" in record or "all_answers" in record):
        return None
    if isinstance(record.get("question"), dict):
        record["question"] = record["question"].get("text")
    number = id_of(where, record, "id") or id_of(where, record, "question_id")
    document = record.get("document")
    return Row(
        where,
        number,
        text_of(where, record, "question"),
        source.answers(where, answers, "answers"),
        document if isinstance(document, str) and document else None,
    )


def _answers(where: str, record: dict[str, Any]) -> list[Any] | None:
    if record.get("is_impossible"):
        wrong(where, "a question without an answer (SQuAD 2.0)", "SQuAD 1.1: squad/v1.1")
    for name in ("all_answers", "answers", "answer", "annotations"):
        match record.get(name):
            case None:
                continue
            case str() as one:
                return [one]
            case list() as several if name == "all_answers":
                return [one for one in several if one != NONE]
            case list() as several:
                return several
            case {"text": list() as several}:
                return several
            case {"short_answers": several}:
                return list(_texts(several))
            case {"value": value, **rest}:
                if value == UNKNOWN:
                    wrong(where, f"a question without an answer (the value {UNKNOWN})", "a split that has answers")
                aliases = rest.get("aliases")
                return [value, *(aliases if isinstance(aliases, list) else [])]
            case _:
                return None
    return None


def _texts(found: Any) -> Iterator[str]:
    """The texts of short answers, one list of them for each annotator, that hold a character."""
    if isinstance(found, dict):
        yield from _texts(found.get("text"))
    elif isinstance(found, list):
        for one in found:
            yield from _texts(one)
    elif isinstance(found, str) and found.strip():
        yield found


def _plain(where: str, value: Any) -> Any:
    """What an example holds as Python's own values: bytes are UTF-8."""
    if isinstance(value, dict):
        return {name: _plain(where, one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return [_plain(where, one) for one in value]
    if isinstance(value, list | tuple):
        return [_plain(where, one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as problem:
            found = f"the byte 0x{value[problem.start]:02x}, which is not UTF-8"
            raise QuestionsError(f"{where}: found {found}, wanted UTF-8 text") from problem
    return value
