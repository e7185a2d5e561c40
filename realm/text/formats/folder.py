"""A folder of text files (.txt, .md, packed or not): one document a file, its path the id, its name's stem the title.

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
from realm.text.formats.listing import SUFFIXES, kind_of, listed
from realm.text.formats.source import BOM, head_of, is_url, plain_name, unpacked_name
from realm.text.spans import RawSpan

TEXTS = SUFFIXES["folder"]


def read_folder(path: str | Path, admit: Admission) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The documents of a folder and the folders in it, in order of their ids within each folder.

    Counted are "hidden file", "metadata file" and "other file" (no .txt or .md); rejected are links that lead out of
    the folder or to a folder ("linked folder"), what is no regular file or cannot be unpacked, names and texts that
    are not UTF-8, files over the limit.
    """
    files = listed(path)
    files.count(admit)
    found = False
    for name in files.names:
        where, full = f"{path}: {name}", files.path(name)
        if not plain_name(name).endswith(TEXTS):
            admit.counts["metadata file" if kind_of(name) == "metadata file" else "other file"] += 1
            continue
        if not is_url(path) and not _safe(str(path), full, name, admit):
            continue
        found = True
        try:
            raw = head_of(full, MAX_LINE_BYTES + 1)
        except CorpusError:  # of one document everything is known to be missing
            if not admit.reject.lenient:
                raise
            admit.counts["unreadable file"] += 1
            continue
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
        document = admit(where, name, PurePosixPath(unpacked_name(name)).stem, text)
        if document is not None:
            yield document, []
    if not found:
        raise CorpusError(f"{path}: found no text file, wanted a folder of {' or '.join(TEXTS)} files")


def _safe(root: str, full: str, name: str, admit: Admission) -> bool:
    """Whether a local file is one of the folder's own, under a name in UTF-8. Rejects it otherwise."""
    try:
        name.encode()
    except UnicodeEncodeError:
        admit.reject(f"{root}: {name!r}", "not UTF-8", "a file name that is not UTF-8", "a name in UTF-8")
        return False
    if not os.path.realpath(full).startswith(os.path.realpath(root) + os.sep):
        admit.reject(full, "outside the folder", "a link out of the folder", "a file in it")
        return False
    try:
        if stat.S_ISREG(os.stat(full).st_mode):
            return True
    except OSError as problem:
        admit.reject(full, "unreadable file", f"no readable file ({problem.strerror})", "a file to read")
        return False
    admit.reject(full, "not a file", "a pipe, socket or device", "a regular file")
    return False
