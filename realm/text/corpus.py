"""Reading documents: JSON lines, plain or gzipped, one object with "id", "text" and, if there is one, "title".

Every line is checked. Strict reading stops at the first bad one with file:line, what was found and what was wanted;
lenient reading drops it and counts it by reason, so that nothing vanishes unseen and row numbers always belong to
the texts they came with. Text is left exactly as given (HTML entities and line ends too), because the character
offsets of salient spans count in it.
"""

from __future__ import annotations

import gzip
import json
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MAX_LINE_BYTES = 8 * 2**20
GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


class CorpusError(ValueError):
    """A corpus, or a folder built from one, that cannot be used."""


class Document(NamedTuple):
    """heldout: never an example in training, whatever share the corpus holds out."""

    id: str
    title: str
    text: str
    heldout: bool = False


@dataclass(frozen=True)
class Rejection:
    """What happens to a bad line: an error of kind `error` in strict reading, a count by reason in lenient reading."""

    error: type[ValueError]
    lenient: bool
    counts: Counter

    def __call__(self, where: str, reason: str, found: str, wanted: str) -> None:
        if not self.lenient:
            raise self.error(f"{where}: found {found}, wanted {wanted}; lenient reading drops and counts such lines")
        self.counts[reason] += 1


def read_jsonl(
    path: str | Path, *, lenient: bool = False, counts: Counter | None = None, seen: dict[str, str] | None = None
) -> Iterator[Document]:
    """The documents of a .jsonl or .jsonl.gz file, in file order, one line in memory at a time.

    A missing or null title is "" and counted as "missing title"; "heldout": true keeps a document out of training.
    Raises CorpusError, "file:line: found ..., wanted ...", for a bad line when strict; for an unreadable, corrupt or
    cut-off file always. `counts` gets the dropped lines by reason: empty line, line too long, not UTF-8, broken JSON,
    not an object, missing id, missing text, null text, blank text, not a string, not a truth value, duplicate id.
    `seen` (id -> place, "file:line") is added to, and tells ids of files read before.
    """
    counts = Counter() if counts is None else counts
    reject = Rejection(CorpusError, lenient, counts)
    seen = {} if seen is None else seen
    for line, record in json_lines(path, reject):
        document = _document(f"{path}:{line}", record, reject)
        if document is None:
            continue
        if document.id in seen:
            found = f"the id {document.id!r}, which {seen[document.id]} has already"
            reject(f"{path}:{line}", "duplicate id", found, "a new id on every line")
            continue
        seen[document.id] = f"{path}:{line}"
        if not record.get("title"):
            counts["missing title"] += 1
        yield document


def _document(where: str, record: dict[str, Any], reject: Rejection) -> Document | None:
    """The document of one JSON object; None when it was rejected."""
    number, text, title = record.get("id"), record.get("text"), record.get("title")
    if number is None or number == "":
        return reject(where, "missing id", "no id", 'an "id" that is a string with characters in it')
    if "text" not in record:
        return reject(where, "missing text", f"no text (fields: {sorted(record)})", 'a "text"')
    if text is None:
        return reject(where, "null text", "a null text", 'a "text" that is a string')
    for field, value in (("id", number), ("text", text), ("title", "" if title is None else title)):
        if not isinstance(value, str):
            found = f'a "{field}" that is a {type(value).__name__}: {str(value)[:40]}'
            return reject(where, "not a string", found, f'a "{field}" that is a string')
        if not _is_unicode(value):
            return reject(where, "not UTF-8", f'half a surrogate pair in "{field}"', "whole characters")
    if not any(unicodedata.category(character)[0] not in "CMZ" for character in text):
        return reject(where, "blank text", f"a text of {len(text)} characters, none visible", "a text with words")
    heldout = record.get("heldout", False)
    if not isinstance(heldout, bool):
        return reject(where, "not a truth value", f'a "heldout" {heldout!r:.40}', '"heldout": true or false')
    return Document(number, title or "", text, heldout)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_lines(path: str | Path, reject: Rejection) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line of a JSONL file, gzipped or not (seen by its first bytes, not its name).

    A byte order mark at the start is passed over. Raises `reject.error` when the file cannot be read to its end.
    """
    wanted = "one JSON object a line"
    for line, raw in _lines(path, reject.error):
        where = f"{path}:{line}"
        if len(raw) > MAX_LINE_BYTES:
            reject(where, "line too long", f"more than {MAX_LINE_BYTES} bytes on a line", "shorter documents: split it")
            continue
        if not raw.strip():
            reject(where, "empty line", "an empty line", wanted)
            continue
        try:
            record = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            found = f"the byte 0x{raw[error.start]:02x} at {error.start + 1}, which is not UTF-8"
            reject(where, "not UTF-8", found, "UTF-8 text")
            continue
        except (ValueError, RecursionError) as error:
            reject(where, "broken JSON", f"broken JSON ({error}): {raw[:40].decode(errors='replace')}", wanted)
            continue
        if not isinstance(record, dict):
            reject(where, "not an object", f"a JSON {type(record).__name__}", wanted)
            continue
        yield line, record


def _lines(path: str | Path, error: type[ValueError]) -> Iterator[tuple[int, bytes]]:
    """Numbered raw lines; a line over the limit comes cut to just over it, so memory stays bounded."""
    line = 0
    try:
        with open(path, "rb") as raw:
            packed = raw.peek(2)[:2] == GZIP
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while found := stream.readline(MAX_LINE_BYTES + 2):
                line += 1
                rest = found
                while rest and len(found) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
                    rest = stream.readline(MAX_LINE_BYTES)
                if line == 1:
                    found = found.removeprefix(BOM)
                yield line, found.removesuffix(b"\n")
    except EOFError as problem:
        raise error(
            f"{path}: found a gzip file that ends early, after line {line}, wanted a whole one: copy it again"
        ) from problem
    except (gzip.BadGzipFile, zlib.error) as problem:
        raise error(f"{path}: found corrupt gzip data after line {line} ({problem}), wanted a whole file") from problem
    except OSError as problem:
        raise error(
            f"{path}: found no readable file ({problem.strerror}), wanted JSON lines (.jsonl or .jsonl.gz)"
        ) from problem
