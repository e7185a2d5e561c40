"""A folder of text files (.txt, .md): one document a file, the relative path its id, the name's stem its title.

Names are data here and never opened as anything but what the walk found: links to folders are not followed, links to
files only where they stay inside the folder, pipes and devices are not opened, hidden names are passed over.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document
from realm.text.formats.admission import Admission
from realm.text.formats.source import BOM, file_system, is_url
from realm.text.spans import RawSpan

SUFFIXES = (".txt", ".md")


def read_folder(path: str | Path, admit: Admission) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The documents of a folder and the folders in it, in order of their ids within each folder.

    "hidden file" and "other file" (no .txt or .md) are counted; rejected are links that lead out of the folder or
    to a folder ("linked folder"), what is no regular file, names and texts that are not UTF-8, files over the limit.
    """
    found = False
    for name, raw in _remote(path, admit) if is_url(path) else _local(str(path), admit):
        found = True
        where = f"{path}: {name}"
        if len(raw) > MAX_LINE_BYTES:
            wanted = "shorter documents: split it"
            admit.reject(where, "file too long", f"a file of more than {MAX_LINE_BYTES} bytes", wanted)
            continue
        try:
            text = raw.removeprefix(BOM).decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"the byte 0x{raw[error.start]:02x} at {error.start + 1}, which is not UTF-8"
            admit.reject(where, "not UTF-8", what, "UTF-8 text")
            continue
        document = admit(where, name, PurePosixPath(name).stem, text)
        if document is not None:
            yield document, []
    if not found:
        raise CorpusError(f"{path}: found no text file, wanted a folder of {' or '.join(SUFFIXES)} files")


def _local(root: str, admit: Admission) -> Iterator[tuple[str, bytes]]:
    """(relative path with "/", first bytes) of every text file under `root`."""
    inside = os.path.realpath(root) + os.sep
    for folder, names, files in os.walk(root, onerror=_stop):
        for name in sorted(names):
            full = os.path.join(folder, name)
            if os.path.islink(full) and not name.startswith("."):
                admit.reject(full, "linked folder", "a link to a folder, which may lead anywhere", "the folder itself")
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            full = os.path.join(folder, name)
            if not _wanted(name, admit):
                continue
            shown = os.path.relpath(full, root).replace(os.sep, "/")
            try:
                shown.encode()
            except UnicodeEncodeError:
                admit.reject(f"{root}: {shown!r}", "not UTF-8", "a file name that is not UTF-8", "a name in UTF-8")
                continue
            if not os.path.realpath(full).startswith(inside):
                admit.reject(full, "outside the folder", "a link out of the folder", "a file in it")
                continue
            try:
                if not stat.S_ISREG(os.stat(full).st_mode):
                    admit.reject(full, "not a file", "a pipe, socket or device", "a regular file")
                    continue
                with open(full, "rb") as file:
                    yield shown, file.read(MAX_LINE_BYTES + 1)
            except OSError as problem:
                admit.reject(full, "unreadable file", f"no readable file ({problem.strerror})", "a file to read")


def _remote(url: str | Path, admit: Admission) -> Iterator[tuple[str, bytes]]:
    system, root = file_system(url)
    root = root.rstrip("/")
    for full in sorted(system.find(root)):
        shown = full.removeprefix(root).lstrip("/")
        # A name in a hidden folder is hidden; the walk over local folders does not go there at all.
        name = ".hidden" if "/." in f"/{shown}" else shown
        if _wanted(name, admit):
            with system.open(full, "rb") as file:
                yield shown, file.read(MAX_LINE_BYTES + 1)


def _wanted(name: str, admit: Admission) -> bool:
    reason = "hidden file" if name.startswith(".") else "" if name.lower().endswith(SUFFIXES) else "other file"
    if reason:
        admit.counts[reason] += 1
    return not reason


def _stop(problem: OSError) -> None:
    found = f"a folder that cannot be listed ({problem.strerror})"
    raise CorpusError(f"{problem.filename}: found {found}, wanted one to read") from problem
