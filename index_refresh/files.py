"""Files that survive a kill: written aside, fsynced, renamed, and the folder fsynced after the rename.

A reader sees the old file or the complete new one, never half of it; a power cut after the call returns loses nothing.
Everything on disk in this package goes through the six primitives at the top (`put`, `fsync`, `rename`, `link`,
`unlink`, `remove_tree`), so that a test can stop the process at every one of them. One writer per file is assumed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np


class LogError(ValueError):
    """A line of an event log is not JSON, and it is not merely the torn last one."""


def put(path: Path, *chunks: bytes | memoryview, append: bool = False) -> None:
    """Plain write, no promise about the disk."""
    with open(path, "ab" if append else "wb") as stream:
        for chunk in chunks:
            stream.write(chunk)


def fsync(path: Path) -> None:
    """Puts a file, or the names inside a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Moves atomically inside one file system; a file at `target` is replaced."""
    os.replace(source, target)


def link(source: Path, target: Path) -> None:
    """Gives the bytes of `source` a second name, or a copy where the file system has no hard links; what is at `target`
    goes. Neither may be changed in place afterwards."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Somebody else may be deleting it too: whoever comes second finds less and less of it."""
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue


def make_folder(path: Path) -> Path:
    """Creates a folder and its parents, each name fsynced; nothing happens where it exists."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        fsync(path.parent)
    return path


def move(source: Path, target: Path) -> None:
    """Rename that is on the disk when it returns."""
    rename(source, target)
    fsync(target.parent)


def write(path: Path, *chunks: bytes | memoryview) -> None:
    """Writes a file so that `path` is the old content or all of the new one, whenever the process dies."""
    aside = path.with_name(f".{path.name}.aside")
    put(aside, *chunks)
    fsync(aside)
    move(aside, path)


def discard(folder: Path) -> None:
    """Deletes a folder that others may be listing: it loses its name first, so that no half of it is ever taken
    for the whole. What a kill leaves is a `.trash-*` folder, removed by the next `discard` beside it."""
    trash = folder.with_name(f".trash-{folder.name.lstrip('.')}")
    if trash.exists():
        remove_tree(trash)
    move(folder, trash)
    remove_tree(trash)


def fsync_tree(folder: Path) -> None:
    """Puts every file and folder below (and including) `folder` on the disk."""
    for path in sorted(folder.rglob("*")):
        fsync(path)
    fsync(folder)


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes, read in pieces."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """What a manifest records about a file: bytes and sha256."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def plain(value: Any) -> Any:
    """For `json.dumps(default=)`: numpy's numbers and arrays, and paths. Raises TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def write_json(path: Path, value: Any) -> None:
    """`write`, as indented JSON; numpy numbers become plain ones."""
    write(path, (json.dumps(value, indent=1, default=plain) + "\n").encode())


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def append_line(path: Path, value: Any) -> None:
    """Adds one JSON object as a line and fsyncs; a torn line left by a kill is cut off first."""
    new = not path.exists()
    if not new:
        _cut_torn_line(path)
    put(path, (json.dumps(value, default=plain) + "\n").encode(), append=True)
    fsync(path)
    if new:
        fsync(path.parent)


def _cut_torn_line(path: Path) -> None:
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; [] where there is none. A last line without its newline was never finished
    and is left out. Raises LogError with file:line for any other bad line."""
    if not path.exists():
        return []
    complete = path.read_bytes().split(b"\n")[:-1]
    values = []
    for number, line in enumerate(complete, start=1):
        try:
            values.append(json.loads(line))
        except ValueError as error:
            raise LogError(f"{path}:{number}: found {line[:60]!r}, wanted one JSON object a line") from error
    return values


def write_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """Replaces a JSON-lines file atomically."""
    write(path, "".join(json.dumps(value, default=plain) + "\n" for value in values).encode())
