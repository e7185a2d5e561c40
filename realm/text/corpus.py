"""What a corpus is made of: documents, the errors of bad ones, and the lines that JSON files of all kinds consist of.

Every record is checked. Strict reading stops at the first bad one with its place, what was found and what was wanted;
lenient reading drops it and counts it by reason, so that nothing vanishes unseen and row numbers always belong to
the texts they came with. Text is left exactly as given (HTML entities and line ends too), because the character
offsets of salient spans count in it. The readers themselves are in `realm.text.formats`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

MAX_LINE_BYTES = 8 * 2**20
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


def json_lines(path: str | Path, reject: Rejection) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) for every line of a JSON lines file, packed or not, local or by URL.

    Bad lines are rejected by reason, "file:line: found ..., wanted ..."; a file that cannot be read to its end raises
    `reject.error`.
    """
    from realm.text.formats.jsonl import json_objects

    try:
        yield from json_objects(path, reject)
    except CorpusError as problem:
        if issubclass(reject.error, CorpusError):
            raise
        raise reject.error(str(problem)) from problem
