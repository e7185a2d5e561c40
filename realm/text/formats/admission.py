"""Who may enter a corpus: the checks that every format shares, so that each reader only has to find id, title and text.

Reasons are those of JSON lines (`realm.text.corpus`), whatever the format. Ids are compared by 64-bit digests in one
flat table of eight bytes a slot: the ids of 21 million passages take a quarter of a gigabyte, and the chance that any
two of them share a digest is about one in 100,000.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from hashlib import blake2b
from typing import Any

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document, Rejection

# What a dump or a folder holds by design and a corpus leaves out: counted, never an error, in strict reading too.
BY_DESIGN = frozenset(
    {
        "redirect",
        "not an article",
        "disambiguation page",
        "list page",
        "no text but markup",
        "hidden file",
        "other file",
        "metadata file",
        "BEIR queries",
        "BEIR qrels",
    }
)


class Admission:
    """Checks one document after another. `reject` is how a reader reports what is no document at all."""

    def __init__(self, lenient: bool = False, counts: Counter | None = None, seen: SeenIds | None = None):
        self.counts = Counter() if counts is None else counts
        self.reject = Rejection(CorpusError, lenient, self.counts)
        self._seen = SeenIds() if seen is None else seen

    def __call__(self, where: str, number: Any, title: Any, text: Any, heldout: Any = False) -> Document | None:
        """The document, or None when it was rejected. A whole number is an id (its digits); a null title is ""."""
        reject = self.reject
        if type(number) is int:
            number = str(number)
        if number is None or number == "":
            return reject(where, "missing id", "no id", "an id that is a string with characters in it")
        if text is None:
            return reject(where, "null text", "a null text", "a text that is a string")
        for name, value in (("id", number), ("text", text), ("title", "" if title is None else title)):
            if not isinstance(value, str):
                found = f"a {name} that is a {type(value).__name__}: {str(value)[:40]}"
                return reject(where, "not a string", found, f"a {name} that is a string")
            if not _is_unicode(value):
                return reject(where, "not UTF-8", f"half a surrogate pair in the {name}", "whole characters")
        if len(text) > MAX_LINE_BYTES:
            return reject(
                where, "text too long", f"a text of {len(text)} characters", f"at most {MAX_LINE_BYTES}: split it"
            )
        if not any(unicodedata.category(character)[0] not in "CMZ" for character in text):
            return reject(where, "blank text", f"a text of {len(text)} characters, none visible", "a text with words")
        if not isinstance(heldout, bool):
            return reject(where, "not a truth value", f"a heldout {heldout!r:.40}", "true or false, if it is there")
        if not self._seen.add(number):
            return reject(where, "duplicate id", f"the id {number!r:.80} once more", "a new id for every document")
        if not title:
            self.counts["missing title"] += 1
        return Document(number, title or "", text, heldout)


class SeenIds:
    """A set of strings that can only grow, kept as 64-bit digests under open addressing."""

    def __init__(self):
        self._slots, self._size = array("Q", bytes(8 << 10)), 0

    def add(self, number: str) -> bool:
        """False when it was there before."""
        if not self._put(int.from_bytes(blake2b(number.encode(), digest_size=8).digest(), "little") or 1):
            return False
        self._size += 1
        if self._size * 3 > len(self._slots) * 2:
            kept, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
            for old in kept:
                if old:
                    self._put(old)
        return True

    def _put(self, digest: int) -> bool:
        slots, mask = self._slots, len(self._slots) - 1
        place = digest & mask
        while kept := slots[place]:
            if kept == digest:
                return False
            place = (place + 1) & mask
        slots[place] = digest
        return True


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
