"""`realm data tfds`: a corpus and its question sets as a dataset for TensorFlow Datasets, made without TensorFlow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from experiments.arguments import UsageError, make_room, parse, write_answer


@dataclass(frozen=True)
class DataTfds:
    """Writes documents with their spans, and question sets by split, as array_record files for others to load."""

    out: Path
    """The data folder: `realm_corpus/documents/1.0.0` in it, and `realm_corpus/questions/1.0.0`."""
    format: str | None = None
    """Of the documents; found out by default."""
    fields: dict[str, str] = field(default_factory=dict)
    """Names that id, title and text have in the documents."""
    spans: str | None = None
    """A spans file; by default the spans that the documents' format carries itself."""
    questions: dict[str, str] = field(default_factory=dict)
    """SPLIT QUESTIONS ...: question sets of any known format, each a split."""
    lenient: bool = False
    """Drop and count bad documents rather than stop."""
    json: Path | None = None
    """Also write the folders and the skips to this file."""


def tfds(arguments: list[str]) -> int:
    """realm data tfds DOCUMENTS --out DIR"""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        raise UsageError("wanted `realm data tfds DOCUMENTS --out DIR [--spans FILE] [--questions SPLIT FILE ...]`")
    documents, rest = ("", arguments) if arguments[0].startswith("-") else (arguments[0], arguments[1:])
    given = parse(DataTfds, rest, "realm data tfds DOCUMENTS")
    make_room(given.json)
    from experiments.samples import resolve
    from realm.text.build_inputs import entry_of
    from realm.text.formats.tfds_builder import prepare

    skips: Counter = Counter()
    format, path = entry_of(resolve(documents))
    folders = prepare(
        path,
        given.out,
        format=format or given.format,
        fields=given.fields,
        spans=resolve(given.spans),
        questions=given.questions,
        lenient=given.lenient,
        counts=skips,
    )
    for name, folder in folders.items():
        print(f"{name}: {folder}")
    for reason, count in sorted((+skips).items()):
        print(f"  skip   {reason}: {count}")
    write_answer(given.json, {"folders": {name: str(one) for name, one in folders.items()}, "skips": dict(+skips)})
    return 0
