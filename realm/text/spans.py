"""Salient spans: the named entities and dates that REALM hides, brought from characters to whole wordpieces.

Entities come from a file, dates from the date finder as well. A span is usable when it lies inside one sentence, covers
whole words, is short enough to be predicted whole and does not overlap a longer usable one. The reference code lost
spans, and whole sentences, in silence (google-research/language, realm/featurization.py); here each one that
is not usable is counted by its reason. Paper: arXiv 2002.08909, section 3.4.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from realm.text.corpus import Rejection, json_lines
from realm.text.tokenizer import Encoding

DATE = "DATE"
RawSpan = tuple[int, int, str]


class SpansError(ValueError):
    """A salient-spans file that cannot be used."""


class Placed(NamedTuple):
    """A usable span in document coordinates."""

    sentence: int
    token_start: int
    token_end: int
    char_start: int
    char_end: int
    label: str


def read_spans(
    path: str | Path, *, lenient: bool = False, counts: Counter | None = None
) -> Iterator[tuple[str, list[RawSpan]]]:
    """(document id, [(start, end, label), ...]) for each line of a JSONL(.gz) file {"id": ..., "spans": [...]}.

    Offsets are characters into the document's text, end exclusive; they are not compared with any text here. Raises
    SpansError, "file:line: found ..., wanted ...", for a bad line or span when strict; when lenient they are dropped
    and counted ("missing id", "missing spans", "duplicate id", "malformed span" and json_lines' reasons).
    """
    reject = Rejection(SpansError, lenient, Counter() if counts is None else counts)
    seen: set[str] = set()
    for line, record in json_lines(path, reject):
        where, number, spans = f"{path}:{line}", record.get("id"), record.get("spans")
        if not isinstance(number, str) or not number:
            reject(where, "missing id", f"the id {number!r}", 'the "id" of a document, a string')
        elif not isinstance(spans, list):
            reject(where, "missing spans", f"spans {spans!r:.40}", 'a list "spans", empty where there are none')
        elif number in seen:
            reject(where, "duplicate id", f"the id {number!r} once more", "all spans of a document on one line")
        else:
            seen.add(number)
            yield number, list(_triples(where, spans, reject))


def _triples(where: str, spans: list, reject: Rejection) -> Iterator[RawSpan]:
    for span in spans:
        match span:
            case [int(start), int(end), str(label)] if type(start) is type(end) is int and label:
                yield start, end, label
            case _:
                reject(where, "malformed span", f"the span {span!r:.60}", "[start, end, label]")


class SpanFile:
    """The spans of files, document by document: one pass, and little memory where files and corpus go in step.

    `take` reads ahead to the document asked for and keeps what it passes for later; `left()` says what nobody took.
    """

    def __init__(self, paths: Iterable[str | Path], *, lenient: bool = False, counts: Counter | None = None):
        self._lines = chain.from_iterable(read_spans(path, lenient=lenient, counts=counts) for path in paths)
        self._waiting: dict[str, list[RawSpan]] = {}

    def take(self, document_id: str) -> list[RawSpan]:
        """The spans of one document, [] when the file has none; each document can be asked for once."""
        while document_id not in self._waiting:
            entry = next(self._lines, None)
            if entry is None:
                return []
            self._waiting.setdefault(entry[0], []).extend(entry[1])
        return self._waiting.pop(document_id)

    def left(self) -> dict[str, list[RawSpan]]:
        """Whatever belongs to documents that were not asked for. Reads to the end of the file."""
        for number, spans in self._lines:
            self._waiting.setdefault(number, []).extend(spans)
        return self._waiting


def place_spans(
    text: str,
    encoding: Encoding,
    sentence_S4: np.ndarray,
    spans: Sequence[RawSpan],
    dates: Sequence[tuple[int, int]],
    *,
    max_tokens: int,
    unk: int,
    skips: Counter,
) -> list[Placed]:
    """The usable ones of a document's spans (from a file) and dates (from the finder), in text order.

    sentence_S4 as laid out by `lay_sentences`. The longest in characters is taken first, a file's span before the
    finder's; a date that both found is one. `skips` counts the rest by reason: outside the text, only blanks, crosses
    a sentence, no wordpieces, cuts a word, longer than N wordpieces, only unknown wordpieces, same date found twice,
    overlaps a longer span.
    """
    lists = Encoding(*(column.tolist() for column in encoding))  # bisecting lists is many times quicker, one by one
    sentences = sentence_S4.tolist()
    starts = [row[2] for row in sentences]
    placed = []
    for finder, (start, end, label) in [(False, span) for span in spans] + [(True, (*date, DATE)) for date in dates]:
        found = _place(text, lists, sentences, starts, start, end, label, max_tokens, unk)
        if isinstance(found, str):
            skips[found] += 1
        else:
            placed.append((found, finder))
    placed.sort(key=lambda one: (one[0].char_start - one[0].char_end, one[0].char_start, one[1], one[0].label))
    owner_T: list[tuple[Placed, bool] | None] = [None] * len(encoding.id_T)
    taken = []
    for one in placed:
        span, finder = one
        rivals = {rival for rival in owner_T[span.token_start : span.token_end] if rival is not None}
        if not rivals:
            owner_T[span.token_start : span.token_end] = [one] * (span.token_end - span.token_start)
            taken.append(span)
        elif span.label == DATE and any(rival.label == DATE and other != finder for rival, other in rivals):
            skips["same date found twice"] += 1
        else:
            skips["overlaps a longer span"] += 1
    return sorted(taken, key=lambda span: span.token_start)


def _place(
    text: str,
    encoding: Encoding,
    sentences: list[list[int]],
    starts: list[int],
    start: int,
    end: int,
    label: str,
    max_tokens: int,
    unk: int,
) -> Placed | str:
    """One span on wordpieces, or the reason why not. `encoding` holds lists, `starts` the sentences' first offsets."""
    if not 0 <= start < end <= len(text):
        return "outside the text"
    inner = text[start:end]
    end = start + len(inner.rstrip())
    start += len(inner) - len(inner.lstrip())
    if start >= end:
        return "only blanks"
    sentence = bisect_right(starts, start) - 1
    if sentence < 0 or end > sentences[sentence][3]:
        return "crosses a sentence"
    # All wordpieces that share a character with the span, within its sentence.
    low, high = sentences[sentence][:2]
    first = bisect_right(encoding.end_T, start, low, high)
    last = bisect_left(encoding.start_T, end, low, high)
    if first >= last:
        return "no wordpieces"
    word_T = encoding.word_T
    if (
        encoding.start_T[first] < start
        or encoding.end_T[last - 1] > end
        or (first > 0 and word_T[first] == word_T[first - 1])
        or (last < len(word_T) and word_T[last] == word_T[last - 1])
    ):
        return "cuts a word"
    if last - first > max_tokens:
        return f"longer than {max_tokens} wordpieces"
    if all(piece == unk for piece in encoding.id_T[first:last]):
        return "only unknown wordpieces"
    return Placed(sentence, first, last, start, end, label)
