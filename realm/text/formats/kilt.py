"""The KILT knowledge source: JSON lines of Wikipedia articles, each a list of paragraphs with section and bullet marks.

The first paragraph repeats the title and goes, section headings go, bullets lose their mark; what is left is joined as
it stands. Anchors (links) count characters inside a paragraph and become spans of the joined text.
Source: Petroni et al., arXiv 2009.02252; facebookresearch/KILT, README.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.text.corpus import Document
from realm.text.formats.admission import Admission
from realm.text.formats.jsonl import json_objects
from realm.text.spans import RawSpan

ANCHOR = "ANCHOR"
SECTION = "Section::::"
BULLET = re.compile(r"BULLET::::(?:- ?)?")


def read_kilt(path: str | Path, admit: Admission) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The articles with their anchors, lists and disambiguation pages too: KILT's tasks name articles by their ids.

    An anchor that does not hold its own words is rejected ("malformed span").
    """
    for line, record in json_objects(path, admit.reject):
        where = f"{path}:{line}"
        paragraphs, title = record.get("text"), record.get("wikipedia_title")
        if paragraphs is None:
            admit.reject(where, "missing text", f"no text (fields: {sorted(record)})", "a list of paragraphs as text")
            continue
        if not isinstance(paragraphs, list) or not all(isinstance(one, str) for one in paragraphs):
            found = f"a text that is {paragraphs!r:.60}"
            admit.reject(where, "not a string", found, "a list of paragraphs, each a string")
            continue
        number = record.get("wikipedia_id") or record.get("_id")
        text, places = joined(paragraphs, title)
        document = admit(where, number, title, text)
        if document is not None:
            yield document, sorted(_spans(where, record.get("anchors"), paragraphs, places, admit))


def joined(paragraphs: list[str], title: Any) -> tuple[str, dict[int, tuple[int, int]]]:
    """The text, and for each paragraph that is in it (characters cut from its front, its start in the text)."""
    pieces: list[str] = []
    places: dict[int, tuple[int, int]] = {}
    end = 0
    for n, paragraph in enumerate(paragraphs):
        if paragraph.startswith(SECTION) or (n == 0 and paragraph.strip() == title):
            continue
        mark = BULLET.match(paragraph)
        cut = mark.end() if mark else 0
        piece = paragraph[cut:].rstrip()
        if not piece.strip():
            continue
        places[n] = (cut, end)
        pieces.append(piece)
        end += len(piece) + 1
    return "\n".join(pieces), places


def _spans(
    where: str, anchors: Any, paragraphs: list[str], places: dict[int, tuple[int, int]], admit: Admission
) -> Iterator[RawSpan]:
    for anchor in anchors if isinstance(anchors, list) else []:
        match anchor:
            case {"text": str(said), "paragraph_id": int(n), "start": int(start), "end": int(end)} if (
                0 <= n < len(paragraphs) and 0 <= start < end and paragraphs[n][start:end] == said
            ):
                if n in places and said.strip():
                    cut, place = places[n]
                    if start >= cut:
                        yield place + start - cut, place + start - cut + len(said.rstrip()), ANCHOR
            case _:
                wanted = "text, paragraph_id, start and end that fit the paragraph"
                admit.reject(where, "malformed span", f"the anchor {anchor!r:.80}", wanted)
