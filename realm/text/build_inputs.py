"""What a corpus is built from: entries of any format, their fingerprints, and their documents in one row.

An entry is a path or URL, or FORMAT:PATH where it differs from the others. The names of fields hold for entries that
name no format, and for all where each names one. Dumps go to the workers page by page (`build_dump`); every other
format is read here, as fast as it comes.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from realm.text.build_dump import read_dump
from realm.text.build_workers import Workers
from realm.text.columns import sha256_of
from realm.text.corpus import CorpusError, Document
from realm.text.formats.admission import Admission, SeenIds
from realm.text.formats.listing import corpus_files
from realm.text.formats.read import FORMATS, documents_with_spans, format_of, hint_of
from realm.text.formats.source import file_system, is_folder, is_url
from realm.text.formats.tfds import checked_folder
from realm.text.spans import ANCHORS, DATASET, RawSpan, SpansError, found_by
from realm.text.table import MANIFEST, VOCABULARY

ROLES = ("documents", "only_retrieved", "only_masked")
DUMP = "mediawiki"  # the format whose pages workers clean
ABSENT = "no document with "  # begins what `counts` hold of a field that was named and never met: a warning, no loss


class Entry(NamedTuple):
    """What an entry turned out to be; fields: the names that hold for it."""

    path: str
    format: str
    fields: dict[str, str]


def entry_of(entry: str) -> tuple[str | None, str]:
    """(format, path) of an entry "FORMAT:PATH"; the format is None where none is named."""
    name, colon, path = entry.partition(":")
    return (name, path) if colon and name in FORMATS else (None, entry)


def opened(entries: Sequence[str], reading: Any, among: Sequence[str] | None = None) -> list[Entry]:
    """Entries with the format and the fields that `reading` (a CorpusConfig, or anything with `format`, `fields` and
    `keep`) says or their content shows. among: all entries that it was said of, by default these.

    Raises CorpusError for what cannot be opened or told, for a corpus that is built already, and for pages to keep
    where nothing is a dump.
    """
    among = entries if among is None else among
    all_named = all(entry_of(one)[0] for one in among)
    found = {}
    for entry in dict.fromkeys([*entries, *(among if reading.keep else ())]):
        named, path = entry_of(entry)
        refuse_built(path)
        fields = dict(reading.fields) if all_named or not named else {}
        found[entry] = Entry(path, named or reading.format or format_of(path, fields), fields)
    if reading.keep and not any(one.format == DUMP for one in found.values()):
        formats = ", ".join(sorted({one.format for one in found.values()}))
        wanted = f"a dump ({DUMP}) among the documents: no other format leaves pages out"
        raise CorpusError(f"found keep={tuple(reading.keep)!r} for {formats}, wanted {wanted}")
    return [found[entry] for entry in entries]


def refuse_built(path: str) -> None:
    """Raises CorpusError for a corpus folder: blocks are no documents."""
    if all(os.path.isfile(os.path.join(path, name)) for name in (MANIFEST, VOCABULARY)):
        raise CorpusError(
            f"{path}: found a built corpus, wanted the documents that it was built from: spans count characters of "
            "those, and blocks are cut from them (`realm data edit` changes a built corpus)"
        )


def digest_of(path: str) -> str:
    """The sha256 of a file, or of the names and sha256 of all files of a folder; local or by URL. Raises OSError."""
    if not is_folder(path):
        return _sha256(path)
    whole = hashlib.sha256()
    for name, full in _files(path):
        whole.update(f"{name}\n{_sha256(full)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def fingerprint_of(entry: str, name: str, default: str | None = None) -> str:
    """What decides which documents an entry of the field `name` holds: its digest, and the format it names.

    default: the format of entries that name none, None to find out. Raises CorpusError, or SpansError for "spans",
    where there is nothing to read.
    """
    spans = name == "spans"
    format, path = (None, entry) if spans else entry_of(entry)
    if not spans:
        refuse_built(path)
    if not spans and (format or default) == "tfds":
        path = checked_folder(path)  # a name that is not prepared is no missing file
    try:
        digest = digest_of(path)
    except CorpusError as problem:  # it says what is wrong with the path and what was wanted
        if spans:
            raise SpansError(str(problem)) from problem
        raise
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        wanted = f"{name}: JSON lines" + ("" if spans else ", or another format that is read")
        wanted = ", ".join(filter(None, (wanted, "" if spans else hint_of(path))))
        raise (SpansError if spans else CorpusError)(
            f"{path}: found no readable file ({why}), wanted {wanted}"
        ) from problem
    return f"{format}:{digest}" if format else digest


def _files(folder: str) -> Iterator[tuple[str, str]]:
    if is_url(folder):
        system, root = file_system(folder)
        for full in sorted(system.find(root)):
            yield full.removeprefix(root), system.unstrip_protocol(full)
        return
    for inner, names, files in os.walk(folder):
        names.sort()
        for name in sorted(files):
            full = os.path.join(inner, name)
            if os.path.isfile(full):
                yield os.path.relpath(full, folder), full


def _sha256(path: str) -> str:
    if not is_url(path):
        return sha256_of(path)
    system, inner = file_system(path)
    with system.open(inner, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def documents(
    config: Any, counts: Counter, workers: Workers, aside: Path, among: Sequence[str] | None = None
) -> Iterator[tuple[Document, list[RawSpan], str]]:
    """(document, spans that its format carries, role) of all entries of a CorpusConfig, in the order of ROLES.

    Each span has its tagger's name: "anchors", or "dataset" of a prepared one that names none.
    aside: the folder of the build, where pages of dumps that were cleaned are kept until it ends. among: as `opened`.
    """
    seen, met = SeenIds(), _Met(config, config.limit)
    given = [(role, number, one) for role in ROLES for number, one in enumerate(getattr(config, role))]
    for (role, number, _), entry in zip(given, opened([one for _, _, one in given], config, among), strict=True):
        if entry.format != DUMP or entry.fields:
            pairs = _read(entry, config, counts, seen)
        else:
            pairs = _dump(entry.path, config, counts, seen, workers, aside / f"pages-{role}-{number}")
        for document, spans in met.of(entry, pairs):
            yield document, spans, role
    met.complain(counts)


def plain_documents(
    entries: Sequence[Entry], reading: Any, counts: Counter, limit: int | None = None
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """As `documents`, of entries that `opened` gave, read in this process. reading: has `keep` and `lenient`."""
    seen, met = SeenIds(), _Met(reading, limit)
    for entry in entries:
        yield from met.of(entry, _read(entry, reading, counts, seen))
    met.complain(counts)


class _Met:
    """Which of the fields that were named some document has. Readers notice a text or an id that is not there; a title
    may be missing, and so may the mark of a held-out document: that none has one is known at the end only."""

    def __init__(self, reading: Any, limit: int | None):
        self._lenient, self._limit = reading.lenient, limit
        self._named: dict[str, str] = {}
        self._found: set[str] = set()
        self._read, self._cut, self._paths = 0, False, []

    def of(
        self, entry: Entry, pairs: Iterator[tuple[Document, list[RawSpan]]]
    ) -> Iterator[tuple[Document, list[RawSpan]]]:
        """The documents of an entry, no more than the limit, with the names of their spans' taggers."""
        tagger = DATASET if entry.format == "tfds" else ANCHORS
        named = {name: entry.fields[name] for name in ("title", "heldout") if name in entry.fields}
        self._named |= named
        self._paths += [entry.path] if named else []
        read = 0
        for document, spans in islice(pairs, self._limit):
            read += 1
            self._found |= {name for name in named if getattr(document, name)}
            yield document, found_by(spans, tagger)
        self._read += read if named else 0
        self._cut |= bool(named) and read == self._limit

    def complain(self, counts: Counter) -> None:
        """Raises CorpusError for a title that no document has under its name; where that may be, it is a count: in
        lenient reading, where a limit ended the reading, and for documents held out, since all may say no."""
        for name in sorted(self._named.keys() - self._found) if self._read else ():
            where = f"{', '.join(self._paths)}: found {self._read} documents"
            what = f"a {name} under the name {self._named[name]!r}"
            if name == "title" and not (self._lenient or self._cut):
                raise CorpusError(f"{where} and none with {what}, wanted a name that is there (--fields {name} NAME)")
            counts[f"{ABSENT}{what}"] += self._read


def _read(entry: Entry, reading: Any, counts: Counter, seen: SeenIds) -> Iterator[tuple[Document, list[RawSpan]]]:
    keep = reading.keep if entry.format == DUMP else ()
    how = {"fields": entry.fields, "keep": keep, "lenient": reading.lenient, "counts": counts, "seen": seen}
    return documents_with_spans(entry.path, format=entry.format, **how)


def _dump(
    path: str, config: Any, counts: Counter, seen: SeenIds, workers: Workers, aside: Path
) -> Iterator[tuple[Document, list[RawSpan]]]:
    paths = corpus_files(path, DUMP, Admission(config.lenient, counts, seen)) if is_folder(path) else [path]
    return chain.from_iterable(
        read_dump(one, config.keep, config.lenient, counts, seen, workers, aside / str(number))
        for number, one in enumerate(paths)
    )
