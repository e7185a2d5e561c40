"""One JSON line a question: what was asked, predicted and scored, so that a number can be looked into and compared.

The first line is the header, {"header": {...}}: "questions", "mode", "dataset", "split" and "fingerprint" (of the
question set) always, and whatever else the run adds (corpus, k, index, generation). Every other line holds "id",
"question", "answers", "kind", "prediction" (null where missing), "em" (0 or 1), "f1" (null in a regex mode) and what
`extra` adds. A file is written beside its place and renamed, and its header counts its lines, so a half is not read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from realm.evaluation.bootstrap import Comparison, compare
from realm.evaluation.scores import MODES, Asked, Scores
from realm.text.corpus import json_lines

HEADER = ("questions", "mode", "dataset", "split", "fingerprint")
FIELDS = ("id", "question", "answers", "kind", "prediction", "em", "f1")


class DumpError(ValueError):
    """A dump that cannot be written, read or compared."""


class _Reject:
    """Makes every bad line an error."""

    error = DumpError

    def __call__(self, where: str, reason: str, found: str, wanted: str) -> NoReturn:
        raise DumpError(f"{where}: found {found}, wanted {wanted}")


@dataclass(frozen=True)
class Dump:
    """A header and one record a question, in file order."""

    header: dict[str, Any]
    records: list[dict[str, Any]]

    def values(self, name: str = "em") -> np.ndarray:
        """The numbers in field `name`, float64 [Q]. Raises DumpError where one is not a number."""
        found = [record.get(name) for record in self.records]
        for record, value in zip(self.records, found, strict=True):
            if not isinstance(value, int | float):
                raise DumpError(
                    f"found the {name} {value!r:.40} of {record['id']!r}, wanted a number for every question"
                )
        return np.array(found, np.float64)


def write_dump(
    path: str | Path,
    questions: Sequence[Asked],
    predictions: Mapping[str, str | None],
    scores: Scores,
    *,
    dataset: str | None,
    split: str | None,
    fingerprint: str,
    header: Mapping[str, Any] | None = None,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Writes the dump of one scored set. header: further keys of the first line; extra: further fields by question id.

    Raises DumpError when scores and questions differ in number, or when a name is taken or cannot be written as JSON.
    """
    if len(scores.em_Q) != len(questions):
        raise DumpError(f"found {len(scores.em_Q)} scores for {len(questions)} questions, wanted one for each")
    first = {
        "questions": len(questions),
        "mode": scores.mode,
        "dataset": dataset,
        "split": split,
        "fingerprint": fingerprint,
    }
    lines = [_line({"header": _joined(first, header or {})})]
    for number, question in enumerate(questions):
        record = {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "kind": question.kind,
            "prediction": predictions.get(question.id),
            "em": int(scores.em_Q[number]),
            "f1": None if scores.f1_Q is None else float(scores.f1_Q[number]),
        }
        lines.append(_line(_joined(record, (extra or {}).get(question.id, {}))))
    beside = Path(path).with_name(f".{Path(path).name}.{os.getpid()}")
    beside.write_text("".join(lines), "utf-8")
    beside.replace(path)


def read_dump(path: str | Path) -> Dump:
    """A dump written by `write_dump`. Raises DumpError, "file:line: found ..., wanted ...", on anything else."""
    header: dict[str, Any] | None = None
    records: list[dict[str, Any]] = []
    seen: set[str] = set()
    for line, record in json_lines(path, _Reject()):
        where = f"{path}:{line}"
        if header is None:
            header = record.get("header")
            if not isinstance(header, dict) or any(name not in header for name in HEADER):
                raise DumpError(f'{where}: found no header, wanted {{"header": ...}} with {", ".join(HEADER)}')
            if header["mode"] not in MODES:
                raise DumpError(f"{where}: found mode {header['mode']!r}, wanted one of {', '.join(MODES)}")
            continue
        missing = [name for name in FIELDS if name not in record]
        if missing:
            raise DumpError(f"{where}: found no {', '.join(missing)}, wanted {', '.join(FIELDS)}")
        if record["id"] in seen:
            raise DumpError(f"{where}: found the id {record['id']!r} again, wanted a new one on every line")
        seen.add(record["id"])
        records.append(record)
    if header is None:
        raise DumpError(f"{path}: found an empty file, wanted a header and one line a question")
    if len(records) != header["questions"]:
        raise DumpError(f"{path}: found {len(records)} questions, wanted the {header['questions']} of its header")
    return Dump(header, records)


def compare_dumps(
    first: Dump, second: Dump, name: str = "em", *, group: str | None = None, resamples: int = 10_000, seed: int = 0
) -> Comparison:
    """The second run against the first, question by question, matched by id. group: a field that names each
    question's group (see `bootstrap`). Raises DumpError when the runs differ in mode or question set."""
    for key in ("mode", "fingerprint", "questions"):
        if first.header[key] != second.header[key]:
            found = f"found {key} {first.header[key]!r} and {second.header[key]!r}"
            raise DumpError(f"{found}, wanted two runs scored alike over the same questions")
    place = {record["id"]: number for number, record in enumerate(second.records)}
    if place.keys() != {record["id"] for record in first.records}:
        raise DumpError("found questions of other ids in the second run, wanted the same questions in both")
    order = [place[record["id"]] for record in first.records]
    group_Q = None
    if group is not None:
        group_Q = [record.get(group) for record in first.records]
        if None in group_Q:
            raise DumpError(f"found a question without {group!r}, wanted its group on every line")
    second_Q = second.values(name)[order]
    return compare(first.values(name), second_Q, group_Q=group_Q, resamples=resamples, seed=seed)


def _joined(ours: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    taken = sorted(ours.keys() & more.keys())
    if taken:
        raise DumpError(f"found the names {', '.join(taken)}, wanted others: these are the dump's own")
    return {**ours, **more}


def _line(record: dict[str, Any]) -> str:
    try:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        line.encode()
    except (TypeError, ValueError) as problem:
        raise DumpError(
            f"found a value that JSON has not ({problem}), wanted finite numbers and whole text"
        ) from problem
    return line
