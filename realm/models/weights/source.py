"""The folder that `embedded` or `hf:PATH` names: its JSON files, its vocabulary, its tensors opened one by one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from realm.models.weights.report import WeightsError

EMBEDDED = Path(__file__).parents[1] / "data" / "bert-tiny"
WHOLE, INDEX, PICKLED = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"


class Source(NamedTuple):
    """The tensors of a folder. `read` gives one of them; what is not read stays on disk (but for a .bin file)."""

    path: Path
    names: frozenset[str]
    read: Callable[[str], np.ndarray]


class Vocabulary(NamedTuple):
    """The wordpieces of a folder in id order, and the file that has them."""

    path: Path
    pieces: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """sha256 of the pieces, as a corpus's tokenizer has it: equal where each id means the same wordpiece."""
        return hashlib.sha256("\n".join(self.pieces).encode()).hexdigest()


def check_spec(spec: str) -> None:
    """Raises WeightsError unless `spec` is `random`, `embedded` or `hf:PATH`; opens nothing."""
    if spec not in ("random", "embedded") and not (spec.startswith("hf:") and len(spec) > 3):
        raise WeightsError(f"init is {spec!r}, wanted 'random', 'embedded' or 'hf:PATH' with the folder of a BERT")


def folder_of(spec: str) -> Path:
    """The folder of `embedded` or `hf:PATH`, there or not."""
    check_spec(spec)
    if spec == "random":
        raise WeightsError("'random' names no weights, wanted 'embedded' or 'hf:PATH'")
    return EMBEDDED if spec == "embedded" else Path(spec.removeprefix("hf:")).expanduser()


def read_json(folder: Path, name: str) -> Any:
    """The JSON value of a file of the folder; raises WeightsError where it is absent or damaged."""
    if not (folder / name).is_file():
        raise _absent(folder, name)
    try:
        return json.loads((folder / name).read_text("utf-8"))
    except ValueError as error:
        raise WeightsError(f"{folder / name} is no JSON: {error}") from error


def vocabulary_of(spec: str) -> Vocabulary | None:
    """The vocabulary of vocab.txt, or else of tokenizer.json; None for a folder with neither, as `embedded` is.

    Raises WeightsError for a file that is not UTF-8 or no JSON, and for a tokenizer that is no WordPiece.
    """
    folder = folder_of(spec)
    if (path := folder / VOCABULARY).is_file():
        try:
            lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise WeightsError(f"{path}: found bytes that are not UTF-8 at {error.start}, wanted UTF-8") from error
        return Vocabulary(path, tuple(line.rstrip("\r") for line in lines))
    if not (path := folder / TOKENIZER).is_file():
        return None
    found = read_json(folder, TOKENIZER)
    model = found.get("model") if isinstance(found, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        kind = model.get("type") if isinstance(model, dict) else None
        raise WeightsError(f"{path}: found a tokenizer of type {kind!r}, wanted a WordPiece with its `vocab`")
    added = {token["content"]: token["id"] for token in found.get("added_tokens") or []}
    id_of = model["vocab"] | added
    return Vocabulary(path, tuple(sorted(id_of, key=id_of.__getitem__)))


@contextmanager
def open_source(folder: Path):
    """A Source over model.safetensors, its shards, or pytorch_model.bin, in this order; raises WeightsError."""
    with ExitStack() as stack:
        if (folder / WHOLE).is_file():
            file = _open(folder / WHOLE, stack)
            yield Source(folder / WHOLE, frozenset(file.keys()), _reader(lambda name: file, folder / WHOLE))
        elif (folder / INDEX).is_file():
            where = read_json(folder, INDEX).get("weight_map", {})
            shards = {name: _open(folder / name, stack) for name in sorted(set(where.values()))}
            yield Source(folder / INDEX, frozenset(where), _reader(lambda name: shards[where[name]], folder / INDEX))
        elif (folder / PICKLED).is_file():
            from realm.models.weights.pickled import read_pickled

            tensors = read_pickled(folder / PICKLED)
            yield Source(folder / PICKLED, frozenset(tensors), tensors.__getitem__)
        else:
            raise _absent(folder, f"{WHOLE} or {PICKLED}")


def _open(path: Path, stack: ExitStack):
    try:
        return stack.enter_context(safe_open(path, framework="numpy"))
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is no safetensors file ({error}); is it a Git LFS pointer?") from error


def _reader(file_of: Callable[[str], Any], path: Path) -> Callable[[str], np.ndarray]:
    def read(name: str) -> np.ndarray:
        try:
            return file_of(name).get_tensor(name)
        except SafetensorError as error:
            raise WeightsError(f"{path} names {name}, and its file has none: {error}") from error

    return read


def _absent(folder: Path, name: str) -> WeightsError:
    there = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else "no such folder"
    return WeightsError(
        f"no {name} in {folder} ({there}); wanted a folder with config.json and model.safetensors or pytorch_model.bin"
    )
