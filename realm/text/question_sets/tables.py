"""Tab-separated tables: curated TREC, DPR's .csv files and PopQA; PopQA in JSON lines too.

trec    1669 <tab> factoid <tab> How tall is Mount McKinley? <tab> 20,?320 feet|6,?194 m    one regular expression
dpr     who got the first nobel prize <tab> ['Wilhelm Conrad Röntgen']    a Python list; quoted as CSV
popqa   a header with "id", "question" and "possible_answers", the last a JSON list (Mallen et al. 2023)
"""

from __future__ import annotations

import ast
import csv
import io
import json
import warnings
from collections.abc import Iterator
from typing import Any

from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong
from realm.text.questions import QuestionsError


def read_trec(source: Source) -> Iterator[Row]:
    for where, line in source.lines():
        column = line.split("\t")
        if len(column) != 4:
            wrong(where, f"{len(column)} columns", "four: id, type, question and a regular expression, between tabs")
        record = dict(zip(("id", "type", "question", "answer"), column, strict=True))
        number, question = (text_of(where, record, field) for field in ("id", "question"))
        yield Row(where, number, question, source.answers(where, [record["answer"]], "answer"))


def read_dpr(source: Source) -> Iterator[Row]:
    for where, column in _table(source):
        if len(column) != 2:
            wrong(where, f"{len(column)} columns", "two: a question and a Python list of answers, between tabs")
        question = text_of(where, {"question": column[0]}, "question")
        yield Row(where, None, question, source.answers(where, _literal(where, column[1]), "answers"))


def read_popqa(source: Source) -> Iterator[Row]:
    if source.text.lstrip().startswith("{"):
        for where, record in source.objects():
            answers = source.answers(where, record.get("answers"), "answers")
            yield Row(where, id_of(where, record, "id"), text_of(where, record, "question"), answers)
        return
    rows = _table(source)
    where, header = next(rows, (str(source.path), []))
    needed = {"id", "question", "possible_answers"}
    if not needed <= set(header):
        wrong(where, f"the columns {header!r:.80}", f"a header with {', '.join(sorted(needed))}")
    for where, column in rows:
        if len(column) != len(header):
            wrong(where, f"{len(column)} columns", f"the header's {len(header)}")
        record = dict(zip(header, column, strict=True))
        try:
            answers = json.loads(record["possible_answers"])
        except (ValueError, RecursionError):
            wrong(where, f"the possible_answers {record['possible_answers']!r:.60}", "a JSON list of strings")
        number, question = (text_of(where, record, field) for field in ("id", "question"))
        yield Row(where, number, question, source.answers(where, answers, "possible_answers"))


def _table(source: Source) -> Iterator[tuple[str, list[str]]]:
    """(place of its last line, columns) of every row. A field may hold line ends where it is quoted."""
    reader = csv.reader(io.StringIO(source.text, newline=""), delimiter="\t")
    try:
        for column in reader:
            where = f"{source.path}:{reader.line_num}"
            if not any(column):
                wrong(where, "an empty line", "one question a line")
            yield where, column
    except csv.Error as problem:
        raise QuestionsError(
            f"{source.path}:{reader.line_num}: found a broken row ({problem}), wanted columns between tabs"
        ) from problem


def _literal(where: str, text: str) -> Any:
    try:
        with warnings.catch_warnings():
            # Regular expressions in such a list hold backslashes that Python warns about and keeps.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        wrong(where, f"the answers {text!r:.60}", "a Python list of strings: ['...', '...']")
