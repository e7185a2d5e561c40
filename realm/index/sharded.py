"""An index of any kind in S parts, each over a range of rows; the merge of their hits is exact.

Parts are built one after another, so that building needs the memory of one part beside what is finished: ScaNN wants
3.5 times the float32 vectors while it builds. Over Exact the result is that of the undivided index bit for bit; over an
approximate kind each part looks for its own k best, so recall is rarely lower and a search costs somewhat more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import Mesh

from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.index_bytes import IndexBytes
from realm.index.merge import merge_hits
from realm.index.part_stream import RowsFrom, Stream
from realm.index.scann import Scann
from realm.index.scann_settings import derive
from realm.index.vectors import (
    IndexBuildError,
    IndexLoadError,
    check_query,
    counted_shards,
    read_facts,
    shape_of,
    write_facts,
)
from realm.protocols import Hits, Searcher

log = logging.getLogger(__name__)

# Then ScaNN builds a part of width 128 in 2.7 GB.
ROWS_A_SHARD = 1_500_000


@dataclass(frozen=True)
class Sharded:
    """index: what each part is. shards: how many parts, of row counts that differ by one at most.

    None: as many as give each at most 1.5 million rows. Never more than there are rows.
    """

    index: Exact | Scann | Alsh = field(default_factory=Scann)
    shards: int | None = None

    def __post_init__(self):
        if self.shards is not None and self.shards < 1:
            raise IndexBuildError(f"shards is {self.shards}, wanted at least 1")

    def starts(self, rows: int) -> list[int]:
        """The first row of each part, and `rows` at the end."""
        count = min(rows, self.shards or -(-rows // ROWS_A_SHARD))
        return [rows * part // count for part in range(count + 1)]

    def build(
        self, shards: Iterable[np.ndarray], mesh: Mesh | Sequence[Any] | None = None, rows: int | None = None
    ) -> ShardedSearcher:
        """Builds part after part from arrays [n, E] in row order; with `rows` known they are streamed.

        mesh: a mesh over whose axis 'data' every part is divided, or devices that take the parts in turn (Exact only).
        Raises IndexBuildError as read_shards and the kind do.
        """
        rows, dim, starts, parts = self._parts(shards, mesh, rows)
        return ShardedSearcher(rows, dim, self, tuple(parts), tuple(starts))

    def build_into(self, folder: Any, shards: Iterable[np.ndarray], rows: int | None = None) -> dict[str, Any]:
        """Builds part after part as `build` does, saves each in `folder` and lets it go; returns the settings.

        What `save` would have written, in the memory of one part, for an index that is loaded from disk anyway: what
        ScaNN has just built holds twice what it holds when it is loaded. Raises as `build`.
        """
        kept: list[dict[str, Any]] = []
        rows, dim, starts, parts = self._parts(shards, None, rows)
        for built in parts:
            built.save(Path(folder) / part_name(len(kept)))
            kept.append(built.settings())
            del built  # before the next one is begun
        self._write_facts(folder, rows, dim, starts)
        return {"kind": ShardedSearcher.kind, "rows": rows, "dim": dim, "shards": len(kept), "part": kept[0]}

    def _parts(
        self, shards: Iterable[np.ndarray], mesh: Mesh | Sequence[Any] | None, rows: int | None
    ) -> tuple[int, int, list[int], Iterator[Searcher]]:
        """(rows, width, starts, the parts): each is built when it is asked for, and not held here."""
        pieces, rows = counted_shards(shards, np.float32, rows)
        first_NE = next(pieces)
        dim, starts = first_NE.shape[1], self.starts(rows)
        inner = _for_parts_of(self.index, rows, dim)
        stream = Stream(chain([first_NE], pieces), dim)
        del first_NE

        def built() -> Iterator[Searcher]:
            for part, (start, stop) in enumerate(pairwise(starts)):
                log.info("part %d of %d: rows %d to %d", part + 1, len(starts) - 1, start, stop - 1)
                yield inner.build(stream.take(stop - start), _mesh_of(mesh, part), rows=stop - start)
            next(pieces, None)  # the check that no row is left

        return rows, dim, starts, built()

    def _write_facts(self, folder: Any, rows: int, dim: int, starts: Sequence[int]) -> None:
        facts = {"kind": ShardedSearcher.kind, "rows": rows, "dim": dim}
        write_facts(folder, facts | {"index": type(self.index).__name__, "starts": list(starts)})

    def bytes_plan(self, rows: int, dim: int, devices: int = 1) -> IndexBytes:
        """The parts together. Built into a folder, as a refresher does, it takes no more than one part."""
        inner = _for_parts_of(self.index, rows, dim)
        parts = [inner.bytes_plan(stop - start, dim, devices) for start, stop in pairwise(self.starts(rows))]
        whole = IndexBytes(*(sum(part[place] for part in parts) for place in range(5)))
        return whole._replace(
            build_host=max(part.build_host for part in parts),
            build_device=max(part.build_device for part in parts),
        )

    def load(
        self, folder: Any, shards: Iterable[np.ndarray] | None = None, mesh: Mesh | Sequence[Any] | None = None
    ) -> ShardedSearcher:
        """The index saved in `folder`. shards: the vectors over Exact, for other kinds only their shapes are compared.

        Without `rows` and `dim` of their own they are held until all parts are loaded. Raises IndexLoadError: another
        kind, inner kind, rows, width or number of parts (both named), or what the inner kind raises.
        """
        facts = read_facts(folder, ShardedSearcher.kind)
        rows, dim = facts["rows"], facts["dim"]
        try:
            built, starts = facts["index"], [int(start) for start in facts["starts"]]
        except (KeyError, TypeError, ValueError) as error:
            raise IndexLoadError(f"{folder}: index.json does not describe its parts ({error})") from error
        if built != type(self.index).__name__:
            raise IndexLoadError(f"{folder} holds parts of {built}, wanted {type(self.index).__name__}")
        if self.shards is not None and starts != self.starts(rows):
            wanted = len(self.starts(rows)) - 1
            raise IndexLoadError(f"{folder} was built with shards {len(starts) - 1}, wanted {wanted}; build it anew")
        if shards is not None:
            if not (hasattr(shards, "rows") and hasattr(shards, "dim")):
                shards = list(shards)
            found, widths = shape_of(shards)
            if found != rows or widths != [dim]:
                raise IndexLoadError(f"{folder}: the shards hold {found} rows, widths {widths}; wanted {rows}, [{dim}]")
        # Opened by the first part that reads it: only Exact does.
        stream = Stream(chain.from_iterable(() if shards is None else (shards,)), dim)
        inner = _for_parts_of(self.index, rows, dim)
        parts = []
        for part, (start, stop) in enumerate(pairwise(starts)):
            parts.append(inner.load(Path(folder) / part_name(part), stream.take(stop - start), _mesh_of(mesh, part)))
            if (parts[-1].rows, parts[-1].dim) != (stop - start, dim):
                found = f"{parts[-1].rows} rows of width {parts[-1].dim}"
                raise IndexLoadError(f"{folder}: part {part} holds {found}, wanted {stop - start} of {dim}")
        return ShardedSearcher(rows, dim, self, tuple(parts), tuple(starts))

    def renew(self, folder: Any, vectors: Any, spans: Sequence[tuple[int, int]]) -> ShardedSearcher:
        """The index saved in `folder` with the rows [low, high) of `spans` anew from `vectors` (iterable; rows, dim,
        take); built anew where its parts cannot be renewed. Raises as `load` and the kind do."""
        if not hasattr(self.index, "renew"):
            return self.build(vectors, rows=vectors.rows)
        searcher = self.load(folder, vectors)
        for part, (start, stop) in zip(searcher.parts, pairwise(searcher.starts), strict=True):
            inside = [(max(low, start) - start, min(high, stop) - start) for low, high in spans]
            part.upsert(RowsFrom(vectors, start), [(low, high) for low, high in inside if low < high])
        return searcher


@dataclass(frozen=True, eq=False)
class ShardedSearcher:
    """A built index in parts; starts: the first row of each part, and `rows`."""

    rows: int
    dim: int
    config: Sharded
    parts: tuple[Searcher, ...] = field(repr=False)
    starts: tuple[int, ...] = field(repr=False)
    kind: ClassVar[str] = "sharded"

    def search(self, query_BE: Any, k: int) -> Hits:
        """The k best of all parts' k best for each query [B, E], equal scores by row. Raises QueryError."""
        query_BE = check_query(query_BE, self.dim, k)
        found = (part.search(query_BE, int(k)) for part in self.parts)
        return merge_hits(zip(self.starts, found, strict=False), int(k))

    def settings(self) -> dict[str, Any]:
        """What was built, for logs and manifests; `part` is the first one, the others differ in their rows."""
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "shards": len(self.parts)}
        return facts | {"part": self.parts[0].settings()}

    def save(self, folder: Any) -> None:
        """Writes each part into a folder of its own, and `index.json`."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for part, searcher in enumerate(self.parts):
            searcher.save(Path(folder) / part_name(part))
        self.config._write_facts(folder, self.rows, self.dim, self.starts)


def part_name(part: int) -> str:
    return f"part-{part:05d}"


def _for_parts_of(index: Exact | Scann | Alsh, rows: int, dim: int) -> Exact | Scann | Alsh:
    """The index for each part, with what has to follow from the whole corpus fixed."""
    if isinstance(index, Scann):
        # Whether the vectors fit in float32 is a question about all of them.
        return replace(index, reorder_dtype=derive(rows, dim, **index.given()).reorder_dtype)
    return index


def _mesh_of(mesh: Mesh | Sequence[Any] | None, part: int) -> Mesh | None:
    if mesh is None or isinstance(mesh, Mesh):
        return mesh
    return jax.make_mesh((1,), ("data",), devices=[mesh[part % len(mesh)]])
