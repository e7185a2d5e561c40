"""A power cut at any write, fsync, rename or deletion, for a process that is going to die of it.

Installed in a forked child, it counts every call of the primitives of `index_refresh.files` and of `numpy.save`. The
n-th is done by half, then the disk is made as bad as a journalling file system allows: a file loses any part of what
was written to it since its last fsync (it ends early, or in zeros), and renames and deletions in folders that were not
fsynced since are undone, all or from a random one on. Then the process ends, with no handler of ours to tidy up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from index_refresh import files

PRIMITIVES = ("put", "fsync", "rename", "link", "unlink", "remove_tree")
CUT = 77  # exit status of a process that met its power cut


class PowerCut:
    """at: the boundary that kills, counted from 1; 0 for none. `calls`: how many there were."""

    def __init__(self, at: int, rng: np.random.Generator) -> None:
        self.at, self.rng, self.calls = at, rng, 0
        self.unsynced: dict[Path, int] = {}  # path -> bytes that are safe
        self.journal: list[tuple[Path, Callable[[], None]]] = []  # (folder it stands in, how it is undone)

    def install(self) -> None:
        """From here on this process lives in fear; there is no way back."""
        for name in PRIMITIVES:
            setattr(files, name, self._wrapped(name, getattr(files, name)))
        np.save = self._wrapped("put", np.save)

    def _wrapped(self, name: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(path: Any, *rest: Any, **named: Any) -> None:
            path = Path(path)
            self.calls += 1
            if self.calls == self.at:
                self._half(name, real, path, rest, named)
                self._cut()
            getattr(self, f"_{name}")(real, path, *rest, **named)

        return call

    def _put(self, real: Callable[..., None], path: Path, *rest: Any, **named: Any) -> None:
        safe = path.stat().st_size if named.get("append") and path.exists() else 0
        self.unsynced[path] = min(safe, self.unsynced.get(path, safe))
        real(path, *rest, **named)

    def _fsync(self, real: Callable[..., None], path: Path) -> None:
        """No disk is asked: what counts is that it was called, and when."""
        self.unsynced.pop(path, None)
        self.journal = [entry for entry in self.journal if entry[0] != path]

    def _rename(self, real: Callable[..., None], source: Path, target: Path) -> None:
        replaced = target.read_bytes() if target.is_file() else None

        def undo() -> None:
            if target.exists():
                os.replace(target, source)
                self._follow(target, source)
            if replaced is not None:
                target.write_bytes(replaced)

        real(source, target)
        self._follow(source, target)
        self.journal.append((target.parent, undo))

    def _link(self, real: Callable[..., None], source: Path, target: Path) -> None:
        real(source, target)
        self.journal.append((target.parent, lambda: target.unlink(missing_ok=True)))

    def _unlink(self, real: Callable[..., None], path: Path) -> None:
        if path.is_file():
            content = path.read_bytes()
            self.journal.append((path.parent, lambda: path.parent.is_dir() and path.write_bytes(content)))
        self.unsynced.pop(path, None)
        real(path)

    def _remove_tree(self, real: Callable[..., None], folder: Path) -> None:
        real(folder)

    def _follow(self, source: Path, target: Path) -> None:
        for path in [path for path in self.unsynced if path == source or source in path.parents]:
            self.unsynced[target / path.relative_to(source)] = self.unsynced.pop(path)

    def _half(self, name: str, real: Callable[..., None], path: Path, rest: Any, named: Any) -> None:
        """What of the fatal call reaches the disk: nothing, some, or all of it."""
        if name == "remove_tree":
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                if self.rng.random() < 0.5:
                    file.unlink()
        elif name != "fsync" and self.rng.random() < 0.7:
            getattr(self, f"_{name}")(real, path, *rest, **named)

    def _cut(self) -> None:
        first = 0 if self.rng.random() < 0.5 else int(self.rng.integers(0, len(self.journal) + 1))
        for _, undo in reversed(self.journal[first:]):
            undo()
        for path, safe in self.unsynced.items():
            if not path.is_file():
                continue
            size = path.stat().st_size
            left = int(self.rng.integers(min(safe, size), size + 1))
            os.truncate(path, left)
            if self.rng.random() < 0.5:
                os.truncate(path, size)  # the length was known to the journal, the bytes never came
        os._exit(CUT)
