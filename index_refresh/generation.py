"""A generation: one finished index on disk, numbered, and immutable from the moment it has its name.

The folder holds manifest.json, the retriever parameters the vectors were made with (queries are searched with the pair,
REALM's reference code does the same), the vector shards and the index. The manifest carries counts, checksums and three
fingerprints; opening compares them with what is wanted and refuses by naming both values.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from index_refresh import files, snapshot
from index_refresh.recipe import Recipe, Table
from index_refresh.vectors import StoredVectors
from realm.protocols import Params, Searcher

FORMAT = 1
MANIFEST, ENCODER, INDEX = "manifest.json", "encoder.safetensors", "index"
# Searchers of this process by what they were loaded from, for as long as anybody holds them.
LIVE: WeakValueDictionary[tuple[str, str, str | None], Searcher] = WeakValueDictionary()


class GenerationMismatch(ValueError):
    """A sound generation of something else: another corpus, tokenizer or encoder."""


class GenerationCorrupt(ValueError):
    """A generation whose files are not those of its manifest."""


class GenerationMissing(FileNotFoundError):
    """No such generation in this run."""


@dataclass(frozen=True)
class Generation:
    """`number` counts publications, `step` is the training step of its encoder; equal when number, step, path are."""

    number: int
    step: int
    path: Path
    manifest: dict[str, Any] = field(compare=False, repr=False)
    recipe: Recipe = field(compare=False, repr=False)

    @property
    def taken(self) -> float:
        """When the trainer handed over the parameters, in seconds since the epoch."""
        return float(self.manifest.get("taken", self.manifest["time"]))

    def documents(self) -> list[tuple[int, int]]:
        """(rows, training step of their vectors), one entry a step: several where the refresh is rolling."""
        rows = Counter()
        for shard in self.manifest["shards"]:
            rows[shard.get("step", self.step)] += shard["rows"]
        return [(count, step) for step, count in sorted(rows.items())]

    def document_ages(self, step: int) -> dict[str, float]:
        """How old the youngest, the mean and the oldest document are at `step`, in steps; {} where nothing rolls, and
        all are of one step."""
        return ages_of(self.documents(), step) if self.recipe.slices > 1 else {}

    def rolled(self) -> dict[str, Any]:
        """Slices and documents of a rolling generation, for the log; {} where nothing rolls."""
        if self.recipe.slices == 1:
            return {}
        return {"slices": [self.recipe.slices, self.recipe.rebuild], "documents": self.documents()}

    def vectors(self) -> StoredVectors:
        """The stored vectors, row n being block n of the corpus."""
        manifest = self.manifest
        names = tuple(shard["file"] for shard in manifest["shards"])
        return StoredVectors(self.path, names, manifest["rows"], manifest["dim"], manifest["dtype"])

    def searcher(self) -> Searcher:
        """Loads the index from disk, after comparing every file with its checksum: nothing is ever searched in a
        damaged index. Where the index it was made from is still in this process, only the rows that changed are given
        to it, for kinds that can do so without touching the old one. Raises GenerationCorrupt, and what the recipe's
        index raises where another one was built."""
        verify(self)
        searcher = self._from_base() or self.recipe.index.load(self.path / INDEX, self.vectors())
        LIVE[self._key(content_of(self.manifest))] = searcher
        return searcher

    def _from_base(self) -> Searcher | None:
        live = LIVE.get(self._key(self.manifest.get("base")))
        if live is None or not hasattr(live, "with_rows"):
            return None
        spans = renewed_spans(self.manifest["shards"], self.step)
        return live.with_rows((low, self.vectors().take(np.arange(low, high))) for low, high in spans)

    def _key(self, content: str | None) -> tuple[str, str, str | None]:
        return str(self.path.parent), repr(self.recipe.index), content

    def query_params(self) -> Params:
        """{'retriever': tree} of the snapshot the vectors were made with, bit for bit. Raises GenerationCorrupt."""
        try:
            params = snapshot.read_params(self.path / ENCODER)
        except snapshot.SnapshotError as error:
            raise GenerationCorrupt(str(error)) from error
        found, wanted = snapshot.fingerprint(params), self.manifest["encoder_fingerprint"]
        if found != wanted:
            raise GenerationCorrupt(f"{self.path / ENCODER}: found fingerprint {found}, the manifest says {wanted}")
        return params

    def __str__(self) -> str:
        manifest = self.manifest
        return f"generation {self.number} of step {self.step}: {manifest['rows']} blocks x {manifest['dim']}"


def ages_of(documents: Iterable[tuple[int, int]], step: int) -> dict[str, float]:
    """Of [(rows, step of their vectors)]: youngest, mean and oldest document at `step`, in steps."""
    rows, made = np.array(list(documents), np.int64).T
    return {
        "document_age_min": int(step - made.max()),
        "document_age_mean": round(float(step - np.average(made, weights=rows)), 2),
        "document_age_max": int(step - made.min()),
    }


def renewed_spans(shards: Sequence[dict[str, Any]], step: int) -> tuple[tuple[int, int], ...]:
    """[low, high) rows of the shards of a rolling generation whose vectors are of `step`; neighbours as one."""
    spans: list[tuple[int, int]] = []
    low = 0
    for shard in shards:
        high = low + shard["rows"]
        if shard["step"] == step:
            first = spans.pop()[0] if spans and spans[-1][1] == low else low
            spans.append((first, high))
        low = high
    return tuple(spans)


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with a checksum over all the rest of it, so that a flipped bit in a number does not pass."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    text = json.dumps(content, sort_keys=True, default=files.plain)
    return content | {"checksum": hashlib.sha256(text.encode()).hexdigest()}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a generation folder. Raises GenerationCorrupt."""
    try:
        manifest = files.read_json(folder / MANIFEST)
    except (OSError, ValueError) as error:
        raise GenerationCorrupt(f"{folder}: found no readable {MANIFEST} ({error}); delete the folder") from error
    if not isinstance(manifest, dict) or manifest.get("checksum") not in (None, sealed(manifest)["checksum"]):
        raise GenerationCorrupt(f"{folder / MANIFEST}: its content is not what its checksum says; publish it anew")
    if manifest.get("format") != FORMAT:
        raise GenerationMismatch(
            f"{folder}: found manifest format {manifest.get('format')!r}, this version reads {FORMAT}; publish it anew"
        )
    return manifest


