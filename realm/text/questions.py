"""What a question is. `realm.text.question_sets` reads files of them, in this project's own format and in others."""

from __future__ import annotations

from typing import Literal, NamedTuple

AnswerKind = Literal["text", "regex"]


class QuestionsError(ValueError):
    """A question file that cannot be used."""


class Question(NamedTuple):
    """answers: alternatives, any of which is right. document: the id of one that holds the answer, for recall, where it
    is known. kind: whether the answers are strings ("text") or regular expressions ("regex")."""

    id: str
    question: str
    answers: tuple[str, ...]
    document: str | None
    kind: AnswerKind = "text"
