"""BM25 over the same blocks: the baseline a learned retriever has to beat (Robertson and Zaragoza 2009).

Lucene's form with k1 0.9 and b 0.4, the values customary for open-domain QA (Pyserini). A block is its title and its
text; words are runs of letters, digits and underscores in lower case; no stop words are removed and nothing is stemmed.
bm25s is imported on the first use. The index keeps one number and one row for each distinct word of each block.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from realm.protocols import Hits

_words = re.compile(r"\w+").findall


class Bm25Error(ValueError):
    """A corpus without words, or a k that asks for nothing."""


class Titled(Protocol):
    """What is read of a block table here."""

    indexed: int

    def text(self, row: int) -> str: ...

    def title(self, row: int) -> str: ...


def words(text: str) -> list[str]:
    """The words BM25 counts."""
    return _words(text.lower())


class Bm25:
    """A BM25 index over a block table. `search` gives the columns a `Searcher` gives, from words not vectors."""

    kind = "bm25"

    def __init__(self, table: Titled, *, k1: float = 0.9, b: float = 0.4):
        import bm25s

        # bm25s lowers its own logger to DEBUG, which would print in any program that has a root handler.
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        self.rows, self.k1, self.b = table.indexed, k1, b
        corpus = _Words(table)
        if not corpus.vocab:
            raise Bm25Error(f"found no word in any of {table.indexed} blocks, wanted a corpus with text")
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy", csc_backend="numpy")
        self._index.index(corpus, show_progress=False)

    def search(self, questions: Sequence[str], k: int) -> Hits:
        """The k best blocks of each question, best first; of equal scores the lower row first.

        Gives Hits with exactly k columns. A block that shares no word with the question is no hit (invalid).
        Raises Bm25Error on k < 1 and on a bare string.
        """
        if isinstance(questions, str):
            raise Bm25Error(f"found the string {questions!r} as questions, wanted a list of strings: [{questions!r}]")
        if k < 1:
            raise Bm25Error(f"found k {k}, wanted 1 or more")
        shape = (len(questions), k)
        score_QK, id_QK = np.full(shape, -np.inf, np.float32), np.zeros(shape, np.int32)
        some = min(k, self.rows)
        if questions:
            # The jax selection breaks ties by the lower row, the numpy one as it happens.
            found = self._index.retrieve(
                [words(question) for question in questions], k=some, show_progress=False, backend_selection="jax"
            )
            score_QK[:, :some], id_QK[:, :some] = found.scores, found.documents
        valid_QK = np.isfinite(score_QK) & (score_QK > 0)
        return Hits(np.where(valid_QK, score_QK, -np.inf).astype(np.float32), np.where(valid_QK, id_QK, 0), valid_QK)

    def settings(self) -> dict[str, float | int | str]:
        """What was built, for logs."""
        return {"kind": self.kind, "rows": self.rows, "k1": self.k1, "b": self.b}


class _Words:
    """The corpus as bm25s wants it (`ids`, `vocab`), at four bytes a word instead of a list object a block."""

    def __init__(self, table: Titled):
        self.vocab: dict[str, int] = {}
        self._flat, self._end = array("i"), array("q", [0])
        for row in range(table.indexed):
            self._flat.extend(
                [
                    self.vocab.setdefault(word, len(self.vocab))
                    for word in words(f"{table.title(row)} {table.text(row)}")
                ]
            )
            self._end.append(len(self._flat))

    @property
    def ids(self) -> _Words:
        return self

    def __len__(self) -> int:
        return len(self._end) - 1

    def __iter__(self) -> Iterator[array]:
        for row in range(len(self)):
            yield self._flat[self._end[row] : self._end[row + 1]]
