"""Which files of a folder are a corpus: told by their names, in subfolders too, in one order, local or by URL.

A folder holds one format: where it holds several, someone has to say which, because text that nobody reads would be
missed by nobody. What lies beside the corpus is counted: "metadata file" (cards, licences, checksums, indexes of
dumps), "BEIR queries" and "BEIR qrels", "other file" (of no format, or of another than the one that was named), and
"hidden file". Names are data here: no folder is entered through a link.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from realm.text.corpus import CorpusError
from realm.text.formats.admission import Admission
from realm.text.formats.source import file_system, is_url, opening, plain_name

# What kind of file a name says, by the format that reads it; several formats are JSON lines.
SUFFIXES = {
    "jsonl": (".jsonl", ".json", ".ndjson"),
    "dpr": (".tsv",),
    "mediawiki": (".xml",),
    "parquet": (".parquet", ".pq"),
    "folder": (".txt", ".md"),
}
KIND = {"beir": "jsonl", "kilt": "jsonl"}
WIKI_EXTRACTOR = re.compile(r"wiki_\d{2,}")
TFDS = re.compile(r".*\.(array_record|tfrecord)(-|$)")
METADATA = re.compile(
    r"(readme([._-][\w-]{1,12})?|licen[cs]e|copying|notice|citation|changelog)(\.(md|txt|rst|html|cff|bib))?|"
    r"(dataset_infos?|dataset_dict|features|state|croissant)\.json|.*multistream-index.*|"
    r".*(md5|sha\d+)sums?(\.txt|\.json)?"
)
BEIR = re.compile(r"(corpus|queries|qrels)(?=[.-]|$)")
BESIDE = {"queries": "BEIR queries", "qrels": "BEIR qrels"}


class Files(NamedTuple):
    """The files of a folder: their paths in it with "/" between, how many are hidden, and links to folders."""

    root: str
    names: list[str]
    hidden: int
    linked: list[str]

    def path(self, name: str) -> str:
        """Where a file lies: a path, or a URL (of a file in an archive too: zip://name::archive)."""
        if not is_url(self.root):
            return os.path.join(self.root, *name.split("/"))
        system, inner = file_system(self.root)
        full = f"{inner.rstrip('/')}/{name}" if inner else name
        return system.unstrip_protocol(full) + "".join(self.root.partition("::")[1:])

    def count(self, admit: Admission) -> None:
        """Counts what is hidden, and rejects links to folders."""
        if self.hidden:
            admit.counts["hidden file"] += self.hidden
        for link in self.linked:
            admit.reject(link, "linked folder", "a link to a folder, which may lead anywhere", "the folder itself")


def listed(folder: str | Path) -> Files:
    """All files of a folder: those in it by name, then those of its folders. Raises CorpusError if it has no list."""
    root = str(folder)
    names, hidden, linked = [], 0, []
    if is_url(root):
        with opening(root):
            system, inner = file_system(root)
            found = [full.removeprefix(inner.rstrip("/")).lstrip("/") for full in system.find(inner)]
        names = [name for name in found if "/." not in f"/{name}"]
        hidden = len(found) - len(names)
    else:
        for place, folders, files in os.walk(root, onerror=_stop):
            full = [os.path.join(place, name) for name in folders if not name.startswith(".")]
            linked += sorted(name for name in full if os.path.islink(name))
            folders[:] = [name for name in folders if not name.startswith(".")]
            shown = [name for name in files if not name.startswith(".")]
            hidden += len(files) - len(shown)
            names += [os.path.relpath(os.path.join(place, name), root).replace(os.sep, "/") for name in shown]
    return Files(root, sorted(names, key=_order), hidden, linked)


def kind_of(name: str) -> str:
    """The kind of a file by its name: a format of SUFFIXES, "tfds", "metadata file" or "other file"."""
    plain = plain_name(name)
    if METADATA.fullmatch(plain):
        return "metadata file"
    if WIKI_EXTRACTOR.fullmatch(plain):
        return "jsonl"
    if TFDS.match(plain):
        return "tfds"
    return next((kind for kind, suffixes in SUFFIXES.items() if plain.endswith(suffixes)), "other file")


def kind_of_folder(files: Files) -> tuple[str, str]:
    """(the one kind of its files, the first of them); a folder without any is one of texts.

    Raises CorpusError for files of several kinds, and for none that is read.
    """
    found = defaultdict(list)
    beside = _beside_beir(files.names)
    for name in files.names:
        if name not in beside:
            found[kind_of(name)].append(name)
    others = found.pop("other file", [])
    cards = found.pop("metadata file", [])
    if len(found) > 1:
        shown = " and ".join(f"{_named(names)} ({kind})" for kind, names in found.items())
        wanted = f"files of one format: name the one to read, as in {next(iter(found))}:{files.root}, or its files"
        raise CorpusError(f"{files.root}: found {shown}, wanted {wanted}")
    if found:
        return next((kind, names[0]) for kind, names in found.items())
    if others or any(not plain_name(name).endswith(SUFFIXES["folder"]) for name in cards):
        shown = _named([*others, *cards])
        wanted = f"names that end in {', '.join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)}"
        raise CorpusError(f"{files.root}: found no file of a format that is read ({shown}), wanted {wanted}")
    return "folder", ""


def corpus_files(folder: str | Path, format: str, admit: Admission) -> list[str]:
    """The files of a folder that a format reads, in order. The others are counted by reason.

    Raises CorpusError where there are none.
    """
    files, kind = listed(folder), KIND.get(format, format)
    files.count(admit)
    beside = _beside_beir(files.names)
    found = []
    for name in files.names:
        reason = beside.get(name) or kind_of(name)
        if reason == kind:
            found.append(files.path(name))
        else:
            admit.counts[reason if reason in ("metadata file", *BESIDE.values()) else "other file"] += 1
    if not found:
        raise CorpusError(f"{folder}: found no file of {format}, wanted names that end in {', '.join(SUFFIXES[kind])}")
    return found


def _beside_beir(names: Iterable[str]) -> dict[str, str]:
    """What lies beside a BEIR corpus and is none of it, and why: corpus.jsonl, queries.jsonl, qrels/test.tsv."""
    places = [
        (name, "/".join(parts[:depth]), found[1])
        for name in names
        for parts in [name.lower().split("/")]
        for depth, part in enumerate(parts)
        if (found := BEIR.match(part))
    ]
    corpora = {place for _, place, what in places if what == "corpus"}
    return {name: BESIDE[what] for name, place, what in places if what in BESIDE and place in corpora}


def _order(name: str) -> list[tuple[bool, str]]:
    *folders, last = name.split("/")
    return [*((True, folder) for folder in folders), (False, last)]


def _named(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _stop(problem: OSError) -> None:
    found = f"a folder that cannot be listed ({problem.strerror})"
    raise CorpusError(f"{problem.filename}: found {found}, wanted one to read") from problem
