"""Dumps, cut into pages here and cleaned by the workers: cleaning takes several times as long as building.

What was cleaned is kept beside the parts until the corpus is whole, so that a build that goes on, or that reads its
documents twice (to train a vocabulary), does not do it again. Documents, counts and errors are those of
`read_mediawiki`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from realm.text.build_encode import WordEncoder
from realm.text.build_workers import Workers
from realm.text.corpus import CorpusError, Document, Rejection
from realm.text.formats import mediawiki
from realm.text.formats.admission import Admission, SeenIds
from realm.text.formats.source import Stream
from realm.text.spans import RawSpan

PAGES, PAGE_BYTES = 64, 1 << 20  # that a worker cleans at a time


class _Pages(NamedTuple):
    """Some pages of a dump, for a worker to clean, and the file in which they are kept."""

    path: str
    pages: list[mediawiki.Page]
    namespaces: Any
    keep: tuple[str, ...]
    lenient: bool
    file: Path


class _Cleaned(NamedTuple):
    """(place, article, links, counts since the one before) of each, the counts after the last, and what ended it."""

    articles: list[tuple[str, Document, list[RawSpan], Counter]]
    rest: Counter
    error: str | None


def read_dump(
    path: str,
    keep: Collection[str],
    lenient: bool,
    counts: Counter,
    seen: SeenIds,
    workers: Workers,
    aside: Path,
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The articles of a dump with their links, as `mediawiki.read_mediawiki`. aside: a folder of this dump's own."""
    reject = Rejection(CorpusError, lenient, counts)
    aside.mkdir(parents=True, exist_ok=True)
    with Stream(path) as stream:
        header, pages = mediawiki.split(path, stream)
        namespaces = mediawiki.namespaces_of(path, header)
        tasks = (
            _Pages(path, some, namespaces, tuple(keep), lenient, aside / f"{number:06d}.json")
            for number, some in enumerate(_grouped(pages))
        )
        for found in workers.ordered(_clean, tasks):
            for place, document, spans, before in found.articles:
                counts.update(before)
                if not seen.add(document.id):
                    counts["missing title"] -= not document.title
                    wanted = "a new id for every document"
                    reject(place, "duplicate id", f"the id {document.id!r:.80} once more", wanted)
                    continue
                yield document, spans
            counts.update(found.rest)
            if found.error is not None:
                raise CorpusError(found.error)


def _grouped(pages: Iterable[mediawiki.Page]) -> Iterator[list[mediawiki.Page]]:
    held, size = [], 0
    for page in pages:
        held.append(page)
        size += len(page.xml or b"")
        if len(held) == PAGES or size >= PAGE_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _clean(_: WordEncoder, task: _Pages) -> _Cleaned:
    kept = _kept(task.file)
    if kept is not None:
        return kept
    counts: Counter = Counter()
    admit = Admission(task.lenient, counts)
    articles, error = [], None
    try:
        for place, document, spans in mediawiki.read_pages(task.path, task.pages, task.namespaces, admit, task.keep):
            articles.append((place, document, spans, counts.copy()))
            counts.clear()
    except CorpusError as problem:
        error = str(problem)
    cleaned = _Cleaned(articles, counts, error)
    beside = task.file.with_suffix(".writing")
    beside.write_text(json.dumps(cleaned), "utf-8")
    beside.rename(task.file)
    return cleaned


def _kept(file: Path) -> _Cleaned | None:
    """What an earlier build of the same source has cleaned; None where there is nothing whole."""
    try:
        articles, rest, error = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return _Cleaned(
        [
            (place, Document(*document), [tuple(span) for span in spans], Counter(before))
            for place, document, spans, before in articles
        ],
        Counter(rest),
        error,
    )
