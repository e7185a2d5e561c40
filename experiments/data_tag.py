"""`realm data tag`: salient spans of documents by a tagger, as the file that `realm data build --spans` reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.arguments import HELP_FLAGS, UsageError, at_least_one, leading, make_room, parse, write_answer
from experiments.data_reading import TOLD, Reading, described, entries_of, told_skips, without_links
from realm.text.build_inputs import plain_documents
from realm.text.formats.read import WITH_SPANS


@dataclass(frozen=True)
class DataTag:
    """Finds the salient spans of documents. Dates are left to `realm data build`, which always finds them itself."""

    tagger: str
    """A run folder of `realm tagger train`, `spacy:PIPELINE`, `file:SPANS`, or `anchors`: what the format marks."""
    out: Path
    """The spans file to write; packed where its name ends in .gz."""
    limit: int | None = None
    """Only the first so many documents of each entry."""
    overwrite: bool = False
    """Replace the file if it is there."""
    json: Path | None = None
    """Also write the counts (`documents`, spans by kind and tagger), `skips` and `warnings` to this file."""


def tag(arguments: list[str]) -> int:
    """realm data tag DOCUMENTS --tagger T --out SPANS"""
    entries, rest = leading(arguments)
    if not entries and not HELP_FLAGS & set(rest):
        raise UsageError("wanted `realm data tag DOCUMENTS... --tagger TAGGER --out SPANS`")
    given = parse(DataTag, rest, "realm data tag DOCUMENTS", described(DataTag), TOLD, reading=(Reading, None))
    at_least_one("limit", given.limit)
    if given.out.exists() and not given.overwrite:
        raise UsageError(f"{given.out} exists: choose another --out, or --overwrite to replace it")
    make_room(given.json)
    opened = entries_of(entries, given.reading)
    from experiments.tagger_run import open_tagger
    from realm.text.taggers import DATES, Anchors, File, tagged, write_spans

    skips: Counter = Counter()
    tagger = open_tagger(given.tagger, lenient=given.reading.lenient, counts=skips)
    if isinstance(tagger, Anchors) and (plain := without_links(opened)):
        wanted = f"documents of {', '.join(sorted(WITH_SPANS))}, or another tagger"
        raise UsageError(f"{', '.join(plain)}: found a format that marks no links, wanted {wanted}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found = tagged(plain_documents(opened, given.reading, skips, given.limit), tagger, skips)
    counts = write_spans(found, given.out, tagger.name)
    if isinstance(tagger, File) and given.limit is None:
        skips["of no document"] += tagger.left()
    answer: dict[str, Any] = {"tagger": tagger.name, "counts": dict(counts)}
    documents = counts.pop("documents")
    print(f"{given.out}: spans of {documents} documents")
    for name, count in counts.most_common():
        print(f"  {name}: {count}" + (" (not written: every build finds them)" if name.endswith(DATES) else ""))
    answer |= told_skips(skips)
    if documents and all(name.endswith(f" by {DATES}") for name in counts):
        answer["warnings"].append(f"{tagger.name} found no span in any of the {documents} documents")
        print(f"  WARNING {answer['warnings'][-1]}")
    write_answer(given.json, answer)
    return 0
