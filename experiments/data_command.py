"""`realm data build | inspect | edit | tag | embed | dates | tfds`: documents to a corpus folder, what is in one, a new
version of one and its index, salient spans, the date finder beside labels, and a corpus as a TFDS dataset."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.arguments import HELP_FLAGS, UsageError, at_least_one, make_room, parse, write_answer
from experiments.data_stop import Stopped, going_on, stoppable

USAGE = """\
wanted one of
  realm data build DOCUMENTS... --out DIR                  JSON lines, BEIR, KILT, DPR, MediaWiki dumps, Parquet, ...
  realm data inspect CORPUS                                counts, lengths, what was left out and why, sample blocks
  realm data edit CORPUS --add FILE --delete ID --replace FILE --out DIR
  realm data tag DOCUMENTS... --tagger TAGGER --out SPANS  salient spans by a trained tagger, spaCy, links or a file
  realm data embed CORPUS --like RUN --out DIR             the index of an edited corpus
  realm data dates DOCUMENTS... --spans FILES              precision and recall of the date finder against labels
  realm data tfds DOCUMENTS --out DIR                      a corpus and question sets as array_record, for others
(each with --help)"""


@dataclass(frozen=True)
class DataBuild:
    """Builds a corpus folder from documents."""

    out: Path
    """Folder to write; an existing one of the same source and fields is reused. A build that was stopped goes on."""
    workers: int | None = None
    """Processes; by default one for each core. The corpus is the same, byte for byte, whatever their number."""
    overwrite: bool = False
    """Replace a corpus folder of another source."""
    json: Path | None = None
    """Also write the counts (`documents`, `blocks`, `spans`, `skips`, ...; the manifest) to this file."""


@dataclass(frozen=True)
class DataInspect:
    """Shows what is in a corpus folder."""

    blocks: int = 3
    """How many sample blocks."""
    seed: int = 0
    """Which ones: another number from 0 up, other blocks."""
    verify: bool = False
    """Read every file and compare its sha256 with the manifest's."""
    residue: bool = False
    """Look in every block for what cleaning may have left of markup ([[, {{, '', |-, <ref, ...); name those blocks."""
    json: Path | None = None
    """Also write all of it to this file: `counts`, `lengths`, `skips`, `kinds`, `taggers`, `warnings`, `lineage`,
    `residue` (null if not looked for), `blocks`."""


@dataclass(frozen=True)
class DataEdit:
    """Makes a new version of a corpus: blocks of documents that stay are copied, and keep their vectors."""

    out: Path
    """Folder of the new version."""
    workers: int | None = None
    """Processes; by default one for each core."""
    overwrite: bool = False
    """Replace a corpus folder of another source."""
    json: Path | None = None
    """Also write the manifest of the new version to this file; `lineage` says what changed."""


def data(arguments: list[str]) -> int:
    """realm data build | inspect | edit | tag | embed | dates | tfds"""
    if not arguments or arguments[0] not in VERBS:
        raise UsageError(USAGE)
    try:
        with stoppable():
            return VERBS[arguments[0]](arguments[1:])
    except Stopped as stop:
        print(f"realm: {stop.told()}", file=sys.stderr)
        return 128 + stop.number


def build(arguments: list[str]) -> int:
    """realm data build DOCUMENTS --out DIR"""
    from experiments.data_reading import TOLD_OF_BUILD, described
    from experiments.data_show import show_manifest
    from experiments.samples import resolved
    from realm.text.blocks import CorpusConfig, build_corpus

    named, about = _named("--documents", arguments), described(DataBuild)
    given = parse(DataBuild, named, "realm data build DOCUMENTS", about, TOLD_OF_BUILD, corpus=(CorpusConfig, None))
    at_least_one("workers", given.workers)
    make_room(given.json)
    fresh, began = given.overwrite or not given.out.exists(), time.monotonic()
    with going_on(given.out):
        table = build_corpus(resolved(given.corpus), given.out, overwrite=given.overwrite, workers=given.workers)
    show_manifest(table, time.monotonic() - began if fresh else None)
    write_answer(given.json, table.manifest)
    return 0


