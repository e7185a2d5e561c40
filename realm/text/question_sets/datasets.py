"""Question sets that TensorFlow Datasets has prepared: `tfds:FOLDER` or `tfds:NAME`, with `:SPLIT` behind it.

Read without TensorFlow through the door of `realm.text.formats.tfds`: array_record folders only. The features that are
known: a `question`, and answers in one of these places
  answers    a list of texts (our own builder, web_questions, natural_questions_open's `answer`)
  answers    {"text": [...]} (squad)
  answer     {"value": ..., "aliases": [...]} (trivia_qa), or one text
Ids are `id`, `question_id` or the row; `document` names a gold document where it is not blank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from realm.text.corpus import CorpusError
from realm.text.formats.tfds import INFO, examples, exists
from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong
from realm.text.questions import QuestionsError

PREFIX = "tfds:"
DATA_DIR = "TFDS_DATA_DIR"  # where tfds itself looks, and by default in the home folder


class Dataset(Source):
    """A prepared dataset in the place of a file. `spec`: what follows `tfds:`, or the folder."""

    def __init__(self, spec: str, split: str | None = None):
        folder, named = _folder(spec)
        self.path, self.text, self.blank_answers = folder, "", 0
        self.split = named or split

    def rows(self) -> Iterator[Row]:
        """The questions in order. Raises QuestionsError, also for a dataset that is not prepared."""
        try:
            for where, example in examples(self.path, self.split):
                yield _row(self, where, {name: _plain(where, value) for name, value in example.items()})
        except CorpusError as problem:
            raise QuestionsError(str(problem)) from problem


def is_dataset(path: str | Path) -> bool:
    """Whether a path is meant as a prepared dataset: by its prefix, or by what lies in the folder."""
    path = str(path)
    return path.startswith(PREFIX) or os.path.isfile(os.path.join(path, INFO))


def read_dataset(source: Source) -> Iterator[Row]:
    if not isinstance(source, Dataset):
        wrong(str(source.path), "a file", "the folder of a prepared dataset, or tfds:NAME")
    yield from source.rows()


def _folder(spec: str) -> tuple[str, str | None]:
    """(folder, split or None). A name is looked for where TensorFlow Datasets keeps what it has prepared."""
    path, colon, split = spec.removeprefix(PREFIX).rpartition(":")
    if not colon or "/" in split or "\\" in split:
        path, split = spec.removeprefix(PREFIX), ""
    if not exists(f"{path.rstrip('/')}/{INFO}"):
        home = Path(os.environ.get(DATA_DIR) or Path.home() / "tensorflow_datasets") / path
        versions = sorted(one.parent for pattern in (INFO, f"*/{INFO}") for one in home.glob(pattern))
        if len(versions) > 1:
            wrong(path, f"the versions {', '.join(one.name for one in versions)} in {home}", "one: name it too")
        path = str(versions[0]) if versions else path
    return path, split or None


def _row(source: Dataset, where: str, record: dict[str, Any]) -> Row:
    answers = _answers(record)
    if answers is None:
        wrong(where, f"the features {sorted(record)}", "`answers` or `answer`: texts, or an object that holds them")
    number = id_of(where, record, "id") or id_of(where, record, "question_id")
    return Row(
        where,
        number,
        text_of(where, record, "question"),
        source.answers(where, answers, "answers"),
        record.get("document") or None,
    )


def _answers(record: dict[str, Any]) -> list[Any] | None:
    for name in ("answers", "answer"):
        match record.get(name):
            case None:
                continue
            case str() as one:
                return [one]
            case list() as several:
                return several
            case {"text": list() as several}:
                return several
            case {"value": value, **rest}:
                aliases = rest.get("aliases")
                return [value, *(aliases if isinstance(aliases, list) else [])]
            case _:
                return None
    return None


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
