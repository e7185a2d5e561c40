"""A generation in the making: its files lie in `.staging-<g>-<step>`, and what it is made from beside them.

A kill leaves both, and the next refresher takes the draft up again where it is made from the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from index_refresh import files


@dataclass(frozen=True)
class Draft:
    """A generation in the making: where its files go, and what it is made from (`identity`)."""

    number: int
    step: int
    folder: Path
    identity: dict[str, Any]

    @property
    def progress(self) -> Path:
        """Lies beside the folder, so that it is never part of what is published."""
        return self.folder.with_name(self.folder.name + ".json")

    def clear_others(self) -> None:
        """Removes every draft but this one, and this one too if it was made from anything else."""
        if self.progress.exists() and files.read_json(self.progress)["identity"] != self.identity:
            files.unlink(self.progress)
        for path in self.folder.parent.glob(".staging-*"):
            if path.is_dir() and not (path == self.folder and self.progress.exists()):
                files.discard(path)
        for path in self.folder.parent.glob(".staging-*.json"):
            if path != self.progress:
                files.unlink(path)