def recorded_files(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{relative path: {bytes, sha256}} of every file but the manifest itself."""
    return {shard["file"]: shard for shard in manifest["shards"]} | manifest["files"]


def content_of(manifest: dict[str, Any]) -> str:
    """sha256 over the checksums of all files: what a generation holds, whenever it was made."""
    held = {name: record["sha256"] for name, record in recorded_files(manifest).items()}
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def check_manifest(folder: Path, manifest: dict[str, Any], table: Table, encoder: str | None = None) -> None:
    """Refuses a generation that is not of this corpus, tokenizer or (where given) encoder, or whose files have the
    wrong size. Cheap: no file but the manifest is read. Raises GenerationMismatch, GenerationCorrupt."""
    mine = "use the corpus this run was started with, or start a new run folder"
    other = "use the checkpoint of this run, or ask for no particular encoder to allow it"
    for what, found, whose, wanted, advice in [
        ("rows", manifest["rows"], "the corpus", table.indexed, mine),
        ("corpus fingerprint", manifest["corpus_fingerprint"], "the corpus", table.fingerprint, mine),
        ("tokenizer fingerprint", manifest["tokenizer_fingerprint"], "the corpus", table.tokenizer.fingerprint, mine),
        ("encoder fingerprint", manifest["encoder_fingerprint"], "the expected encoder", encoder, other),
    ]:
        if wanted is not None and found != wanted:
            raise GenerationMismatch(f"{folder}: {what} is {found}, {whose} has {wanted}; {advice}")
    rows = sum(shard["rows"] for shard in manifest["shards"])
    if rows != manifest["rows"]:
        raise GenerationCorrupt(f"{folder}: its shards hold {rows} rows, its manifest says {manifest['rows']}")
    for name, record in recorded_files(manifest).items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != record["bytes"]:
            found = "nothing" if size is None else f"{size} bytes"
            raise GenerationCorrupt(
                f"{path}: found {found}, the manifest says {record['bytes']} bytes; publish it anew"
            )


def verify(generation: Generation) -> None:
    """Reads every file and compares checksums. Raises GenerationCorrupt naming the files that differ."""
    wrong = []
    for name, record in recorded_files(generation.manifest).items():
        path = generation.path / name
        found = files.sha256(path) if path.is_file() else "no file"
        if found != record["sha256"]:
            wrong.append(f"{name}: found {found}, the manifest says {record['sha256']}")
    if wrong:
        raise GenerationCorrupt(f"{generation.path}: {len(wrong)} damaged files: " + "; ".join(wrong))
