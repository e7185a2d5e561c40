"""Retriever parameters as safetensors, and their fingerprint.

A snapshot is a nested dict of arrays; the file holds one tensor a leaf, named by its path, 'retriever/layers/0/kernel'.
Lists of layers have integer keys, which a flat name cannot tell from strings: the file's metadata says which nodes are
such lists, so that what is read back is exactly what was written. The fingerprint is a sha256 over names, shapes,
dtypes and bytes: two trees with one fingerprint embed alike.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save

from index_refresh import files

NODES, FACTS = "nodes", "facts"
DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
    "BF16": ml_dtypes.bfloat16,
}  # fmt: skip


class StaleSnapshot(ValueError):
    """Parameters of a step that is not after the newest one handed over or published."""


class SnapshotError(ValueError):
    """Parameters that cannot be stored, or a file that does not hold parameters."""


def to_host(params: Any, path: str = "", copy: bool = True) -> Any:
    """The tree in numpy, C-contiguous; with `copy`, later changes to the given arrays do not reach it.

    Raises SnapshotError for anything but nested dicts of arrays, and for keys that a flat name cannot carry.
    """
    if isinstance(params, dict):
        if len({type(key) for key in params}) > 1:
            raise SnapshotError(f"{path or 'params'}: found keys {list(params)!r}, wanted all strings or all integers")
        for key in params:
            bad = (isinstance(key, str) and (not key or "/" in key)) or not isinstance(key, str | int)
            if bad or isinstance(key, bool):
                raise SnapshotError(f"{path or 'params'}: found key {key!r}, wanted an integer or a string without '/'")
        return {key: to_host(value, f"{path}/{key}" if path else str(key), copy) for key, value in params.items()}
    if isinstance(params, list | tuple | set | str) or params is None:
        raise SnapshotError(f"{path or 'params'}: found a {type(params).__name__}, wanted nested dicts of arrays")
    array = np.array(params, order="C", copy=True) if copy else np.asarray(params, order="C")
    if array.dtype.name not in {np.dtype(dtype).name for dtype in DTYPES.values()}:
        raise SnapshotError(f"{path}: found dtype {array.dtype}, wanted numbers")
    return array


def flatten(params: dict[Any, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Host tree -> ({'a/b/c': array}, {path of a node: 'integers' | 'empty'} for what names alone do not say)."""
    tensors: dict[str, np.ndarray] = {}
    nodes: dict[str, str] = {}

    def visit(node: Any, path: str) -> None:
        if not isinstance(node, dict):
            tensors[path] = node
            return
        if not node:
            nodes[path] = "empty"
        elif isinstance(next(iter(node)), int):
            nodes[path] = "integers"
        for key, value in node.items():
            visit(value, f"{path}/{key}" if path else str(key))

    visit(params, "")
    return tensors, nodes


def unflatten(tensors: dict[str, np.ndarray], nodes: dict[str, str]) -> dict[Any, Any]:
    """The inverse of `flatten`."""
    tree: dict[Any, Any] = {}

    def node_at(names: list[str]) -> dict[Any, Any]:
        node, path = tree, ""
        for name in names:
            node = node.setdefault(int(name) if nodes.get(path) == "integers" else name, {})
            path = f"{path}/{name}" if path else name
        return node

    for name, array in tensors.items():
        *parents, last = name.split("/")
        integer = nodes.get("/".join(parents)) == "integers"
        node_at(parents)[int(last) if integer else last] = array
    for path, kind in nodes.items():
        if kind == "empty" and path:
            node_at(path.split("/"))
    return tree


def fingerprint(params: dict[Any, Any]) -> str:
    """sha256 hex over the sorted names, shapes, dtypes and bytes of a tree of arrays."""
    tensors, _ = flatten(to_host(params, copy=False))
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, list(array.shape), array.dtype.name]).encode())
        digest.update(array.reshape(-1).view(np.uint8))
    return digest.hexdigest()


def _checksum(found: str, nodes: dict[str, str]) -> str:
    """Over a fingerprint and what it leaves out: whether keys are integers."""
    return hashlib.sha256(json.dumps([found, nodes], sort_keys=True).encode()).hexdigest()


