"""Reads a question set in any known format and says what it is: format, data set, split, fingerprint, doubts.

The format is recognised by content. The data set is what the caller names; without a name, what the format or, in
formats that hold any set, the ids, the file's name and the number of questions show (`signs`). Doubts are returned as
`warnings`, never printed: a report prints them with its numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from realm.text.corpus import CorpusError
from realm.text.formats.source import PACKED_SUFFIXES, is_folder, name_of, shards
from realm.text.question_sets.arrays import read_entityquestions, read_webquestions
from realm.text.question_sets.datasets import SPLITS, Dataset, is_dataset, read_dataset
from realm.text.question_sets.documents import read_squad, read_triviaqa
from realm.text.question_sets.lines import read_nq_open, read_realm
from realm.text.question_sets.signs import by_ids, by_name, told_set
from realm.text.question_sets.sizes import size_warnings, splits_of
from realm.text.question_sets.source import Row, Source, wrong
from realm.text.question_sets.tables import read_dpr, read_popqa, read_trec
from realm.text.questions import AnswerKind, Question, QuestionsError

FORMATS: dict[str, Callable[[Source], Iterator[Row]]] = {
    "realm": read_realm,
    "nq-open": read_nq_open,
    "webquestions": read_webquestions,
    "trec": read_trec,
    "entityquestions": read_entityquestions,
    "popqa": read_popqa,
    "triviaqa": read_triviaqa,
    "squad": read_squad,
    "dpr": read_dpr,
    "tfds": read_dataset,
}
# Formats that one data set alone comes in.
_SHOWS = {
    "webquestions": "webquestions",
    "trec": "curatedtrec",
    "popqa": "popqa",
    "triviaqa": "triviaqa",
    "squad": "squad",
}


@dataclass(frozen=True)
class QuestionSet:
    """Questions and what is known of them. `dataset` and `split` are None where nothing tells; `fingerprint` is a
    sha256 over questions, answers and kinds in order, so that it does not depend on format, ids or compression."""

    questions: tuple[Question, ...]
    format: str
    dataset: str | None
    split: str | None
    fingerprint: str
    warnings: tuple[str, ...]

    def header(self) -> str:
        """One line for a report: name, number of questions, fingerprint."""
        name = " ".join(filter(None, (self.dataset or "questions of no known set", self.split)))
        return f"{name} · {len(self.questions):,} questions · fingerprint {self.fingerprint[:12]}"


def read_question_set(
    path: str | Path,
    *,
    format: str | None = None,
    dataset: str | None = None,
    split: str | None = None,
    kind: AnswerKind | None = None,
) -> QuestionSet:
    """The question set in a file (local or by URL, plain or packed), in the .json files of a folder in order of their
    names, or in a prepared dataset: its folder, `tfds:FOLDER` or `tfds:NAME`, with `:SPLIT` behind it or `split` where
    it has several.

    format: one of FORMATS, recognised by content where not given. dataset, split: what the file is taken for, checked
    against the published sizes; where not given, what `told_set` tells. kind: "regex" for curated TREC, "text" for
    everything else, unless given. A question without an id gets "row-17" by its place in the file, in a folder
    "P17.test-row-17".
    Raises QuestionsError, "file:line: found ..., wanted ...", at the first bad record, repeated id or unreadable file.
    """
    formats: list[str] = []
    questions: list[Question] = []
    place_of: dict[str, str] = {}
    blank = 0
    dataset_folder = format == "tfds" or is_dataset(path)
    files = [path] if dataset_folder else _files(path)
    for file in files:
        source = Dataset(str(file), split) if dataset_folder else Source(file)
        formats.append(_known(format) if format else recognise(source))
        prefix = f"{_stem(file)}-" if files != [path] else ""
        for number, row in enumerate(FORMATS[formats[-1]](source), start=1):
            name = f"{prefix}row-{number}" if row.id is None else row.id
            if name in place_of:
                wrong(row.where, f"the id {name!r}, which {place_of[name]} has already", "a new id for every question")
            place_of[name] = row.where
            questions.append(Question(name, row.question, row.answers, row.document))
        blank += source.blank_answers
    if not questions:
        wrong(str(path), "no questions", "one or more")
    if len(set(formats)) > 1:
        wrong(str(path), f"files in the formats {', '.join(sorted(set(formats)))}", "one format in a folder")
    shown = _SHOWS.get(formats[0]) or source.dataset
    if source.dataset:
        split = SPLITS.get(source.split, source.split)
    ids = [question.id for question in questions]
    if dataset:
        doubts = _contradicted(dataset, formats[0], shown, by_ids(ids))
    else:
        dataset, doubts = told_set(path, ids, shown, own=formats[0] == "realm")
    if dataset:
        doubts += size_warnings(len(ids), dataset, split)
        split = split or "/".join(splits_of(dataset, len(ids))) or None
    elif not doubts and formats[0] == "nq-open":
        doubts.append(f"{len(ids):,} questions is the size of no published set")
    if blank:
        doubts.append(f"{blank} blank answers beside others were left out")
    if source.unanswered:
        doubts.append(f"{source.unanswered} questions without a short answer were left out")
    if kind is None:
        kind = "regex" if "curatedtrec" in (dataset, shown) else "text"
        if kind == "text" and "curatedtrec" in by_name(path):
            found = "the name says CuratedTrec, whose answers are regular expressions; they were read as text"
            doubts.append(f"{found}: PATH#regex reads them as what they are")
    questions = [question._replace(kind=kind) for question in questions]
    if kind == "regex":
        doubts += _broken_patterns(questions)
    return QuestionSet(tuple(questions), formats[0], dataset, split, fingerprint_of(questions), tuple(doubts))


def recognise(source: Source) -> str:
    """The format of a question file, by its content. Raises QuestionsError, naming the formats, where none fits."""
    if isinstance(source, Dataset):
        return "tfds"
    text = source.text.lstrip()
    line = text.partition("\n")[0].removesuffix("\r")
    if text.startswith("["):
        _, first = next(source.items(), ("", {}))
        if "qText" in first or "utterance" in first:
            return "webquestions"
        if "question" in first:
            return "entityquestions"
    elif text.startswith("{"):
        try:
            first = source.record("", json.loads(line))
        except (ValueError, RecursionError):
            # Not an object on its first line: a document printed over several lines, or broken.
            first = source.document()
        if isinstance(first.get("data"), list):
            return "squad"
        if isinstance(first.get("Data"), list):
            return "triviaqa"
        if {"prop", "s_wiki_title", "question"} <= first.keys():
            return "popqa"
        if isinstance(first.get("id"), str) and "question" in first and "answers" in first:
            return "realm"
        if "question" in first:
            return "nq-open"
    elif "possible_answers" in line.split("\t"):
        return "popqa"
    elif line.count("\t") == 3:
        return "trec"
    elif line.count("\t") == 1:
        return "dpr"
    wrong(f"{source.path}:1", f"{line[:60]!r}, which begins no known format", f"one of {', '.join(FORMATS)}: give it")


def training_warnings(trained_on: str | None, asked: QuestionSet) -> list[str]:
    """What a report should say when a model tuned on the data set `trained_on` is asked the questions of `asked`, which
    are not those it was tuned on. None: nothing tells the set; then nothing tells either that it is the same."""
    if trained_on and asked.dataset:
        if trained_on == asked.dataset:
            return []
        return [
            f"the model was tuned on {trained_on} and is asked {asked.dataset}: a score on another set than its own"
        ]
    tuned, other = (one or "questions of no known set" for one in (trained_on, asked.dataset))
    found = f"the model was tuned on {tuned} and is asked {other}"
    return [f"{found}: perhaps a score on another set than its own, PATH#SET names a set"]


def _files(path: str | Path) -> list[str | Path]:
    try:
        if not is_folder(path):
            return [path]
        files = shards(path, (".json",))
    except CorpusError as problem:
        raise QuestionsError(str(problem)) from problem
    if not files:
        wrong(str(path), "a folder without .json files", "a file, or a folder of such files")
    return files


def _known(format: str) -> str:
    if format not in FORMATS:
        raise QuestionsError(f"found the format {format!r}, wanted one of {', '.join(FORMATS)}")
    return format


def _stem(path: str | Path) -> str:
    name = name_of(path)
    for suffix in (*PACKED_SUFFIXES, ".json"):
        name = name.removesuffix(suffix)
    return name


def _contradicted(dataset: str, format: str, shown: str | None, by_ids: str | None) -> list[str]:
    """The doubt that a file taken for `dataset` is another set: its format's, or that whose ids it has."""
    other = shown or by_ids
    if other is None or other == dataset:
        return []
    by_format = "what was prepared is" if format == "tfds" else "the file is in the format of"
    return [f"asked for {dataset}, but {by_format if shown else 'the ids are those of'} {other}"]


def _broken_patterns(questions: list[Question]) -> list[str]:
    broken = []
    for question in questions:
        for answer in question.answers:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    re.compile(answer)
            except (re.error, OverflowError, RecursionError):
                broken.append(question.id)
    if not broken:
        return []
    return [f"{len(broken)} regular expressions do not compile and will match nothing (first: question {broken[0]!r})"]


def fingerprint_of(questions: Sequence[Question]) -> str:
    """sha256 over questions, answers and kinds, in order."""
    hashed = hashlib.sha256()
    for question in questions:
        said = [question.question, list(question.answers), question.kind]
        hashed.update(json.dumps(said, ensure_ascii=True).encode() + b"\n")
    return hashed.hexdigest()
