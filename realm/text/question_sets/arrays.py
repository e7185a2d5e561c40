"""JSON arrays: WebQuestions in two forms, and arrays of question and answers (EntityQuestions; DPR's training files).

    webquestions      [{"utterance": "...", "targetValue": "(list (description \\"Jamaican English\\"))"}, ...]
                      [{"qId": "wqs000000", "qText": "...", "answers": ["..."]}, ...]
    entityquestions   [{"question": "...", "answers": ["..."]}, ...]    one file a relation: give the folder

Source of the first: Berant et al. 2013; of the second: the copy used by YodaQA; of the third: Sciavolino et al. 2021.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong

_ONE = r'\(description (?:"((?:[^"\\]|\\.)*)"|([^()"\s]+))\)'
_ANSWER = re.compile(_ONE)
_LIST = re.compile(rf"\(list(?: {_ONE})+\)")


def read_webquestions(source: Source) -> Iterator[Row]:
    for where, record in source.items():
        if "utterance" in record:
            yield Row(where, None, text_of(where, record, "utterance"), _described(source, where, record))
        else:
            answers = source.answers(where, record.get("answers"), "answers")
            yield Row(where, id_of(where, record, "qId"), text_of(where, record, "qText"), answers)


def _described(source: Source, where: str, record: dict) -> tuple[str, ...]:
    """The answers in "targetValue": a Lisp list of descriptions, quoted where they hold a blank or a bracket."""
    value = text_of(where, record, "targetValue")
    if not _LIST.fullmatch(value):
        wrong(where, f"the targetValue {value!r:.60}", '(list (description "...") ...) with one or more answers')
    answers = [
        re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for quoted, bare in (one.groups() for one in _ANSWER.finditer(value))
    ]
    return source.answers(where, answers, "targetValue")


def read_entityquestions(source: Source) -> Iterator[Row]:
    for where, record in source.items():
        answers = source.answers(where, record.get("answers"), "answers")
        yield Row(where, id_of(where, record, "id"), text_of(where, record, "question"), answers)
