"""Paragraphs of wikitext that are too long to be parsed at once, in parts: none of their text is lost.

A parser's time grows with the square of what was made to hurt it: 32 KB of templates never closed take a minute. Parts
end between words, outside links and templates. Only one link or template over the limit, or a part with many of them
left open, cannot be read; a sentence of any length can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from realm.text.formats.markup import KEPT_TEMPLATES, NAME, pairs

# Characters that are parsed at once, those of a part of what is longer, and how many marks a part may leave open.
MAX_PARAGRAPH, PART, MAX_OPEN = 1 << 15, 1 << 12, 8
WHOLE = re.compile(r"\[(?:\w{1,20}:|//)[^\[\]]*\]|&#?\w{1,31};")  # not to be cut, beside links and templates
WORD, OPEN = re.compile(r"\S+\s*|\s+"), re.compile(r"\{\{|\[(?:\[|\w{1,20}:|//)|<\w")


def parts(line: str) -> Iterator[tuple[str, bool]]:
    """A line in parts, end to end the line without its long templates, and whether each can be parsed in bounded time.

    One part up to MAX_PARAGRAPH characters, else several of about PART.
    """
    if len(line) <= MAX_PARAGRAPH:
        yield line, True
        return
    held, size, opened = [], 0, 0
    for piece, marks in _pieces(line):
        if held and size + len(piece) > PART:
            yield "".join(held), size <= MAX_PARAGRAPH and opened <= MAX_OPEN
            held, size, opened = [], 0, 0
        held.append(piece)
        size, opened = size + len(piece), opened + marks
    yield "".join(held), size <= MAX_PARAGRAPH and opened <= MAX_OPEN


def _pieces(line: str) -> Iterator[tuple[str, int]]:
    """What a line may be cut between: links and templates whole, words; and how many marks each leaves open."""
    end = 0
    whole = sorted([*pairs(line), *(found.span() for found in WHOLE.finditer(line))])
    for start, stop in (*whole, (len(line), len(line))):
        if start < end:
            continue
        for word in WORD.findall(line[end:start]):
            for at in range(0, len(word), PART):  # some scripts have no blanks
                piece = word[at : at + PART]
                yield piece, len(OPEN.findall(piece))
        end, piece = stop, line[start:stop]
        name = NAME.match(piece) if len(piece) > MAX_PARAGRAPH else None
        if name is None or name[1].strip().lower() in KEPT_TEMPLATES:  # no other template has words of the sentence
            yield piece, 0
