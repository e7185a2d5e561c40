"""MediaWiki XML dumps (pages-articles), packed or not: one page in memory at a time.

The stream is cut at the tags of pages, which cannot occur inside one, before any XML is parsed. So a page that is too
large or not well-formed costs that page only, and nothing declared at the top of a file (entities that expand
without end) reaches the parser, and a page may have any tags that later versions of the format invent. The package
mwxml is not used because it parses the whole dump as one document: one page that is not well-formed ends the reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document
from realm.text.formats.admission import Admission
from realm.text.formats.long_lines import MAX_PARAGRAPH
from realm.text.formats.page_kinds import is_disambiguation, is_list, is_redirect
from realm.text.formats.source import CHUNK, Stream
from realm.text.formats.wikitext import Namespaces, clean, parser
from realm.text.spans import RawSpan

OPEN, CLOSE, END = b"<page>", b"</page>", b"</mediawiki>"
MAX_HEADER_BYTES = 1 << 20
FILE, CATEGORY = "6", "14"


class Page(NamedTuple):
    """A page as stored. xml is None when it is over the limit."""

    number: int
    offset: int
    xml: bytes | None


def read_mediawiki(
    path: str | Path, admit: Admission, keep: Collection[str] = ()
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The articles of a dump (namespace 0, the last revision of each), cleaned, with their links as spans.

    Counted and left out: redirects, other namespaces and content models, disambiguation pages and lists unless
    `keep` holds "disambiguation" and "list" (`page_kinds`), pages of markup alone. A bad page is rejected: "page too
    long", "broken XML" (also XML that is no page), and the reasons of Admission; of a page whose "paragraph too long"
    cannot be parsed only that goes. Raises CorpusError for a file that is no dump, is damaged, or ends before
    </mediawiki>.
    """
    with Stream(path) as stream:
        header, pages = split(path, stream)
        for _, document, spans in read_pages(path, pages, namespaces_of(path, header), admit, keep):
            yield document, spans


def read_pages(
    path: str | Path, pages: Iterable[Page], namespaces: Namespaces, admit: Admission, keep: Collection[str] = ()
) -> Iterator[tuple[str, Document, list[RawSpan]]]:
    """(place, article, links) of pages of the dump `path`, as `read_mediawiki` reads them."""
    for page in pages:
        where = f"{path}: page {page.number} at byte {page.offset}"
        if page.xml is None:
            found = f"a page of more than {MAX_LINE_BYTES} bytes"
            admit.reject(where, "page too long", found, "a page that MediaWiki would store")
            continue
        found = _article(where, page.xml, namespaces, admit, keep)
        if found is None:
            continue
        number, title, source = found
        place = f"{where} ({title!r:.80})"
        text, spans = clean(source, namespaces, partial(_reject_paragraph, admit, place))
        if source and not text:
            admit.counts["no text but markup"] += 1
            continue
        document = admit(place, number, title, text)
        if document is not None:
            yield place, document, spans


def _reject_paragraph(admit: Admission, place: str, size: int) -> None:
    found = f"{size} characters of markup that cannot be parsed in bounded time"
    admit.reject(place, "paragraph too long", found, f"links and templates that are closed, of at most {MAX_PARAGRAPH}")


def split(path: str | Path, stream: Stream) -> tuple[bytes, Iterator[Page]]:
    """(everything before the first page, the pages). Memory: the limit of a page and a chunk."""
    parser()  # most pages need it: better to fail now than after some of them
    held = b""
    while OPEN not in held and END not in held:
        more = stream.read(CHUNK)
        if not more or len(held) > MAX_HEADER_BYTES:
            raise CorpusError(f"{path}: found no <page> in the first {len(held)} bytes, wanted a MediaWiki XML dump")
        held += more
    start = held.find(OPEN) if OPEN in held else held.find(END)
    return held[:start], _pages(path, stream, held[start:], start)


def _pages(path: str | Path, stream: Stream, held: bytes, at: int) -> Iterator[Page]:
    """The pages of what is `held`, which begins at byte `at`, and of the rest of the stream."""

    def more() -> bytes:
        if chunk := stream.read(CHUNK):
            return chunk
        raise CorpusError(
            f"{path}: found the end of the file at byte {stream.offset}, wanted </mediawiki>: copy it again"
        )

    number = 0
    while True:
        start = held.find(OPEN)
        if start < 0:
            if END in held:
                return
            at, held = at + max(0, len(held) - len(END)), held[-len(END) :] + more()
            continue
        at, held, number = at + start, held[start:], number + 1
        first, searched, whole = at, 0, True
        while (end := held.find(CLOSE, max(0, searched - len(CLOSE)))) < 0:
            searched = len(held)
            if len(held) > MAX_LINE_BYTES:
                whole = False
                at, held = at + len(held) - len(CLOSE), held[-len(CLOSE) :]
                searched = len(held)
            held += more()
        end += len(CLOSE)
        whole = whole and end <= MAX_LINE_BYTES
        yield Page(number, first, held[:end] if whole else None)
        at, held = at + end, held[end:]


def namespaces_of(path: str | Path, header: bytes) -> Namespaces:
    """The wiki's names of its namespaces, as far as its header gives them."""
    if b"<!DOCTYPE" in header or b"<!ENTITY" in header:
        raise CorpusError(f"{path}: found a DTD, wanted a MediaWiki XML dump, which has none")
    if b"<mediawiki" not in header:
        raise CorpusError(f"{path}: found XML that does not begin with <mediawiki>, wanted a MediaWiki XML dump")
    try:
        root = ElementTree.fromstring(header + END)
    except (ElementTree.ParseError, ValueError) as problem:
        raise CorpusError(f"{path}: found a broken header ({problem}), wanted a MediaWiki XML dump") from problem
    names = {FILE: set(), CATEGORY: set()}
    others = set()
    for namespace in root.iterfind(".//{*}namespace"):
        if namespace.text:
            names.get(namespace.get("key"), others).add(namespace.text.lower())
    return Namespaces.of(names[FILE], names[CATEGORY], others)


def _article(
    where: str, xml: bytes, namespaces: Namespaces, admit: Admission, keep: Collection[str]
) -> tuple[str, str, str] | None:
    """(id, title, wikitext) of a page; None when it is left out, which is counted or rejected here."""
    try:
        page = ElementTree.fromstring(xml)
    except (ElementTree.ParseError, ValueError) as problem:
        admit.reject(where, "broken XML", f"a page that is no XML ({problem})", "well-formed XML of a page")
        return None
    revisions = page.findall("revision")
    if page.find("title") is None or not revisions:
        admit.reject(where, "broken XML", f"a page of {[tag.tag for tag in page]}", "a page with title and revision")
        return None
    title, namespace = page.findtext("title").strip(), page.findtext("ns")
    if namespace is None:  # dumps of old say it in the title only
        inside = namespaces.file | namespaces.category | namespaces.other
        namespace = "0" if title.partition(":")[0].lower() not in inside or ":" not in title else title
    source, model = revisions[-1].findtext("text") or "", revisions[-1].findtext("model")
    if page.find("redirect") is not None or is_redirect(source):
        admit.counts["redirect"] += 1
    elif namespace.strip() != "0" or model not in (None, "", "wikitext"):
        admit.counts["not an article"] += 1
    elif "disambiguation" not in keep and is_disambiguation(title, source):
        admit.counts["disambiguation page"] += 1
    elif "list" not in keep and is_list(title):
        admit.counts["list page"] += 1
    else:
        return (page.findtext("id") or "").strip(), title, source
    return None
