"""What a corpus is built from: entries of any format, their fingerprints, and their documents in one row.

An entry is a path or URL, or FORMAT:PATH where it differs from the others. Dumps go to the workers page by page
(`build_dump`); every other format is read here, as fast as it comes.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from realm.text.build_dump import read_dump
from realm.text.build_workers import Workers
from realm.text.columns import sha256_of
from realm.text.corpus import CorpusError, Document
from realm.text.formats.admission import SeenIds
from realm.text.formats.read import FORMATS, documents_with_spans, format_of
from realm.text.formats.source import file_system, is_folder, is_url, shards
from realm.text.formats.tfds import checked_folder
from realm.text.spans import ANCHORS, DATASET, RawSpan, SpansError, found_by

ROLES = ("documents", "only_retrieved", "only_masked")


def entry_of(entry: str) -> tuple[str | None, str]:
    """(format, path) of an entry "FORMAT:PATH"; the format is None where none is named."""
    name, colon, path = entry.partition(":")
    return (name, path) if colon and name in FORMATS else (None, entry)


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
    if not spans and (format or default) == "tfds":
        path = checked_folder(path)  # a name that is not prepared is no missing file
    try:
        digest = digest_of(path)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or problem
        wanted = f"{name}: JSON lines" + ("" if spans else ", or another format that is read")
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
    config: Any, counts: Counter, workers: Workers, aside: Path
) -> Iterator[tuple[Document, list[RawSpan], str]]:
    """(document, spans that its format carries, role) of all entries of a CorpusConfig, in the order of ROLES.

    Each span has its tagger's name: "anchors", or "dataset" of a prepared one.
    aside: the folder of the build, where pages of dumps that were cleaned are kept until it ends.
    """
    seen = SeenIds()
    for role in ROLES:
        for number, entry in enumerate(getattr(config, role)):
            format, pairs = _entry(entry, config, counts, seen, workers, aside / f"pages-{role}-{number}")
            tagger = DATASET if format == "tfds" else ANCHORS
            for document, spans in islice(pairs, config.limit):
                yield document, found_by(spans, tagger), role


def _entry(
    entry: str, config: Any, counts: Counter, seen: SeenIds, workers: Workers, aside: Path
) -> tuple[str, Iterator[tuple[Document, list[RawSpan]]]]:
    named, path = entry_of(entry)
    fields = None if named else dict(config.fields)
    format = named or config.format or format_of(path, fields)
    if format != "mediawiki" or fields:
        keep = config.keep if format == "mediawiki" else ()
        lenient = config.lenient
        return format, documents_with_spans(
            path, format=format, fields=fields, keep=keep, lenient=lenient, counts=counts, seen=seen
        )
    paths = shards(path, FORMATS[format]) if is_folder(path) else [path]
    return format, chain.from_iterable(
        read_dump(one, config.keep, config.lenient, counts, seen, workers, aside / str(number))
        for number, one in enumerate(paths)
    )
