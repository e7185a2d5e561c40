"""One question file in memory, and what every format asks of it: lines, JSON items with their places, checked fields.

Local or by URL, plain or packed. Question sets are small, so a file is read whole; a limit on the unpacked size keeps a
mistaken or hostile file out.
All complaints are QuestionsError, "file:line: found ..., wanted ...".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from realm.text.corpus import BOM, CorpusError
from realm.text.formats.source import Stream
from realm.text.questions import QuestionsError

MAX_BYTES = 2 * 2**30
_SPACE = re.compile(r"[ \t\r\n]*")


class Row(NamedTuple):
    """One question as a format gives it: its place in the file, and an id where the format has one."""

    where: str
    id: str | None
    question: str
    answers: tuple[str, ...]
    document: str | None = None


def wrong(where: str, found: str, wanted: str) -> NoReturn:
    raise QuestionsError(f"{where}: found {found}, wanted {wanted}")


class Source:
    """The text of a question file, plain or packed (seen by its first bytes), without a byte order mark.

    blank_answers, unanswered: what was left out, answers and whole questions; dataset: the set it is known to hold.
    Raises QuestionsError for a file that is unreadable, cut off, corrupt, over `limit` bytes unpacked, or not UTF-8.
    """

    unanswered = 0
    dataset: str | None = None

    def __init__(self, path: str | Path, limit: int = MAX_BYTES):
        self.path = path
        self.blank_answers = 0
        raw = _bytes(path, limit).removeprefix(BOM)
        try:
            self.text = raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            line = raw.count(b"\n", 0, problem.start) + 1
            found = f"the byte 0x{raw[problem.start]:02x}, which is not UTF-8"
            raise QuestionsError(f"{path}:{line}: {_found(found, 'UTF-8 text')}") from problem

    def lines(self) -> Iterator[tuple[str, str]]:
        """(place, line) of every line, ends cut off. A blank line is an error: nothing is skipped."""
        for number, line in enumerate(self.text.removesuffix("\n").split("\n"), start=1):
            if not line.strip():
                wrong(f"{self.path}:{number}", "an empty line", "one question a line")
            yield f"{self.path}:{number}", line.removesuffix("\r")

    def objects(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(place, object) of every line of a JSON-lines file."""
        for where, line in self.lines():
            yield where, self.record(where, _json(where, line))

    def items(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(place, object) of every item of a JSON array; the place is the line the item begins on and its number."""
        decode, text = json.JSONDecoder().raw_decode, self.text
        at = _SPACE.match(text).end()
        if text[at : at + 1] != "[":
            wrong(f"{self.path}:1", f"{text[at : at + 20]!r}", "a JSON array of questions")
        line, counted, number = 1, 0, 0
        at = _SPACE.match(text, at + 1).end()
        while text[at : at + 1] != "]" or number:
            line, counted = line + text.count("\n", counted, at), at
            where = f"{self.path}:{line} (item {number + 1})"
            try:
                value, end = decode(text, at)
            except (ValueError, RecursionError) as problem:
                raise QuestionsError(f"{where}: {_found(f'broken JSON ({problem})', 'a JSON array')}") from problem
            yield where, self.record(where, value)
            number += 1
            at = _SPACE.match(text, end).end()
            if text[at : at + 1] == "]":
                break
            if text[at : at + 1] != ",":
                wrong(where, f"{text[at : at + 20]!r} after the item", "a comma or the end of the JSON array")
            at = _SPACE.match(text, at + 1).end()
        rest = text[at + 1 :].strip()
        if rest:
            wrong(str(self.path), f"{rest[:20]!r} after the JSON array", "nothing after it")

    def document(self) -> dict[str, Any]:
        """The whole file as one JSON object."""
        return self.record(str(self.path), _json(str(self.path), self.text))

    def answers(self, where: str, value: Any, field: str) -> tuple[str, ...]:
        """A list of one or more strings as a tuple without repetitions; an error for anything else.

        A blank string beside others (TriviaQA has some among its aliases) is left out and added to `blank_answers`:
        every prediction that normalises to nothing would match it.
        """
        if (
            not isinstance(value, list)
            or not all(isinstance(one, str) for one in value)
            or not any(map(_is_text, value))
        ):
            wrong(where, f"the {field} {value!r:.60}", f'"{field}": a list of one or more strings')
        filled = tuple(dict.fromkeys(one for one in value if one.strip()))
        if not all(map(_is_text, filled)):
            wrong(where, f"half a surrogate pair in the {field} {value!r:.60}", "whole characters")
        self.blank_answers += sum(not one.strip() for one in value)
        return filled

    @staticmethod
    def record(where: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            wrong(where, f"a JSON {type(value).__name__}", "a JSON object")
        return value


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        found = f"broken JSON ({problem}): {text[:40]!r}"
        raise QuestionsError(f"{where}: {_found(found, 'one JSON object')}") from problem


def _found(found: str, wanted: str) -> str:
    return f"found {found}, wanted {wanted}"


def _bytes(path: str | Path, limit: int) -> bytes:
    pieces, size = [], 0
    try:
        with Stream(path) as stream:
            while size <= limit and (piece := stream.read()):
                pieces.append(piece)
                size += len(piece)
    except CorpusError as problem:
        raise QuestionsError(str(problem)) from problem
    if size > limit:
        wrong(str(path), f"more than {limit} bytes unpacked", "a question set, not a corpus")
    return b"".join(pieces)


def text_of(where: str, record: dict[str, Any], field: str) -> str:
    """The string in `field`; an error where it is missing, of another type, blank, or half a surrogate pair."""
    value = record.get(field)
    if not _is_text(value):
        wrong(where, f"the {field} {value!r:.60}", f'a "{field}" that is a string with characters in it')
    return value


def id_of(where: str, record: dict[str, Any], field: str) -> str | None:
    """The id in `field` as a string (whole numbers are written out); None where the record has none."""
    value = record.get(field)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_of(where, record, field)


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
