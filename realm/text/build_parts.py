"""The parts of a build on disk: a file each, written whole or not at all, so that a killed build goes on from them.

Where a part ends depends on the documents alone, and what is in it on nothing else: the corpus is the same whoever made
which part, and when. The parts lie beside the corpus folder in NAME.parts, which goes when the corpus is there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from realm.text.assemble import Part, assemble
from realm.text.build_encode import WordEncoder
from realm.text.corpus import CorpusError, Document
from realm.text.spans import RawSpan, SpansError
from realm.text.tokenizer import VocabularyError

PART_CHARACTERS = 1 << 20
PART_DOCUMENTS = 1 << 13
SOURCE, LOCK = "source.json", "lock"
LAYOUT = 3  # of what a part holds; a part of another one is made again
HOPELESS = (CorpusError, SpansError, VocabularyError)  # the input has to change first, and then no part fits

TAKEN = (errno.ENOTEMPTY, errno.EEXIST)  # what a rename to a folder says that another process has made meanwhile


class PartTask(NamedTuple):
    """Documents of one role with their spans, and the file that their part goes to. `config` is a CorpusConfig."""

    path: Path
    role: str
    documents: list[tuple[Document, list[RawSpan]]]
    config: Any


def part_tasks(
    documents: Iterable[tuple[Document, list[RawSpan], str]], folder: Path, config: Any
) -> Iterator[PartTask]:
    """Documents (with spans and role) in parts, one in memory at a time."""
    held: list[tuple[Document, list[RawSpan]]] = []
    size, number, held_role = 0, 0, ""
    for document, spans, role in documents:
        if held and (role != held_role or size >= PART_CHARACTERS or len(held) >= PART_DOCUMENTS):
            yield PartTask(folder / f"part-{number:06d}.npz", held_role, held, config)
            held, size, number = [], 0, number + 1
        held.append((document, spans))
        held_role = role
        size += len(document.text) + len(document.title)
    if held:
        yield PartTask(folder / f"part-{number:06d}.npz", held_role, held, config)


def make_part(encoder: WordEncoder, task: PartTask) -> tuple[Path, str]:
    """Writes the part of a task unless it is there; its file and role."""
    key = _key(task)
    if _read(task.path, key) is None:
        part = assemble(task.documents, task.config, encoder)
        beside = task.path.with_suffix(".writing")
        with open(beside, "wb") as file:
            np.savez(file, facts=_bytes({**part._asdict(), "arrays": None, "key": key}), **part.arrays)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(task.path)
    return task.path, task.role


def read_part(path: Path) -> Part:
    """A part that `make_part` wrote. Raises CorpusError when it is damaged."""
    part = _read(path, None)
    if part is None:
        raise CorpusError(f"{path}: found a damaged part, wanted one as it was written: delete its folder, build again")
    return part


def _read(path: Path, key: str | None) -> Part | None:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(stored["facts"].tobytes())
            if facts.pop("key") != key and key is not None:
                return None
            arrays = {name: stored[name] for name in stored.files if name != "facts"}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    return Part(**{**facts, "arrays": arrays})


def _key(task: PartTask) -> str:
    """What documents a part holds: enough to notice that parts of the same source were cut otherwise."""
    digest = hashlib.blake2b(f"{task.role} {LAYOUT}".encode(), digest_size=16)
    for (number, title, text, heldout), spans in task.documents:
        digest.update("\0".join((number, title, text, f"{heldout} {len(spans)}\0")).encode())
    return digest.hexdigest()


def _bytes(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


@contextmanager
def parts_folder(out: Path, source: dict[str, Any]) -> Iterator[Path]:
    """The folder of the parts of `out`: with those of an earlier build of the same source that did not end.

    It goes when the block ends well or the input is at fault, and stays when the build was stopped. While another
    process builds the same `out` this one gets a folder of its own, which always goes.
    """
    folder = out.with_name(f"{out.name}.parts")
    lock = _lock(folder)
    if lock is None:
        folder = out.with_name(f"{out.name}.parts-{uuid.uuid4().hex[:8]}")
        folder.mkdir()
    else:
        for stale in out.parent.glob(f"{out.name}.partial-*"):  # what a killed build was joining
            shutil.rmtree(stale, ignore_errors=True)
        _keep_same(folder, source)
    keep = False
    try:
        yield folder
    except HOPELESS:
        raise
    except BaseException as problem:
        keep = lock is not None and getattr(problem, "errno", None) not in TAKEN
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.close()


def _lock(folder: Path) -> IO | None:
    """The folder's lock, or None while another process has it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / LOCK, "w")
        except FileNotFoundError:  # the folder has just gone
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / LOCK)):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        file.close()


def _keep_same(folder: Path, source: dict[str, Any]) -> None:
    """Empties the folder unless its parts were made from the same source."""
    wanted = json.dumps(source, sort_keys=True)
    try:
        same = (folder / SOURCE).read_text("utf-8") == wanted
    except OSError:
        same = False
    if not same:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        (folder / SOURCE).write_text(wanted, "utf-8")