def write_params(path: Path, params: dict[Any, Any]) -> None:
    """Stores a tree durably and atomically; the same tree always gives the same bytes."""
    tensors, nodes = flatten(to_host(params, copy=False))
    facts = {NODES: nodes, "checksum": _checksum(fingerprint(params), nodes)}
    # One entry: safetensors writes several in an order that differs from call to call.
    files.write(path, save(tensors, metadata={FACTS: json.dumps(facts, sort_keys=True)}))


def read_params(path: Path) -> dict[Any, Any]:
    """The tree that `write_params` stored, bit for bit, as read-only numpy arrays. Raises SnapshotError, also where the
    file holds other numbers than were stored: a flipped bit would embed a whole corpus wrongly, and nobody would know.
    """
    try:
        with safe_open(str(path), framework="numpy") as header:
            told = header.metadata() or {}
        if not told.keys() & {FACTS, NODES}:
            raise ValueError(f"no {FACTS!r} in its metadata")
        facts = json.loads(told.get(FACTS, "{}"))
        nodes = facts[NODES] if FACTS in told else json.loads(told[NODES])  # files of before have that alone
        entries = deserialize(path.read_bytes())
        arrays = {name: np.frombuffer(e["data"], DTYPES[e["dtype"]]).reshape(e["shape"]) for name, e in entries}
        params = unflatten(arrays, nodes)
        found = fingerprint(params)
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotError(f"{path}: found {error}, wanted a safetensors file; publish this step again") from error
    if FACTS in told and facts.get("checksum") != _checksum(found, nodes):
        raise SnapshotError(
            f"{path}: found fingerprint {found}, which is not what its checksum says: damaged; publish this step again"
        )
    return params


class SnapshotStore:
    """`snapshots/<step>/params.safetensors`: what an engine in another process is handed. Few are kept."""

    def __init__(self, run: str | Path) -> None:
        self.folder = Path(run) / "snapshots"

    def steps(self) -> list[int]:
        """Steps of the complete snapshots, ascending."""
        if not self.folder.is_dir():
            return []
        found = self.folder.glob("*/params.safetensors")
        return sorted(int(path.parent.name) for path in found if path.parent.name.isdigit())

    def identity(self, step: int) -> list[int] | None:
        """Tells this file from any other that was or will be written for this step; None where there is none."""
        try:
            stat = self.path(step).stat()
        except FileNotFoundError:
            return None
        return [step, stat.st_ino, stat.st_mtime_ns, stat.st_size]

    def taken(self, step: int) -> float:
        """When it was written, in seconds since the epoch."""
        return self.path(step).stat().st_mtime

    def path(self, step: int) -> Path:
        return self.folder / str(step) / "params.safetensors"

    def write(self, step: int, params: dict[Any, Any]) -> Path:
        """Stores the parameters of a step; an older snapshot of that step is replaced."""
        files.make_folder(self.folder / str(step))
        write_params(self.path(step), params)
        return self.path(step)

    def holds(self, step: int, params: dict[Any, Any]) -> bool:
        """Whether the newest snapshot is this one already. Raises StaleSnapshot where it is of this step or a later one
        and something else."""
        waiting = self.steps()
        if not waiting or step > waiting[-1]:
            return False
        found, given = fingerprint(self.read(waiting[-1])), fingerprint(params)
        if (step, given) != (waiting[-1], found):
            raise StaleSnapshot(
                f"found a snapshot of step {step} with fingerprint {given}, but one of step {waiting[-1]} with "
                f"fingerprint {found} was handed over before: steps only increase. To resume from a checkpoint, call "
                "rewind(its step) first"
            )
        return True

    def read(self, step: int) -> dict[Any, Any]:
        return read_params(self.path(step))

    def remove(self, steps: list[int]) -> list[int]:
        """Deletes these snapshots, where they are still there: used ones, ones overtaken by a newer, or ones of a
        future that a resume undid. Returns those that this call deleted: trainer and refresher may both want to, and
        what is dropped must be counted once."""
        gone = []
        for step in steps:
            with suppress(FileNotFoundError):
                files.discard(self.folder / str(step))
                gone.append(step)
        return gone
