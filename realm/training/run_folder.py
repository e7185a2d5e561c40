"""A run folder: config.json, metrics, checkpoints, snapshots and generations of one stage.

A folder that exists is never written to by accident: it needs `resume` or `overwrite`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Existing = Literal["refuse", "resume", "overwrite"]


# Fields that change neither what is learned nor what is measured: a resumed run may have other ones.
OF_ENGINES = (
    *("max_age", "hang_seconds", "restart_seconds", "poll_seconds", "device", "cores", "keep"),
    *("address", "actors", "shard_cpus", "shard_gpus", "shard_resources", "build_cpus", "build_resources"),
)
FREE = ("threads", "log_every", "keep_checkpoints", "stop", "max_drop", "max_null", *OF_ENGINES)
# Where `empty_folder` puts what it is about to delete.
DELETED = ".deleted"


class RunFolderError(RuntimeError):
    """The folder cannot be used as asked; the message says what to type instead."""


class RunFolder:
    """One stage's folder. `existing` says what to do when it is there already."""

    def __init__(self, path: Path, existing: Existing = "refuse"):
        self.path = Path(path).resolve()
        if self.path.exists() and any(self.path.iterdir()):
            if existing == "refuse":
                raise RunFolderError(f"{self.path} exists: add --resume to go on with it or --overwrite to delete it")
            started = (self.path / "config.json").exists()
            # A kill before config.json was whole leaves only its unfinished copy: there is nothing to lose.
            if not started and {p.name for p in self.path.iterdir()} != {"config.json.partial"}:
                raise RunFolderError(f"{self.path} has files but no config.json: not a run folder, so it is left alone")
            if existing == "overwrite":
                remove_folder(self.path)
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def done(self) -> dict[str, Any] | None:
        """What the finished stage said of itself, or None while it is unfinished."""
        return read_json(self.path / "done.json")

    def finish(self, outcome: dict[str, Any]) -> None:
        write_json(self.path / "done.json", outcome)

    def write_config(self, config: dict[str, Any], up_to_date: Callable[[Any], Any] = lambda old: old) -> None:
        """Writes config.json; on resume the configs must agree, and what differs is named. up_to_date: gives a config
        that was written before it had all its fields the ones it lacks."""
        record = {"config": config, "argv": sys.argv, "environment": environment()}
        old = read_json(self.path / "config.json")
        if old is not None:
            changed = changed_fields(up_to_date(old["config"]), config)
            if changed:
                raise RunFolderError(
                    f"{self.path}/config.json differs from this command in {', '.join(changed)}: a resumed run keeps "
                    "its configuration. Use the old values, another --out, or --overwrite"
                )
            self._warn_of_other_machine(old["environment"], record["environment"])
            return
        write_json(self.path / "config.json", record)

    def _warn_of_other_machine(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        changed = [
            f"{k}: {old.get(k)} -> {new[k]}"
            for k in ("processor", "cpus", "versions", "devices")
            if old.get(k) != new[k]
        ]
        if changed:
            print(f"resuming on another machine, so not bit-identical: {'; '.join(changed)}", file=sys.stderr)


def remove_folder(path: Path) -> None:
    """Renamed first, so that a kill in the middle leaves nothing that looks like a run."""
    trash = path.with_name(f".trash-{path.name}-{os.getpid()}")
    os.rename(path, trash)
    shutil.rmtree(trash)


def empty_folder(path: Path, *, keep: str, last: str) -> None:
    """Deletes all that is in `path` but `keep`, which may be a lock file that is held meanwhile.

    Everything is renamed into `path/.deleted` first, and `last` after all others: a kill in the middle leaves what is
    still there whole, and beside it only a `.deleted` that may go.
    """
    trash = path / DELETED
    trash.mkdir()
    inside = sorted((p for p in path.iterdir() if p.name not in (keep, DELETED)), key=lambda p: (p.name == last, p))
    for child in inside:
        os.rename(child, trash / child.name)
    shutil.rmtree(trash)


def environment() -> dict[str, Any]:
    """Commit, versions, processor and devices: what bit-identity and speed depend on."""
    import jax

    names = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "grain", "tokenizers", "scann")
    return {
        "commit": commit(),
        "versions": {name: _version(name) for name in names},
        "python": platform.python_version(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "devices": [f"{d.platform}:{d.device_kind}" for d in jax.devices()],
        "processes": jax.process_count(),
    }


def commit() -> str | None:
    """The git commit of the source tree this package runs from, `+dirty` when it was changed; None outside git."""
    here = Path(__file__).resolve().parent
    try:
        ours = subprocess.run(["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True)
        if ours.returncode:  # installed inside somebody else's repository
            return None
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True)
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+dirty" if dirty.stdout.strip() else "")


def differences(old: Any, new: Any, path: str = "") -> set[str]:
    """Dotted names of the fields in which two configs differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        parts = (differences(old.get(k), new.get(k), f"{path}.{k}" if path else k) for k in old.keys() | new.keys())
        return set().union(*parts)
    return set() if old == new else {path}


def changed_fields(old: Any, new: Any, free: tuple[str, ...] = FREE) -> list[str]:
    """Dotted names of the fields in which two configs differ, sorted, without those whose last part is in `free`."""
    return sorted(name for name in differences(old, new) if name.rpartition(".")[2] not in free)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=2) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Writes a text aside, flushes and renames it: a reader, or whoever comes after a kill, never sees half of it."""
    aside = path.with_name(path.name + ".partial")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
