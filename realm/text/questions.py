"""Question sets: JSON lines, plain or gzipped, one object with "id", "question", "answers" and, if known, "doc".

"answers" are alternatives, any of which is right; "doc" names the document that holds the answer, for recall. A
question set is small and every number it yields is published, so a bad line is always an error, never a skip.
This is the project's own format; `realm.text.question_sets` reads the formats that public sets come in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from realm.text.corpus import json_lines

AnswerKind = Literal["text", "regex"]


class QuestionsError(ValueError):
    """A question file that cannot be used."""


class Question(NamedTuple):
    """kind: whether the answers are strings ("text") or regular expressions ("regex")."""

    id: str
    question: str
    answers: tuple[str, ...]
    document: str | None
    kind: AnswerKind = "text"


class _Reject:
    """Makes every bad line an error."""

    error = QuestionsError

    def __call__(self, where: str, reason: str, found: str, wanted: str) -> NoReturn:
        raise QuestionsError(f"{where}: found {found}, wanted {wanted}")


def read_questions(path: str | Path) -> list[Question]:
    """All questions of a .jsonl or .jsonl.gz file, in file order; other fields are passed over.

    Raises QuestionsError, "file:line: found ..., wanted ...", for a line without a question or without answers, for
    an id met before, and for a file that is unreadable or empty.
    """
    questions: list[Question] = []
    line_of: dict[str, int] = {}
    reject = _Reject()
    for line, record in json_lines(path, reject):
        where = f"{path}:{line}"
        question = _question(where, record, reject)
        if question.id in line_of:
            found = f"the id {question.id!r}, which line {line_of[question.id]} has already"
            reject(where, "duplicate id", found, "a new id on every line")
        line_of[question.id] = line
        questions.append(question)
    if not questions:
        raise QuestionsError(f"{path}: found no questions, wanted one JSON object a line")
    return questions


def _question(where: str, record: dict[str, Any], reject: _Reject) -> Question:
    number, question, answers, document = (record.get(name) for name in ("id", "question", "answers", "doc"))
    if not _is_text(number):
        reject(where, "bad id", f"the id {number!r:.60}", 'an "id" that is a string')
    if not _is_text(question):
        reject(where, "bad question", f"the question {question!r:.60}", 'a "question" that is a string')
    if not isinstance(answers, list) or not answers or not all(map(_is_text, answers)):
        reject(where, "bad answers", f"the answers {answers!r:.60}", '"answers": a list of one or more strings')
    if document is not None and not _is_text(document):
        reject(where, "bad doc", f"the doc {document!r:.60}", 'a "doc" that is the id of a document, or none')
    return Question(number, question, tuple(answers), document)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
