"""CoNLL files: a word a line with its label in the last column, an empty line after each sentence.

Every way of marking where an entity begins is read by one rule, that of the shared tasks' own scorer (conlleval): an
entity begins at B- or S-, and wherever the type changes or a label follows O or the end of another (E-, S-). So IO,
IOB1, IOB2 and BIOES files need not be told apart. Tjong Kim Sang and De Meulder 2003, "Introduction to the CoNLL-2003
shared task".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from realm.text.corpus import CorpusError, Rejection
from realm.text.formats.source import Stream, numbered_lines

MAX_LINE = 1 << 16
OUTSIDE = "O"
LABEL = re.compile(r"[BIESLU]-\S+")
DOCSTART = "-DOCSTART-"


class ConllError(ValueError):
    """A CoNLL file that cannot be used."""


class LabelledSentence(NamedTuple):
    """`where`: file and line of the first word. words and labels, W of each, as the file has them."""

    where: str
    words: tuple[str, ...]
    labels: tuple[str, ...]


def read_conll(path: str | Path, *, lenient: bool = False, counts: Counter | None = None) -> Iterator[LabelledSentence]:
    """The sentences of a file, plain or packed, one in memory at a time; -DOCSTART- lines are passed over.

    Columns are divided by tabs where a line has one, else by blanks; the first is the word, the last its label.
    Raises ConllError, "file:line: found ..., wanted ...", at the first bad line when strict; when lenient its whole
    sentence is dropped and counted ("columns", "label", "not UTF-8", "line too long"). A file that cannot be opened or
    is damaged raises it always, one without a sentence when strict.
    """
    reject = Rejection(ConllError, lenient, Counter() if counts is None else counts)
    words: list[str] = []
    labels: list[str] = []
    first, bad, sentences = 0, False, 0
    try:
        with Stream(path) as stream:
            for number, raw in _ended(stream):
                if raw is None or not raw.strip():
                    if words and not bad:
                        sentences += 1
                        yield LabelledSentence(f"{path}:{first}", tuple(words), tuple(labels))
                    words, labels, bad = [], [], False
                    continue
                row = _row(f"{path}:{number}", raw, reject)
                if row is None:
                    bad = True
                elif row[0] != DOCSTART:
                    first = first if words else number
                    words.append(row[0])
                    labels.append(row[1])
    except CorpusError as problem:
        raise ConllError(str(problem)) from problem
    if not sentences and not lenient:
        raise ConllError(f"{path}: found no sentence, wanted a word and its label a line, and empty lines between")


def _ended(stream: Stream) -> Iterator[tuple[int, bytes | None]]:
    """The lines, and None after the last: the end of the file ends a sentence too."""
    yield from numbered_lines(stream, MAX_LINE)
    yield 0, None


def _row(where: str, raw: bytes, reject: Rejection) -> tuple[str, str] | None:
    if len(raw) > MAX_LINE:
        return reject(where, "line too long", f"a line of more than {MAX_LINE} bytes", "a word and its label")
    try:
        line = raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as problem:
        found = f"the byte 0x{raw[problem.start]:02x}, which is not UTF-8"
        return reject(where, "not UTF-8", found, "UTF-8 text")
    column = [one.strip() for one in line.split("\t")] if "\t" in line else line.split()
    if len(column) < 2 or not column[0]:
        return reject(where, "columns", f"{line[:40]!r}", "a word and its label, divided by a tab or blank")
    word, label = column[0], column[-1]
    if word != DOCSTART and label != OUTSIDE and not LABEL.fullmatch(label):
        return reject(where, "label", f"the label {label[:40]!r}", "O, or a type behind B-, I-, E- or S-")
    return word, label


def label_spans(labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """(first word, end, type) of the entities that labels mark, by conlleval's rule; in order, end exclusive."""
    spans: list[tuple[int, int, str]] = []
    start, last, kind = -1, OUTSIDE, ""
    for place, label in enumerate([*labels, OUTSIDE]):
        prefix, _, type_ = label.partition("-")
        if start >= 0 and (prefix in ("O", "B", "S", "U") or type_ != kind or last in ("E", "S", "L", "U")):
            spans.append((start, place, kind))
            start = -1
        if prefix != OUTSIDE and start < 0:
            start, kind = place, type_
        last = prefix
    return spans


def bio(spans: Sequence[tuple[int, int, str]], words: int) -> list[str]:
    """The BIO (IOB2) labels of `words` words with these entities, which do not overlap."""
    labels = [OUTSIDE] * words
    for start, end, kind in spans:
        labels[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
    return labels


def types_of(sentences: Sequence[LabelledSentence]) -> tuple[str, ...]:
    """The types of entity that sentences mark, sorted."""
    return tuple(sorted({kind for sentence in sentences for _, _, kind in label_spans(sentence.labels)}))
