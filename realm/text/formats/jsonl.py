"""JSON lines under any field names, packed or not, local or by URL; a BEIR corpus is JSON lines whose id is "_id"."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document, Rejection
from realm.text.formats.admission import Admission
from realm.text.formats.source import Stream, head_of, name_of, numbered_lines, plain_name
from realm.text.spans import RawSpan

FIELDS = {"id": "id", "title": "title", "text": "text", "heldout": "heldout"}
BEIR_FIELDS = FIELDS | {"id": "_id"}
ROW_NUMBER = "#"
QUERIES = re.compile(r"(^|[._-])queries[._-]")


def read_jsonl(
    path: str | Path, admit: Admission, fields: Mapping[str, str] = FIELDS
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The documents of a JSON lines file. `fields` says where id, title and text are; dots lead into inner objects.

    The id "#" makes one of the file's name and the line's number. No spans: each list is empty.
    """
    name = name_of(path)
    for line, record in json_objects(path, admit.reject):
        where = f"{path}:{line}"
        number = f"{name}:{line}" if fields["id"] == ROW_NUMBER else field_of(record, fields["id"])
        text = field_of(record, fields["text"])
        if text is None and not has_field(record, fields["text"]):
            found = f'no "{fields["text"]}" (fields: {sorted(record)})'
            admit.reject(where, "missing text", found, "a text, or its name as the field text (--fields text NAME)")
            continue
        heldout = field_of(record, fields["heldout"]) if has_field(record, fields["heldout"]) else False
        document = admit(where, number, field_of(record, fields["title"]), text, heldout)
        if document is not None:
            yield document, []


def json_objects(path: str | Path, reject: Rejection) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line that holds one; the others are rejected by reason."""
    wanted = "one JSON object a line"
    with Stream(path) as stream:
        for line, raw in numbered_lines(stream, MAX_LINE_BYTES):
            where = f"{path}:{line}"
            text = text_of(where, raw, reject, wanted)
            if text is None:
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                reject(where, "broken JSON", f"broken JSON ({error}): {text[:40]}", wanted)
                continue
            if not isinstance(record, dict):
                reject(where, "not an object", f"a JSON {type(record).__name__}", wanted)
                continue
            yield line, record


def refuse_queries(path: str | Path) -> None:
    """Raises CorpusError for BEIR's queries: a file of that name, of texts that have no title as passages have."""
    if not QUERIES.search(plain_name(path)):
        return
    names = names_in(head_of(path).partition(b"\n")[0])
    if "_id" in names and "title" not in names:
        found = f"BEIR's queries (fields: {', '.join(sorted(names))})"
        raise CorpusError(f"{path}:1: found {found}, wanted a corpus: the corpus.jsonl beside it, or the folder")


def names_in(line: bytes) -> set[str]:
    """The names of a line's object, as far as formats are told by them; none for anything else."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # too long to have been read whole, or broken
        return {name for name in ("_id", "id", "title", "wikipedia_title") if f'"{name}"'.encode() in line}
    return set(record) if isinstance(record, dict) else set()


def text_of(where: str, raw: bytes, reject: Rejection, wanted: str) -> str | None:
    """A line as text; None when it was rejected: too long, empty, or not UTF-8."""
    if len(raw) > MAX_LINE_BYTES:
        return reject(
            where, "line too long", f"more than {MAX_LINE_BYTES} bytes on a line", "shorter documents: split it"
        )
    if not raw.strip():
        return reject(where, "empty line", "an empty line", wanted)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{raw[error.start]:02x} at {error.start + 1}, which is not UTF-8"
        return reject(where, "not UTF-8", found, "UTF-8 text")


def field_of(record: Any, name: str) -> Any:
    """The value under a name, or under a path of names with dots between; None where there is none."""
    if isinstance(record, dict) and name in record:
        return record[name]
    for part in name.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(part)
    return record


def has_field(record: dict, name: str) -> bool:
    """Whether the name, or the last name of a path of names, is there, be it null."""
    outer, _, last = name.rpartition(".")
    inner = field_of(record, outer) if outer else record
    return name in record or (isinstance(inner, dict) and last in inner)
