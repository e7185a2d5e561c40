"""One JSON line a question: what was asked, predicted and scored, so that a number can be looked into and compared.

The first line is the header, {"header": {...}}: "questions", "mode", "dataset", "split" and "fingerprint" (of the
question set) always, and whatever else the run adds (corpus, k, index, generation). Every other line holds "id",
"question", "answers", "kind", "prediction" (null where missing), "em" (0 or 1), "f1" (null in a regex mode) and what
`extra` adds. A file is written beside its place and renamed, and its header counts its lines, so a half is not read.

A dump of a retriever has the mode "recall", "retrieved" in its header (a larger k has no number), and in place of the
last three fields "gold" (whether the corpus has a gold block of the question), "gold_rank" and "answer_rank": the place
of the first gold block and of the first block that holds an answer, from 1, null where none was retrieved.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from realm.evaluation.bootstrap import Comparison, compare
from realm.evaluation.recall import Ranks
from realm.evaluation.scores import MODES, Asked, Scores
from realm.text.corpus import json_lines

HEADER = ("questions", "mode", "dataset", "split", "fingerprint")
ASKED = ("id", "question", "answers", "kind")
FIELDS = (*ASKED, "prediction", "em", "f1")
RECALL = "recall"  # the mode of a dump of ranks
RANKS = (*ASKED, "gold", "gold_rank", "answer_rank")
COMPARED = re.compile(r"em|f1|(gold|answer)@([1-9]\d{0,8})")  # the numbers of a question that two runs share


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
        """The numbers in field `name`, float64 [Q]; of a retriever's dump "gold@K" or "answer@K", 1 where the first
        match is among the first K, and nan for questions that have no gold block. Raises DumpError where one is not a
        number, and for K above what was retrieved."""
        if self.header["mode"] == RECALL:
            return self._within(name)
        found = [record.get(name) for record in self.records]
        for record, value in zip(self.records, found, strict=True):
            if not isinstance(value, int | float):
                raise DumpError(
                    f"found the {name} {value!r:.40} of {record['id']!r}, wanted a number for every question"
                )
        return np.array(found, np.float64)

    def _within(self, name: str) -> np.ndarray:
        known = COMPARED.fullmatch(name)
        if known is None or known[1] is None:
            raise DumpError(f"found {name} asked of a dump of {RECALL}, wanted gold@K or answer@K")
        k, retrieved = int(known[2]), self.header["retrieved"]
        if k > retrieved:
            raise DumpError(f"found {name}, wanted a k of at most the {retrieved} blocks that were retrieved")
        rank_Q = [record[f"{known[1]}_rank"] for record in self.records]
        for record, rank in zip(self.records, rank_Q, strict=True):
            if rank is not None and not (isinstance(rank, int) and 1 <= rank):
                found = f"found the {known[1]}_rank {rank!r:.40} of {record['id']!r}"
                raise DumpError(f"{found}, wanted 1 or more, or null")
        within_Q = np.array([rank is not None and rank <= k for rank in rank_Q], np.float64)
        if known[1] == "gold":
            within_Q[[not record["gold"] for record in self.records]] = np.nan
        return within_Q


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
    scored = [
        {
            "prediction": predictions.get(question.id),
            "em": int(scores.em_Q[number]),
            "f1": None if scores.f1_Q is None else float(scores.f1_Q[number]),
        }
        for number, question in enumerate(questions)
    ]
    _write(path, questions, first, header, scored, extra)


def write_recall(
    path: str | Path,
    questions: Sequence[Asked],
    gold: Ranks,
    answer: Ranks,
    *,
    dataset: str | None,
    split: str | None,
    fingerprint: str,
    header: Mapping[str, Any] | None = None,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Writes the dump of what one retriever found for a set; arguments and errors as of `write_dump`."""
    if not len(gold.rank_Q) == len(answer.rank_Q) == len(questions):
        found = f"{len(gold.rank_Q)} and {len(answer.rank_Q)} ranks for {len(questions)} questions"
        raise DumpError(f"found {found}, wanted one for each")
    first = {
        "questions": len(questions),
        "mode": RECALL,
        "dataset": dataset,
        "split": split,
        "fingerprint": fingerprint,
        "retrieved": gold.retrieved,
    }
    ranked = [
        {
            "gold": bool(gold.counted_Q[number]),
            "gold_rank": int(gold.rank_Q[number]) or None,
            "answer_rank": int(answer.rank_Q[number]) or None,
        }
        for number in range(len(questions))
    ]
    _write(path, questions, first, header, ranked, extra)


