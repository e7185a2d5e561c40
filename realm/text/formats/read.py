"""One way in for every format: told by name, or found out from the first bytes and then the file's name."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from realm.text.corpus import CorpusError, Document
from realm.text.formats import dpr, folder, jsonl, kilt, listing, mediawiki, parquet, source, tfds
from realm.text.formats.admission import Admission, SeenIds
from realm.text.spans import RawSpan

# For each format the suffixes that its files usually have; none where the input is a folder.
FORMATS = {
    **{name: listing.SUFFIXES[listing.KIND.get(name, name)] for name in ("jsonl", "beir", "kilt", "dpr")},
    **{name: listing.SUFFIXES[name] for name in ("mediawiki", "parquet")},
    "folder": (),
    "tfds": (),
}
WITH_SPANS = frozenset({"kilt", "mediawiki", "tfds"})
WITHOUT_FIELDS = frozenset({"kilt", "mediawiki", "folder"})
EXTRA_FIELDS = {"jsonl": "heldout", "beir": "heldout", "tfds": tfds.SPLIT}
KEEP = frozenset({"disambiguation", "list"})
# A dataset's name as TensorFlow Datasets writes it: NAME[/CONFIG][/VERSION].
TFDS_NAME = re.compile(r"[a-z][a-z0-9_]*(/(\d{8}\.)?[\w-]+)?(/\d+\.\d+\.\d+)?")


def read_documents(
    path: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    lenient: bool = False,
    counts: Counter | None = None,
    seen: SeenIds | None = None,
) -> Iterator[Document]:
    """The documents of a file, folder or fsspec URL, in its order, one in memory at a time.

    format: one of FORMATS, None to find out. A folder of JSON lines, TSV, XML or Parquet files is read file by file in
    the order of their names, those of its folders after its own, ids unique over all; what is none of the corpus is
    counted (`listing`), and a folder of several formats needs `format`. fields: which names id, title and text have in
    the input, where a format has names; dots lead into inner objects, the id "#" numbers the rows. keep:
    "disambiguation" and "list" pages of a dump, which are left out otherwise; refused for a format that leaves out
    none. counts: gets what was dropped by reason, and what was left out by design (`admission.BY_DESIGN`). seen: ids
    read before, to keep them unique over several calls. Raises CorpusError, "place: found ..., wanted ...": for
    anything bad when strict, and always for input that cannot be opened, is damaged or cut short, is no corpus, or
    whose format is not known.
    """
    pairs = documents_with_spans(
        path, format=format, fields=fields, keep=keep, lenient=lenient, counts=counts, seen=seen
    )
    return (document for document, _ in pairs)


def read_with_spans(
    path: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    lenient: bool = False,
    counts: Counter | None = None,
    seen: SeenIds | None = None,
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """As `read_documents`, each with the entity mentions that its format carries: links, or spans of a tagger.

    Spans are (start, end, label) in characters of the document's text. Raises CorpusError also for a format that
    carries none.
    """
    format = format or format_of(path, fields)
    if format not in WITH_SPANS:
        raise CorpusError(f"{path}: found the format {format}, which has no spans, wanted one of {sorted(WITH_SPANS)}")
    return documents_with_spans(
        path, format=format, fields=fields, keep=keep, lenient=lenient, counts=counts, seen=seen
    )


def documents_with_spans(
    path: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    lenient: bool = False,
    counts: Counter | None = None,
    seen: SeenIds | None = None,
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """Every format in one shape; no spans where a format has none. Arguments are checked at the call."""
    format = format or format_of(path, fields)
    if format not in FORMATS:
        raise CorpusError(f"found format={format!r}, wanted one of {sorted(FORMATS)}")
    known = {"id", "title", "text", EXTRA_FIELDS.get(format, "id")}
    if fields and (format in WITHOUT_FIELDS or not known >= set(fields)):
        names = "none" if format in WITHOUT_FIELDS else sorted(known)
        raise CorpusError(f"found fields={dict(fields)!r} for the format {format}, wanted {names}")
    if not KEEP >= set(keep):
        raise CorpusError(f"found keep={keep!r}, wanted some of {sorted(KEEP)}")
    if keep and format != "mediawiki":
        found = f"keep={tuple(keep)!r} for the format {format}, which leaves out no such pages"
        raise CorpusError(f"{path}: found {found}, wanted it for a dump (mediawiki) only")
    admit = Admission(lenient, counts, seen)
    in_folder = FORMATS[format] and source.is_folder(path)
    paths = listing.corpus_files(path, format, admit) if in_folder else [path]
    if format == "beir":
        for one in paths:
            jsonl.refuse_queries(one)
    return _read(paths, format, fields or {}, keep, admit)


def _read(
    paths: list[str | Path], format: str, fields: Mapping[str, str], keep: Collection[str], admit: Admission
) -> Iterator[tuple[Document, list[RawSpan]]]:
    for path in paths:
        match format:
            case "jsonl":
                yield from jsonl.read_jsonl(path, admit, {**jsonl.FIELDS, **fields})
            case "beir":
                yield from jsonl.read_jsonl(path, admit, {**jsonl.BEIR_FIELDS, **fields})
            case "dpr":
                yield from dpr.read_dpr(path, admit, {**dpr.FIELDS, **fields})
            case "parquet":
                yield from parquet.read_parquet(path, admit, {**parquet.FIELDS, **fields})
            case "kilt":
                yield from kilt.read_kilt(path, admit)
            case "mediawiki":
                yield from mediawiki.read_mediawiki(path, admit, keep)
            case "folder":
                yield from folder.read_folder(path, admit)
            case "tfds":
                yield from tfds.read_tfds(path, admit, fields)


def format_of(path: str | Path, fields: Mapping[str, str] | None = None) -> str:
    """The format of a file or folder. Raises CorpusError when it cannot be told, or the input cannot be opened."""
    if source.is_folder(path):
        return _format_of_folder(path, fields)
    try:
        with source.open_bytes(path) as stored:
            magic = stored.read(4)
    except CorpusError as problem:
        if hint := hint_of(path):
            raise CorpusError(f"{problem}, {hint}") from problem
        raise
    if magic == b"PAR1":
        return "parquet"
    name = source.plain_name(path)
    head = source.head_of(path).removeprefix(source.BOM).lstrip()
    if head.startswith(b"<") and (b"<mediawiki" in head or name.endswith(".xml")):
        return "mediawiki"
    line = head.partition(b"\n")[0].rstrip(b"\r")
    if head.startswith(b"{") or name.endswith(FORMATS["jsonl"]):
        return _kind_of_json(line, fields)
    if name.endswith(".tsv") or {b"id", b"text"} <= set(line.split(b"\t")):
        return "dpr"
    for format in ("parquet", "mediawiki"):  # to be told there what is wrong with them
        if name.endswith(FORMATS[format]):
            return format
    if head.startswith(b"<doc "):
        raise CorpusError(f"{path}: found <doc> pages of WikiExtractor, wanted its JSON lines: run it with --json")
    found = f"a file that begins with {head[:40]!r}"
    raise CorpusError(f"{path}: found {found}, wanted a format that can be told; name one of {sorted(FORMATS)}")


def hint_of(path: str | Path) -> str:
    """What else a path that is not there can have meant; "" where it cannot be a dataset's name."""
    known = not os.path.exists(path) and TFDS_NAME.fullmatch(str(path))
    return f"or tfds:{path} for a dataset that TensorFlow Datasets has prepared" if known else ""


def _kind_of_json(line: bytes, fields: Mapping[str, str] | None) -> str:
    """Plain JSON lines, or one of the two corpora whose first line gives them away."""
    names = jsonl.names_in(line)
    if "wikipedia_title" in names and not fields:
        return "kilt"
    return "beir" if "_id" in names and "id" not in names else "jsonl"


def _format_of_folder(path: str | Path, fields: Mapping[str, str] | None) -> str:
    files = listing.listed(path)
    if tfds.INFO in files.names:
        return "tfds"
    kind, first = listing.kind_of_folder(files)
    return format_of(files.path(first), fields) if kind in FORMATS and FORMATS[kind] else kind
