"""JSON documents: SQuAD 1.1 (Rajpurkar et al. 2016) and TriviaQA (Joshi et al. 2017), as their makers give them out.

Places are paths in the document, since these files are one line long. SQuAD 2.0's questions without an answer, and
TriviaQA's test sets without answers, are errors: nothing can be scored against them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong


def read_squad(source: Source) -> Iterator[Row]:
    for article_at, article in _each(source, f"{source.path}:", source.document(), "data"):
        for paragraph_at, paragraph in _each(source, article_at + ".", article, "paragraphs"):
            for where, asked in _each(source, paragraph_at + ".", paragraph, "qas"):
                if asked.get("is_impossible"):
                    wrong(where, "a question without an answer (SQuAD 2.0)", "SQuAD 1.1, or the others of 2.0 alone")
                answers = [text_of(at, one, "text") for at, one in _each(source, where + ".", asked, "answers")]
                question, answers = text_of(where, asked, "question"), source.answers(where, answers, "answers")
                yield Row(where, id_of(where, asked, "id"), question, answers)


def read_triviaqa(source: Source) -> Iterator[Row]:
    for where, asked in _each(source, f"{source.path}:", source.document(), "Data"):
        answer = asked.get("Answer")
        if not isinstance(answer, dict):
            wrong(where, f"the Answer {answer!r:.60}", '"Answer": an object with Value and Aliases')
        answers: list[Any] = [text_of(where, answer, "Value")]
        for field in ("Aliases", "HumanAnswers"):
            if answer.get(field):
                answers += source.answers(where, answer[field], field)
        number = id_of(where, asked, "QuestionId")
        yield Row(where, number, text_of(where, asked, "Question"), source.answers(where, answers, "Answer"))


def _each(source: Source, where: str, record: dict[str, Any], field: str) -> Iterator[tuple[str, dict[str, Any]]]:
    value = record.get(field)
    if not isinstance(value, list):
        wrong(where.rstrip(".:"), f"the {field} {value!r:.60}", f'"{field}": a list')
    for number, one in enumerate(value):
        place = f"{where}{field}[{number}]"
        yield place, source.record(place, one)
