"""Salient spans as they come: from files {"id": ..., "spans": [[start, end, label], ...]}, document by document.

A line may name the tagger that found its spans, "tagger": ..., and a span another one in a fourth place.

A file is read once. Where it goes in step with the corpus it takes next to no memory; what has to wait for its document
is kept in memory up to a limit and then in a database on disk, so that no order of a file can fill the memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from realm.text.corpus import Rejection, json_lines

# (start, end, label), and the tagger that found it where the file says so.
RawSpan = tuple[int, int, str] | tuple[int, int, str, str]
# Who found a span, where it does not say so itself: our date finder, the links of a format, a prepared dataset, a file.
DATES, ANCHORS, DATASET, FILE = "dates", "anchors", "dataset", "file"
UNKNOWN = "unknown"  # of a corpus built before this was stored
WAITING = 1 << 18  # spans that may wait in memory; one takes about 200 bytes


class SpansError(ValueError):
    """A salient-spans file that cannot be used."""


def read_spans(
    path: str | Path, *, lenient: bool = False, counts: Counter | None = None
) -> Iterator[tuple[str, list[RawSpan]]]:
    """(document id, [(start, end, label), ...]) for each line of a JSON lines file {"id": ..., "spans": [...]}.

    A span has its tagger's name in a fourth place where the line or the span names one.
    Offsets are characters into the document's text, end exclusive; they are not compared with any text here. Raises
    SpansError, "file:line: found ..., wanted ...", for a bad line or span when strict; when lenient they are dropped
    and counted ("missing id", "missing spans", "duplicate id", "malformed span" and json_lines' reasons).
    """
    from realm.text.formats.admission import SeenIds

    reject = Rejection(SpansError, lenient, Counter() if counts is None else counts)
    seen = SeenIds()
    for line, record in json_lines(path, reject):
        number, spans = record.get("id"), record.get("spans")
        if not isinstance(number, str) or not number:
            reject(f"{path}:{line}", "missing id", f"the id {number!r}", 'the "id" of a document, a string')
        elif not isinstance(spans, list):
            wanted = 'a list "spans", empty where there are none'
            reject(f"{path}:{line}", "missing spans", f"spans {spans!r:.40}", wanted)
        elif not seen.add(number):
            wanted = "all spans of a document on one line"
            reject(f"{path}:{line}", "duplicate id", f"the id {number!r} once more", wanted)
        else:
            yield number, _checked(f"{path}:{line}", spans, record.get("tagger"), reject)


def _checked(where: str, spans: list, tagger: Any, reject: Rejection) -> list[RawSpan]:
    if tagger is not None and (type(tagger) is not str or not tagger):
        reject(where, "malformed tagger", f"the tagger {tagger!r:.60}", "a name, or no field of this name")
        tagger = None
    good = _sound(spans)
    if good is not None:
        return good if tagger is None else [(*span, tagger) for span in good]
    good = []
    for span in spans:
        if type(span) is list and len(span) in (3, 4):
            start, end, label, *by = span
            named = all(type(one) is str and one for one in (label, *by))
            if type(start) is int and type(end) is int and named:
                name = by[0] if by else tagger
                good.append((start, end, label) if name is None else (start, end, label, name))
                continue
        reject(where, "malformed span", f"the span {span!r:.60}", "[start, end, label]")
    return good


def _sound(spans: list) -> list[RawSpan] | None:
    """Spans of three places each, taken at once; None where there is any other, to be looked at one by one."""
    try:
        found = [(start, end, label) for start, end, label in spans]
    except (TypeError, ValueError):
        return None
    kinds = {(type(start), type(end), type(label)) for start, end, label in found}
    sound = kinds <= {(int, int, str)} and {*map(type, spans)} <= {list}
    return found if sound and all([label for _, _, label in found]) else None


def found_by(spans: Iterable[RawSpan], tagger: str) -> list[RawSpan]:
    """The spans with their taggers' names: `tagger` for those that have none."""
    return [span if len(span) == 4 else (*span, tagger) for span in spans]


class SpanFile:
    """The spans of files, document by document, each file in one pass and bounded memory, whatever its order.

    `take` reads ahead to the document asked for and keeps what it passes for later, on disk past WAITING spans (in the
    folder `aside`, or where temporary files go). `left()` says what nobody took. Of a document that several files
    have, all spans are taken.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        *,
        lenient: bool = False,
        counts: Counter | None = None,
        aside: str | Path | None = None,
    ):
        self._files = [
            _Reader(
                read_spans(path, lenient=lenient, counts=counts),
                None if aside is None else Path(aside) / f"spans-{n}.waiting",
            )
            for n, path in enumerate(paths)
        ]

    def take(self, document_id: str) -> list[RawSpan]:
        """The spans of one document, [] when no file has any; each document can be asked for once."""
        return [span for file in self._files for span in file.take(document_id)]

    def left(self) -> Iterator[tuple[str, list[RawSpan]]]:
        """Whatever belongs to documents that were not asked for. Reads to the end of the files."""
        for file in self._files:
            yield from file.left()

    def close(self) -> None:
        """Removes what waits on disk."""
        for file in self._files:
            file.close()


class _Reader:
    """One file: what was read of it and has not been asked for yet."""

    def __init__(self, lines: Iterator[tuple[str, list[RawSpan]]], aside: Path | None):
        self._lines = lines
        self._waiting: dict[str, list[RawSpan]] = {}
        self._size = 0
        self._aside = aside
        self._disk: sqlite3.Connection | None = None

    def take(self, document_id: str) -> list[RawSpan]:
        while document_id not in self._waiting:
            found = self._from_disk(document_id)
            if found is not None:
                return found
            entry = next(self._lines, None)
            if entry is None:
                return []
            self._keep(*entry)
        spans = self._waiting.pop(document_id)
        self._size -= len(spans) + 1
        return spans

    def left(self) -> Iterator[tuple[str, list[RawSpan]]]:
        for entry in self._lines:
            self._keep(*entry)
        yield from self._waiting.items()
        if self._disk is not None:
            for document_id, spans in self._disk.execute("SELECT id, spans FROM waiting ORDER BY rowid"):
                yield document_id, _unpacked(spans)

    def close(self) -> None:
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def _keep(self, document_id: str, spans: list[RawSpan]) -> None:
        self._waiting[document_id] = spans
        self._size += len(spans) + 1
        if self._size <= WAITING:
            return
        if self._disk is None:
            self._disk = self._database()
        del self._waiting[document_id]  # likely the one that is asked for
        rows = ((one, json.dumps(spans)) for one, spans in self._waiting.items())
        self._disk.executemany("INSERT INTO waiting VALUES (?, ?)", rows)
        self._waiting, self._size = {document_id: spans}, len(spans) + 1

    def _database(self) -> sqlite3.Connection:
        if self._aside is not None:
            self._aside.unlink(missing_ok=True)  # of a build that was killed
        disk = sqlite3.connect("" if self._aside is None else self._aside, isolation_level=None)
        for line in ("PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF", "BEGIN"):
            disk.execute(line)
        disk.execute("CREATE TABLE waiting (id TEXT PRIMARY KEY, spans TEXT)")
        return disk

    def _from_disk(self, document_id: str) -> list[RawSpan] | None:
        """None when the document does not wait there. What was taken once is not asked for again."""
        if self._disk is None:
            return None
        row = self._disk.execute("SELECT spans FROM waiting WHERE id = ?", (document_id,)).fetchone()
        if row is None:
            return None
        self._disk.execute("DELETE FROM waiting WHERE id = ?", (document_id,))
        return _unpacked(row[0])


def _unpacked(spans: str) -> list[RawSpan]:
    return [tuple(span) for span in json.loads(spans)]
