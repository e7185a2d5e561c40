"""`realm data tfds`: a corpus and its question sets as a dataset for TensorFlow Datasets, made without TensorFlow."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from experiments.arguments import HELP_FLAGS, UsageError, make_room, parse, write_answer
from experiments.data_reading import TOLD, Reading, described, told_skips


@dataclass(frozen=True)
class DataTfds:
    """Writes documents with their spans, and question sets by split, as array_record files for others to load."""

    out: Path
    """The data folder: `realm_corpus/documents/VERSION` in it, and `realm_corpus/questions/VERSION`."""
    spans: str | None = None
    """A spans file; by default the spans that the documents' format carries itself."""
    questions: dict[str, str] = field(default_factory=dict)
    """SPLIT QUESTIONS ...: question sets of any known format, each a split, whose name has letters, digits, _ and -."""
    json: Path | None = None
    """Also write `folders`, `skips` and `warnings` to this file."""


def tfds(arguments: list[str]) -> int:
    """realm data tfds DOCUMENTS --out DIR"""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in HELP_FLAGS):
        raise UsageError("wanted `realm data tfds DOCUMENTS --out DIR [--spans FILE] [--questions SPLIT FILE ...]`")
    documents, rest = ("", arguments) if arguments[0].startswith("-") else (arguments[0], arguments[1:])
    about = described(DataTfds)
    given = parse(DataTfds, rest, "realm data tfds DOCUMENTS", about, TOLD, reading=(Reading, None))
    make_room(given.json)
    from experiments.samples import resolve
    from realm.text.formats.tfds_builder import prepare

    skips: Counter = Counter()
    spans = resolve(given.spans)
    reading = asdict(given.reading)
    folders = prepare(resolve(documents), given.out, spans=spans, questions=given.questions, counts=skips, **reading)
    for name, folder in folders.items():
        print(f"{name}: {folder}")
    answer = {"folders": {name: str(one) for name, one in folders.items()}}
    write_answer(given.json, answer | told_skips(skips))
    return 0
