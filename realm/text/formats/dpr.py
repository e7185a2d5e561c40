"""DPR's passages (psgs_w100.tsv): a heading "id text title", then one passage a line, columns apart by tabs.

A column may be quoted, quotes inside it doubled, and then go over line ends, as Python's csv writes it. csv itself is
not used to read: one stray quote makes it swallow all passages up to the next one. Here a quote left open looks a
limited way ahead, and if nothing sound comes of it only its own line is lost.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document
from realm.text.formats.admission import Admission
from realm.text.formats.jsonl import ROW_NUMBER, text_of
from realm.text.formats.source import Stream, name_of, numbered_lines
from realm.text.spans import RawSpan

FIELDS = {"id": "id", "title": "title", "text": "text"}
COLUMNS = ("id", "text", "title")
QRELS = ["query-id", "corpus-id", "score"]
COLUMN = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^\t"][^\t]*|))(\t|\Z)')
MAX_LINES = 500


def read_dpr(
    path: str | Path, admit: Admission, fields: Mapping[str, str] = FIELDS
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The passages of a TSV file. Without a heading the columns are id, text, title; `fields` names other headings."""
    names: tuple[str, ...] | None = None
    wanted = "id, text and title, apart by tabs"
    with Stream(path) as stream:
        lines = _Lines(numbered_lines(stream, MAX_LINE_BYTES))
        for line, raw in lines:
            where = f"{path}:{line}"
            text = text_of(where, raw, admit.reject, wanted)
            if text is None:
                continue
            cells = cells_of(text.removesuffix("\r"))
            if cells is None:
                cells = lines.joined(text)
            if cells is None:
                admit.reject(where, "broken quotes", "a quote that is not closed before a tab or line end", wanted)
                continue
            if cells == QRELS:
                wanted = "passages: of BEIR its corpus.jsonl, or the folder"
                raise CorpusError(f"{where}: found BEIR's judgements ({', '.join(cells)}), wanted {wanted}")
            if names is None:
                names = tuple(cells) if {fields["id"], fields["text"]} <= {*cells, ROW_NUMBER} else COLUMNS
                if names == tuple(cells):
                    continue
            if len(cells) != len(names):
                admit.reject(where, "wrong number of columns", f"{len(cells)} columns", f"{len(names)}: {wanted}")
                continue
            row = dict(zip(names, cells, strict=True))
            number = f"{name_of(path)}:{line}" if fields["id"] == ROW_NUMBER else row.get(fields["id"])
            document = admit(where, number, row.get(fields["title"]), row.get(fields["text"]))
            if document is not None:
                yield document, []


class _Lines:
    """Numbered lines with a look ahead that can be taken back."""

    def __init__(self, lines: Iterator[tuple[int, bytes]]):
        self._lines, self._ahead = lines, deque()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> tuple[int, bytes]:
        return self._ahead.popleft() if self._ahead else next(self._lines)

    def joined(self, text: str) -> list[str] | None:
        """The columns of a row that begins with `text` and goes on over line ends; None when no sound row comes of it.

        Sound: the quote closes at the first chance, before the limits of a document, and encloses no tab.
        """
        pieces, size = [text], len(text)
        for n in range(MAX_LINES):
            if n == len(self._ahead):
                found = next(self._lines, None)
                if found is None:
                    return None
                self._ahead.append(found)
            raw = self._ahead[n][1]
            size += len(raw)
            if size > MAX_LINE_BYTES:
                return None
            try:
                pieces.append(raw.decode("utf-8"))
            except UnicodeDecodeError:
                return None
            if raw.count(b'"') % 2:  # doubled quotes come in pairs
                cells = cells_of("\n".join(pieces).removesuffix("\r"))
                if cells is None or any("\n" in cell and "\t" in cell for cell in cells):
                    return None
                for _ in range(n + 1):
                    self._ahead.popleft()
                return cells
        return None


def cells_of(row: str) -> list[str] | None:
    """The columns of a row, quotes taken off; None when a quote is left open."""
    if '"' not in row:
        return row.split("\t")
    cells, end = [], 0
    while True:
        found = COLUMN.match(row, end)
        if found is None:
            return None
        quoted, plain, tab = found.groups()
        cells.append(plain if quoted is None else quoted.replace('""', '"'))
        end = found.end()
        if not tab:
            return cells
