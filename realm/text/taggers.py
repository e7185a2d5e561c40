"""Taggers: documents in, salient spans with kind and provenance out, whoever finds them.

One interface, so that a corpus may be masked by the paper's BERT tagger (`realm.objectives.bert_tagger`), spaCy
(`spacy_tagger`), the links that a format carries, or a file of any other system. Dates never come from a tagger: they
are always those of our finder, whose grammar is written down (`dates`), so that corpora tagged differently have the
same dates. Paper: arXiv 2002.08909, section 3.4.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from realm.text.build_place import DATE
from realm.text.corpus import Document
from realm.text.dates import find_dates
from realm.text.spans import ANCHORS, DATES, FILE, RawSpan, SpanFile

BATCH = 64  # documents that a tagger gets at a time
# Words as CoNLL files have them: not cut inside "3,394", "U.S" or "O'Neill", but before "'s" and "n't"-like endings.
_WORD = re.compile(r"['’](?:s|m|d|ve|re|ll)\b|\w+(?:(?:[-.,&/]|['’](?!(?:s|m|d|ve|re|ll)\b))\w+)*|\S", re.IGNORECASE)

Marked = tuple[Document, list[RawSpan]]  # with the spans that the document's format carries


class TaggerError(ValueError):
    """A tagger that cannot be had or used."""


class Span(NamedTuple):
    """Characters start to end of a document's text, end exclusive; kind: PER, DATE, ...; tagger: who found it."""

    start: int
    end: int
    kind: str
    tagger: str


class Tagger(Protocol):
    """name: what the corpus stores as provenance."""

    name: str

    def tag(self, documents: Sequence[Marked]) -> list[list[RawSpan]]:
        """(start, end, kind) of the entities of each document."""
        ...


class Anchors:
    """The links that a format marks (MediaWiki dumps, KILT), or the spans that a prepared dataset has."""

    name = ANCHORS

    def tag(self, documents: Sequence[Marked]) -> list[list[RawSpan]]:
        return [own for _, own in documents]


class File:
    """Spans files; of a document that several have, all spans."""

    name = FILE

    def __init__(self, paths: Iterable[str | Path], *, lenient: bool = False, counts: Counter | None = None):
        self._spans = SpanFile(paths, lenient=lenient, counts=counts)

    def tag(self, documents: Sequence[Marked]) -> list[list[RawSpan]]:
        return [self._spans.take(document.id) for document, _ in documents]

    def left(self) -> int:
        """How many spans belong to no document that was tagged; reads the files to their ends and closes them."""
        with closing(self._spans):
            return sum(len(spans) for _, spans in self._spans.left())


def tagged(
    documents: Iterable[Marked], tagger: Tagger, counts: Counter | None = None
) -> Iterator[tuple[Document, list[Span]]]:
    """Each document with its spans in text order: the tagger's entities, and our finder's dates.

    A span that names its own tagger (of a file) keeps it. What the tagger calls a date is left out and counted ("date
    of the tagger"), as is a span outside the text ("outside the text").
    """
    counts = Counter() if counts is None else counts
    documents = iter(documents)
    while batch := list(islice(documents, BATCH)):
        for (document, _), found in zip(batch, tagger.tag(batch), strict=True):
            spans = [Span(start, end, DATE, DATES) for start, end in find_dates(document.text)]
            for start, end, kind, *by in found:
                if kind == DATE:
                    counts["date of the tagger"] += 1
                elif not 0 <= start < end <= len(document.text):
                    counts["outside the text"] += 1
                else:
                    spans.append(Span(start, end, kind, by[0] if by else tagger.name))
            yield document, sorted(spans)


def write_spans(found: Iterable[tuple[Document, list[Span]]], out: str | Path, tagger: str) -> Counter:
    """Writes the spans file that a corpus is built with, one line a document; documents, and spans by kind.

    Dates are not in it, since every build finds them itself. `out` is gzipped where its name ends in .gz, and appears
    when it is complete; the same spans give the same bytes.
    """
    out, counts = Path(out), Counter(documents=0)
    beside = out.with_name(f"{out.name}.writing")
    try:
        with open(beside, "wb") as raw:
            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if out.suffix == ".gz" else raw
            for document, spans in found:
                counts["documents"] += 1
                counts.update(f"{span.kind} by {span.tagger}" for span in spans)
                rows = [[*span[:3]] if span.tagger == tagger else [*span] for span in spans if span.tagger != DATES]
                line = {"id": document.id, "tagger": tagger, "spans": rows}
                packed.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            if packed is not raw:
                packed.close()
            raw.flush()
            os.fsync(raw.fileno())
        beside.rename(out)
    finally:
        beside.unlink(missing_ok=True)
    return counts


def words_of(text: str) -> list[tuple[int, int]]:
    """(start, end) of the words of a text, cut about as CoNLL files are."""
    return [match.span() for match in _WORD.finditer(text)]


def word_spans(words: Sequence[str], tagger: Tagger) -> list[tuple[int, int, str]]:
    """(first word, end, kind) of what a tagger finds in a sentence of words, joined by blanks. Spans that begin or end
    inside a word are widened to it; dates are left out."""
    places, at = [], 0
    for word in words:
        places.append((at, at + len(word)))
        at += len(word) + 1
    found = set()
    for start, end, kind, *_ in tagger.tag([(Document("sentence", "", " ".join(words)), [])])[0]:
        inside = [number for number, (low, high) in enumerate(places) if low < end and start < high]
        if inside and kind != DATE:
            found.add((inside[0], inside[-1] + 1, kind))
    return sorted(found)
