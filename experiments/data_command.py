"""`realm data build`: documents to a corpus folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.arguments import UsageError, make_room, parse, write_answer


@dataclass(frozen=True)
class DataBuild:
    """Builds a corpus folder from documents."""

    out: Path
    """Folder to write; an existing one of the same source and fields is reused."""
    json: Path | None = None
    """Also write the counts (`documents`, `blocks`, `spans`, `skips`, ...; the manifest) to this file."""


def data(arguments: list[str]) -> int:
    """realm data build DOCUMENTS --out DIR"""
    if not arguments or arguments[0] != "build":
        raise UsageError("wanted `realm data build DOCUMENTS --out DIR` (realm data build --help)")
    from experiments.show import show_manifest
    from realm.text.blocks import CorpusConfig, build_corpus

    rest = arguments[1:]
    if rest and not rest[0].startswith("-"):
        rest = ["--documents", *rest]
    given = parse(DataBuild, rest, "realm data build DOCUMENTS", corpus=(CorpusConfig, None))
    make_room(given.json)
    table = build_corpus(given.corpus, given.out)
    show_manifest(table)
    write_answer(given.json, table.manifest)
    return 0
