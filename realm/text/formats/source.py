"""Opening what users have: local paths and fsspec URLs; plain, gzip, bzip2 or zstd, told by the first bytes.

A `Stream` hands out decompressed bytes in pieces whose size the reader chooses, so no file, however well it was packed,
takes more memory than a reader asks for. Decompression goes through libraries that notice a file cut short: zstd is
pyarrow's, because the usual binding takes an early end for a proper one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from realm.text.corpus import CorpusError

PACKED = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh"),
    # A frame of data, or one that readers pass over: parallel and seekable writers begin with such a one.
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
PACKED_SUFFIXES = (".gz", ".bz2", ".zst", ".zstd")
DUMP_PAGES = re.compile(r"(?<=\.xml)-p\d+p\d+[\w-]*$")
BOM = b"\xef\xbb\xbf"
CHUNK = 1 << 18


def is_url(path: str | Path) -> bool:
    """Whether fsspec opens it ("memory://a", "gs://bucket/a", "file:///a") and not the file system."""
    return "://" in str(path)


def name_of(path: str | Path) -> str:
    """The last part of a path or URL."""
    return str(path).rstrip("/").rpartition("/")[2]


def plain_name(path: str | Path) -> str:
    """The file's name in small letters, without the suffix that says how it is packed, or which pages of a dump it has
    (articles1.xml-p1p41242.bz2)."""
    return DUMP_PAGES.sub("", unpacked_name(path).lower())


def unpacked_name(path: str | Path) -> str:
    """The file's name without the suffix that says how it is packed."""
    name = name_of(path)
    for suffix in PACKED_SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name


def file_system(path: str | Path) -> tuple:
    """(fsspec file system, path in it) of a URL. Raises CorpusError where the protocol is unknown or not installed."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(str(path))
    except ImportError as problem:  # fsspec raises it from the import that failed
        missing = (getattr(problem.__cause__, "name", None) or "").partition(".")[0]
        install = f"the package {missing}, which opens it: pip install {missing}" if missing else "what opens it"
        raise CorpusError(f"{path}: found no way to open such a URL ({problem}), wanted {install}") from problem
    except ValueError as problem:
        wanted = "a path, or a URL of a protocol that fsspec knows"
        raise CorpusError(f"{path}: found no way to open it ({problem}), wanted {wanted}") from problem


@contextmanager
def opening(path: str | Path) -> Iterator[None]:
    """Turns what opening a path or URL raises into a CorpusError, whatever library its protocol has."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as problem:
        if not is_url(path) and not isinstance(problem, OSError | ValueError):
            raise
        if isinstance(problem, ValueError) and not is_url(path):
            raise CorpusError(f"{path!r}: found no path ({problem}), wanted a file to read") from problem
        if isinstance(problem, FileNotFoundError):
            why = "No such file or directory"
        else:
            why = getattr(problem, "strerror", None) or " ".join(f"{type(problem).__name__} {problem}".split())
        raise CorpusError(f"{path}: found no readable file ({why}), wanted a file to read") from problem


def is_folder(path: str | Path) -> bool:
    """Whether it is there and is a folder. Raises CorpusError for a URL that cannot be asked."""
    with opening(path):
        if is_url(path):
            system, inner = file_system(path)
            return system.isdir(inner)
        return os.path.isdir(path)


def open_bytes(path: str | Path) -> IO[bytes]:
    """The file as it is stored, seekable where its file system is. Raises CorpusError when it cannot be opened."""
    with opening(path):
        if is_url(path):
            system, inner = file_system(path)
            stored = system.open(inner, "rb")
            weakref.finalize(stored, bool, system)  # the file system of an archive closes its files when it goes
            return stored
        if os.path.exists(path) and not os.path.isfile(path):
            raise CorpusError(f"{path}: found no regular file (a folder, pipe or device), wanted a file to read")
        return open(path, "rb")


class Stream:
    """The decompressed bytes of a file or URL, front to back.

    `offset` is the number of bytes handed out so far. Raises CorpusError, which names the offset, for a file that
    cannot be opened, is corrupt or ends early, in strict and in lenient reading alike: what is missing is unknown.
    """

    def __init__(self, path: str | Path):
        self.path, self.offset, self.packing = path, 0, ""
        self._stored = open_bytes(path)
        try:
            raw = self._stored if hasattr(self._stored, "peek") else io.BufferedReader(self._stored)
            head = raw.peek(4)[:4]
            self.packing = next((kind for kind, magic in PACKED.items() if magic.match(head)), "")
            self._stream = _unpacked(raw, self.packing)
        except OSError as problem:
            self._stored.close()
            raise CorpusError(f"{path}: found no readable file ({problem}), wanted a file to read") from problem

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_) -> None:
        for stream in (self._stream, self._stored):
            stream.close()

    def read(self, size: int = CHUNK) -> bytes:
        """At most `size` bytes, none at the end."""
        return self._take(self._stream.read, size)

    def readline(self, size: int) -> bytes:
        """At most `size` bytes, up to and with the next line end; none at the end."""
        return self._take(self._stream.readline, size)

    def _take(self, take, size: int) -> bytes:
        try:
            found = take(size)
        except EOFError as problem:
            raise self._early() from problem
        except (OSError, zlib.error) as problem:
            if "Truncated" in str(problem):
                raise self._early() from problem
            what = f"corrupt {self.packing} data" if self.packing else "an unreadable file"
            raise CorpusError(
                f"{self.path}: found {what} after byte {self.offset} ({problem}), wanted a whole file"
            ) from problem
        self.offset += len(found)
        return found

    def _early(self) -> CorpusError:
        found = f"a {self.packing} file that ends early, after byte {self.offset}"
        return CorpusError(f"{self.path}: found {found}, wanted a whole one: copy it again")


def _unpacked(raw: IO[bytes], packing: str) -> IO[bytes]:
    match packing:
        case "gzip":
            return gzip.GzipFile(fileobj=raw)
        case "bzip2":
            return bz2.BZ2File(raw)
        case "zstd":
            import pyarrow

            return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd"))
    return raw


def numbered_lines(stream: Stream, limit: int) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its line feed); a line over `limit` bytes comes cut to just over it.

    A byte order mark at the start is passed over.
    """
    line = 0
    while found := stream.readline(limit + 2):
        line += 1
        rest = found
        while rest and len(found) > limit and not rest.endswith(b"\n"):
            rest = stream.readline(limit)
        if line == 1:
            found = found.removeprefix(BOM)
        yield line, found.removesuffix(b"\n")


def head_of(path: str | Path, size: int = 1 << 16) -> bytes:
    """The first decompressed bytes of a file, fewer when it is shorter."""
    with Stream(path) as stream:
        head = b""
        while len(head) < size and (more := stream.read(size - len(head))):
            head += more
    return head


def shards(folder: str | Path, suffixes: tuple[str, ...]) -> list[str]:
    """The files directly in a folder whose names, packing aside, end in one of `suffixes`; in order of their names."""
    if is_url(folder):
        system, inner = file_system(folder)
        found = [system.unstrip_protocol(path) for path in system.ls(inner, detail=False)]
    else:
        found = [entry.path for entry in os.scandir(folder) if entry.is_file()]
    return sorted(path for path in found if plain_name(path).endswith(suffixes) and not name_of(path).startswith("."))
