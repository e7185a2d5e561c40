"""`realm data tag`: salient spans of documents by a tagger, as the file that `realm data build --spans` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.arguments import UsageError, at_least_one, leading, make_room, parse, write_answer


@dataclass(frozen=True)
class DataTag:
    """Finds the salient spans of documents. Dates are left to `realm data build`, which always finds them itself."""

    tagger: str
    """A run folder of `realm tagger train`, `spacy:PIPELINE`, `anchors` (links of a dump) or `file:SPANS`."""
    out: Path
    """The spans file to write; packed where its name ends in .gz."""
    format: str | None = None
    """Of all documents; found out by default. FORMAT:PATH names it for one entry."""
    lenient: bool = False
    """Drop and count bad documents rather than stop."""
    limit: int | None = None
    """Only the first so many documents of each entry."""
    overwrite: bool = False
    """Replace the file if it is there."""
    json: Path | None = None
    """Also write the counts (`documents`, spans by kind and tagger, `skips`) to this file."""


def tag(arguments: list[str]) -> int:
    """realm data tag DOCUMENTS --tagger T --out SPANS"""
    entries, rest = leading(arguments)
    if not entries and not {"-h", "--help"} & set(rest):
        raise UsageError("wanted `realm data tag DOCUMENTS... --tagger TAGGER --out SPANS`")
    given = parse(DataTag, rest, "realm data tag DOCUMENTS")
    at_least_one("limit", given.limit)
    if given.out.exists() and not given.overwrite:
        raise UsageError(f"{given.out} exists: choose another --out, or --overwrite to replace it")
    make_room(given.json)
    from experiments.tagger_run import open_tagger
    from realm.text.taggers import DATES, File, tagged, write_spans

    skips: Counter = Counter()
    tagger = open_tagger(given.tagger, lenient=given.lenient, counts=skips)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = tagged(_documents(entries, given, skips), tagger, skips)
    counts = write_spans(found, given.out, tagger.name)
    if isinstance(tagger, File) and given.limit is None:
        skips["of no document"] += tagger.left()
    answer: dict[str, Any] = {"tagger": tagger.name, "counts": dict(counts), "skips": dict(+skips)}
    print(f"{given.out}: spans of {counts.pop('documents')} documents")
    for name, count in counts.most_common():
        print(f"  {name}: {count}" + (" (not written: every build finds them)" if name.endswith(DATES) else ""))
    for reason, count in sorted((+skips).items()):
        print(f"  skip   {reason}: {count}")
    write_answer(given.json, answer)
    return 0


def _documents(entries: list[str], given: DataTag, skips: Counter) -> Iterator[tuple[Any, list]]:
    """Documents of all entries with the spans that their format carries."""
    from experiments.samples import resolve
    from realm.text.build_inputs import entry_of
    from realm.text.formats.admission import SeenIds
    from realm.text.formats.read import documents_with_spans
    from realm.text.table import MANIFEST, VOCABULARY

    seen = SeenIds()
    for entry in map(resolve, entries):
        format, path = entry_of(entry)
        if (Path(path) / MANIFEST).is_file() and (Path(path) / VOCABULARY).is_file():
            raise UsageError(
                f"{path} is a built corpus, whose spans are in it: wanted the documents that it was built from, since "
                "spans count characters of those"
            )
        pairs = documents_with_spans(
            path, format=format or given.format, lenient=given.lenient, counts=skips, seen=seen
        )
        yield from islice(pairs, given.limit)