def inspect(arguments: list[str]) -> int:
    """realm data inspect CORPUS"""
    from experiments.data_show import inspected, show_inspected
    from realm.text.table import BlockTable

    corpus, rest = _corpus("inspect", arguments)
    given = parse(DataInspect, rest, "realm data inspect CORPUS")
    at_least_one("blocks", given.blocks)
    if given.seed < 0:
        raise UsageError(f"found --seed {given.seed}, wanted 0 or more")
    make_room(given.json)
    found = inspected(BlockTable.open(corpus, verify=given.verify), given.blocks, given.seed, given.residue)
    show_inspected(found)
    write_answer(given.json, found)
    return 0


def edit(arguments: list[str]) -> int:
    """realm data edit CORPUS --add FILE --delete ID --replace FILE --out DIR"""
    from experiments.data_reading import TOLD_OF_EDIT, described
    from experiments.data_show import show_manifest
    from realm.text.edit import CorpusEdit, edit_corpus

    corpus, rest = _corpus("edit", arguments)
    about = described(DataEdit)
    given = parse(DataEdit, rest, "realm data edit CORPUS", about, TOLD_OF_EDIT, edit=(CorpusEdit, None))
    at_least_one("workers", given.workers)
    make_room(given.json)
    change = replace(given.edit, delete=tuple(deleted_ids(given.edit.delete)))
    with going_on(given.out):
        table = edit_corpus(corpus, change, given.out, overwrite=given.overwrite, workers=given.workers)
    show_manifest(table)
    write_answer(given.json, table.manifest)
    return 0


def tag(arguments: list[str]) -> int:
    """realm data tag DOCUMENTS --tagger TAGGER --out SPANS"""
    from experiments.data_tag import tag as run

    return run(arguments)


def embed(arguments: list[str]) -> int:
    """realm data embed CORPUS --like RUN --out DIR"""
    from experiments.data_embed import embed as run

    return run(arguments)


def dates(arguments: list[str]) -> int:
    """realm data dates DOCUMENTS --spans FILES"""
    from experiments.data_dates import dates as run

    return run(arguments)


def tfds(arguments: list[str]) -> int:
    """realm data tfds DOCUMENTS --out DIR"""
    from experiments.data_tfds import tfds as run

    return run(arguments)


VERBS: dict[str, Callable[[list[str]], int]] = {
    "build": build,
    "inspect": inspect,
    "edit": edit,
    "tag": tag,
    "embed": embed,
    "dates": dates,
    "tfds": tfds,
}


def _named(option: str, arguments: list[str]) -> list[str]:
    """Arguments whose first ones need no option's name."""
    return [option, *arguments] if arguments and not arguments[0].startswith("-") else arguments


def _corpus(verb: str, arguments: list[str]) -> tuple[Path, list[str]]:
    if arguments and arguments[0] in HELP_FLAGS:
        return Path(), arguments
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"wanted `realm data {verb} CORPUS`, CORPUS being a folder that `realm data build` wrote")
    return Path(arguments[0]), arguments[1:]


def deleted_ids(given: tuple[str, ...]) -> Iterator[str]:
    """The ids of `--delete ID`, `--delete @FILE` and `--delete @@...`, an id that begins with @."""
    for one in given:
        if one.startswith("@@"):
            yield one[1:]
        elif one.startswith("@"):
            yield from _ids_in(one[1:])
        else:
            yield one


def _ids_in(path: str) -> list[str]:
    """The ids of a file. Lines end with line feeds alone: an id may hold any other character that breaks lines."""
    wanted = "wanted a file of ids, one a line (an id that begins with @ is written @@...)"
    try:
        raw = Path(path).read_bytes() if path else b""
        text = raw.decode("utf-8-sig")
    except OSError as problem:
        raise UsageError(f"{path}: found no readable file ({problem.strerror}), {wanted}") from problem
    except UnicodeDecodeError as problem:
        line, byte = problem.object.count(b"\n", 0, problem.start) + 1, problem.object[problem.start]
        raise UsageError(f"{path}:{line}: found the byte 0x{byte:02x}, which is not UTF-8, {wanted}") from problem
    ids = [line.removesuffix("\r") for line in text.split("\n")]
    if not any(ids):
        raise UsageError(f"found no id in --delete @{path}, {wanted}")
    return [one for one in ids if one]
