"""JSON lines: the project's own format, and NQ-open's, which ORQA, DrQA and EfficientQA use for every set.

    realm     {"id": "q1", "question": "...", "answers": ["..."], "doc": "d7"}
    nq-open   {"question": "...", "answer": ["..."]}    no ids; "answers" is read too, and an "id" where there is one

In neither does a field tell that answers are regular expressions, as they are in CuratedTrec-*.jsonl: the set does.
"""

from __future__ import annotations

from collections.abc import Iterator

from realm.text.question_sets.source import Row, Source, id_of, text_of, wrong


def read_realm(source: Source) -> Iterator[Row]:
    for where, record in source.objects():
        answers = source.answers(where, record.get("answers"), "answers")
        document = record.get("doc")
        if document is not None:
            document = text_of(where, record, "doc")
        if record.get("id") is None:
            wrong(where, "no id", 'an "id" that is a string')
        yield Row(where, text_of(where, record, "id"), text_of(where, record, "question"), answers, document)


def read_nq_open(source: Source) -> Iterator[Row]:
    for where, record in source.objects():
        field = "answers" if "answer" not in record and "answers" in record else "answer"
        answers = source.answers(where, record.get(field), field)
        yield Row(where, id_of(where, record, "id"), text_of(where, record, "question"), answers)
