"""How documents are read, for every `realm data` verb: the same options with the same help, and what was left out.

An entry is a file, folder or URL, FORMAT:PATH, or `sample:NAME` of the package.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from realm.text.build_inputs import ABSENT, Entry, opened
from realm.text.formats.read import FORMATS, KEEP, WITH_SPANS, WITHOUT_FIELDS

DOCUMENTS = f"""\
DOCUMENTS are files, folders or URLs, packed or not, whose format is told by what is in them; FORMAT:PATH names it for
one entry, tfds:NAME[/CONFIG] is a dataset that TensorFlow Datasets has prepared, sample:corpus comes with the package.
FORMAT is one of {", ".join(FORMATS)}."""
TOLD = {
    "format": f"Format of all documents that name none as FORMAT:PATH; found out by default. One of "
    f"{', '.join(FORMATS)}.",
    "fields": "NAME FIELD ...: under which FIELD the documents have id, title, text and heldout, as in --fields id _id "
    'text page.body (dots lead inwards, the id "#" numbers the rows); split chooses one of a prepared dataset. They '
    "hold for entries that name no format, and for all where each names one; "
    f"{', '.join(sorted(WITHOUT_FIELDS))} have none.",
    "keep": f"Kinds of pages of a dump that are left out otherwise: {', '.join(sorted(KEEP))}.",
    "lenient": "Drop and count bad documents rather than stop.",
}
TOLD_OF_BUILD = TOLD | {
    "documents": "Files, folders or URLs, FORMAT:PATH, tfds:NAME or sample:NAME, both masked and retrieved: what "
    "stands before the first option.",
    "spans": 'Spans files, JSON lines of {"id", "spans": [[start, end, label], ...]} as `realm data tag` writes them, '
    "beside what a format marks itself and the dates that are always found.",
}
TOLD_OF_EDIT = TOLD | {
    "add": "DOCUMENTS whose ids the corpus has not.",
    "replace": "DOCUMENTS whose ids the corpus has, in place of those.",
    "delete": "Ids of documents; @FILE holds ids, one a line, and an id that begins with @ is written @@...",
    "spans": "Spans files of the added and replaced documents, as `realm data build` takes them.",
    "lenient": "Drop and count bad documents, and ids that do not fit, rather than stop.",
}


@dataclass(frozen=True)
class Reading:
    """How documents are read, as CorpusConfig says it: with the same options a verb reads what a build reads."""

    format: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    lenient: bool = False


def described(kind: type) -> str:
    """The description of a verb that reads documents."""
    return f"{kind.__doc__}\n\n{DOCUMENTS}"


def entries_of(given: list[str], reading: Reading) -> list[Entry]:
    """What the entries of a command turn out to be. Raises CorpusError."""
    from experiments.samples import resolve

    return opened([resolve(one) for one in given], reading)


def without_links(entries: list[Entry]) -> list[str]:
    """ "PATH (FORMAT)" of the entries whose format marks no spans."""
    return [f"{one.path} ({one.format})" for one in entries if one.format not in WITH_SPANS]


def told_skips(skips: Counter) -> dict[str, Any]:
    """Prints what was left out by reason, and warnings; all as `--json` has it."""
    untitled = skips.pop("missing title", 0)
    if untitled:
        print(f"  titles missing: {untitled}")
    warnings = sorted(reason for reason in +skips if reason.startswith(ABSENT))
    left_out = {reason: count for reason, count in sorted((+skips).items()) if reason not in warnings}
    for reason, count in left_out.items():
        print(f"  skip   {reason}: {count}")
    for warning in warnings:
        print(f"  WARNING {warning}")
    return {"titles_missing": untitled, "skips": left_out, "warnings": warnings}