def _write(
    path: str | Path,
    questions: Sequence[Asked],
    first: dict[str, Any],
    header: Mapping[str, Any] | None,
    measured: Sequence[dict[str, Any]],
    extra: Mapping[str, Mapping[str, Any]] | None,
) -> None:
    lines = [_line({"header": _joined(first, header or {})})]
    for question, numbers in zip(questions, measured, strict=True):
        record = {
            "id": question.id,
            "question": question.question,
            "answers": list(question.answers),
            "kind": question.kind,
            **numbers,
        }
        lines.append(_line(_joined(record, (extra or {}).get(question.id, {}))))
    beside = Path(path).with_name(f".{Path(path).name}.{os.getpid()}")
    beside.write_text("".join(lines), "utf-8")
    beside.replace(path)


def read_dump(path: str | Path) -> Dump:
    """A dump written by `write_dump` or `write_recall`. Raises DumpError, "file:line: found ..., wanted ...", on
    anything else."""
    header: dict[str, Any] | None = None
    records: list[dict[str, Any]] = []
    seen: set[str] = set()
    for line, record in json_lines(path, _Reject()):
        where = f"{path}:{line}"
        if header is None:
            header = record.get("header")
            if not isinstance(header, dict) or any(name not in header for name in HEADER):
                raise DumpError(f'{where}: found no header, wanted {{"header": ...}} with {", ".join(HEADER)}')
            if header["mode"] not in (*MODES, RECALL):
                raise DumpError(f"{where}: found mode {header['mode']!r}, wanted one of {', '.join((*MODES, RECALL))}")
            if header["mode"] == RECALL and not isinstance(header.get("retrieved"), int):
                found = header.get("retrieved")
                raise DumpError(f"{where}: found {found!r:.40} as retrieved, wanted how many blocks were")
            continue
        wanted = RANKS if header["mode"] == RECALL else FIELDS
        missing = [name for name in wanted if name not in record]
        if missing:
            raise DumpError(f"{where}: found no {', '.join(missing)}, wanted {', '.join(wanted)}")
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
    question's group (see `bootstrap`). Recall is compared over one corpus, by the questions that have a gold block.

    Raises DumpError when the runs differ in mode or question set, retrievers in corpus, or where nothing is left.
    """
    recall = RECALL in (first.header["mode"], second.header["mode"])
    for key in ("mode", "fingerprint", "questions", *(["corpus"] if recall else [])):
        one, other = first.header.get(key), second.header.get(key)
        if one != other:
            raise DumpError(
                f"found {key} {one!r} and {other!r}, wanted two runs scored alike over the same questions"
                + (" and blocks" if recall else "")
            )
    place = {record["id"]: number for number, record in enumerate(second.records)}
    if place.keys() != {record["id"] for record in first.records}:
        raise DumpError("found questions of other ids in the second run, wanted the same questions in both")
    order = [place[record["id"]] for record in first.records]
    first_Q, second_Q = first.values(name), second.values(name)[order]
    # Without a gold block in one corpus, without it in the other: this is the same corpus.
    counted_Q = ~(np.isnan(first_Q) | np.isnan(second_Q)) if recall else np.ones(len(first_Q), bool)
    if not counted_Q.any():
        raise DumpError(f"found no question that {name} can be told of, wanted questions whose document is known")
    group_Q = None
    if group is not None:
        group_Q = [record.get(group) for record in first.records]
        if None in group_Q:
            raise DumpError(f"found a question without {group!r}, wanted its group on every line")
        group_Q = [one for one, counted in zip(group_Q, counted_Q, strict=True) if counted]
    return compare(first_Q[counted_Q], second_Q[counted_Q], group_Q=group_Q, resamples=resamples, seed=seed)


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
