"""ScaNN (Guo et al. 2020): approximate maximum inner product search on the host, for corpora too large for Exact.

A k-means tree chooses the leaves to look at, product quantisation with an anisotropic loss scores what is in them, and
the best of those are scored again with the vectors themselves. Settings left None are derived from the corpus.
The wrapper ends three traps of scann 1.4.2: a neighbour not found comes back as row 0 with distance NaN, a batch in
which no query found k has fewer columns, and with its usual `min_partition_size` neither two builds nor two batch sizes
agree. ScaNN tells its progress on stderr; that is left alone, because its errors come the same way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from realm.index.index_bytes import FACTS, IndexBytes, itemsize, piece_bytes
from realm.index.scann_settings import ScannSettings, derive
from realm.index.vectors import (
    IndexBuildError,
    IndexLoadError,
    check_query,
    gather_shards,
    read_facts,
    read_shards,
    shape_of,
    write_facts,
)
from realm.protocols import Hits

log = logging.getLogger(__name__)

# With more than 1, scann moves the rows of small leaves elsewhere, and that differs between builds and batch sizes.
MIN_PARTITION_SIZE = 1
# From so many queries on, two threads were as fast as one or faster; blocks above 256 queries gained nothing.
PARALLEL_FROM = 16
PARALLEL_BLOCK = 256
# Rows replaced in one call.
UPSERTED = 16384


class ScannMissing(RuntimeError):
    """The scann package cannot be imported."""


@dataclass(frozen=True)
class Scann:
    """Settings left None follow from the corpus (scann_settings.derive); any may be given, for any corpus.

    leaves, leaves_to_search: the tree. training_sample: rows that train tree and codes. dims_per_block, anisotropic:
    the quantisation and its threshold T. reorder: how many candidates are scored again, never fewer than 2k unless 0.
    reorder_dtype: how the vectors for that are kept. threads: for building and searching, 0 for every core.
    """

    leaves: int | None = None
    leaves_to_search: int | None = None
    training_sample: int | None = None
    dims_per_block: int | None = None
    anisotropic: float | None = None
    reorder: int | None = None
    reorder_dtype: Literal["float32", "bfloat16"] | None = None
    threads: int = 0

    def given(self) -> dict[str, Any]:
        """The settings that are not left to be derived."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "threads"}

    def build(self, shards: Iterable[np.ndarray], mesh: Any = None, rows: int | None = None) -> ScannSearcher:
        """Trains and fills an index over the rows of `shards`, arrays [n, E].

        Measured with a tree and quantisation: 3.5 times the float32 vectors while building (ours, ScaNN's, its training
        data), one copy and the codes afterwards; brute force 2 times. mesh is for the kinds that search on devices.
        Raises IndexBuildError as read_shards and derive do, ScannMissing.
        """
        library, options = _scann()
        vector_NE = gather_shards(shards, rows)
        rows, dim = vector_NE.shape
        settings = derive(rows, dim, **self.given())
        threads = _threads(self.threads)
        log.info("ScaNN index over %d rows of width %d: %s", rows, dim, settings)
        plan = library.builder(vector_NE, 1, "dot_product").set_n_training_threads(threads)
        if settings.leaves:
            plan = plan.tree(
                settings.leaves,
                settings.leaves_to_search,
                training_sample_size=settings.training_sample,
                min_partition_size=MIN_PARTITION_SIZE,
            )
        if settings.dims_per_block:
            plan = plan.score_ah(
                settings.dims_per_block,
                anisotropic_quantization_threshold=settings.anisotropic,
                training_sample_size=settings.training_sample,
            )
        else:
            plan = plan.score_brute_force()
        if settings.reorder:
            plan = plan.reorder(settings.reorder, options.ReorderType[settings.reorder_dtype.upper()])
        return ScannSearcher(rows, dim, settings, threads, plan.build())

    def load(self, folder: Any, shards: Iterable[np.ndarray] | None = None, mesh: Any = None) -> ScannSearcher:
        """The index saved in `folder`, which may have been moved. Settings left None are those it was built with.

        leaves_to_search, reorder (unless it was 0) and threads may be given anew. shards: only their shapes are
        compared. Raises IndexLoadError: another kind, rows, width or built-in setting (both named),
        files missing, a pickle among them; ScannMissing.
        """
        library, _ = _scann()
        facts = read_facts(folder, ScannSearcher.kind)
        rows, dim = facts["rows"], facts["dim"]
        if shards is not None:
            found, widths = shape_of(shards)
            if found != rows or widths != [dim]:
                raise IndexLoadError(f"{folder}: the shards hold {found} rows, widths {widths}; wanted {rows}, [{dim}]")
        settings = self._reloaded(folder, facts)
        pickles = sorted(path.name for path in Path(folder).glob("*.pkl"))
        if pickles:
            raise IndexLoadError(f"{folder} holds {pickles}; a pickle can run code, so none is read: delete it")
        try:
            searcher = library.load_searcher(str(folder), assets_backcompat_shim=False)
            held = searcher.size()
            searcher.search_batched(np.zeros((1, dim), np.float32), final_num_neighbors=1)
        except (RuntimeError, ValueError, OSError) as error:
            raise IndexLoadError(f"{folder}: ScaNN cannot read an index of width {dim} from it: {error}") from error
        if held != rows:
            raise IndexLoadError(f"{folder}: ScaNN's files hold {held} rows, index.json says {rows}")
        return ScannSearcher(rows, dim, settings, _threads(self.threads), searcher)

    def bytes_plan(self, rows: int, dim: int, devices: int = 1) -> IndexBytes:
        """From the settings: vectors, a byte (on disk) or half of one (searched, with a tree) for each code, 4 bytes on
        disk and 8 in memory for a row's leaf, and 8.6 for each number of a centroid.

        Building takes what `build` says: 3.5 times the float32 vectors, or 2 where nothing is trained.
        """
        settings = derive(rows, dim, **self.given())
        codes = -(-dim // settings.dims_per_block) if settings.dims_per_block else 0
        kept = itemsize(settings.reorder_dtype) if settings.dims_per_block and settings.reorder else 0
        kept = kept or (0 if settings.dims_per_block else 4)
        leaves = round(8.6 * settings.leaves * dim)
        disk = rows * (kept * dim + codes + 4 * bool(settings.leaves)) + leaves + FACTS
        unpacked = 0 if settings.leaves else codes
        host = rows * (kept * dim + codes // 2 + unpacked + 8 * bool(settings.leaves)) + leaves
        copies = 3.5 if settings.leaves or codes else 2
        build = round(copies * 4 * rows * dim) + piece_bytes(rows, dim)
        return IndexBytes(disk, host, 0, build, 0)

    def renew(self, folder: Any, vectors: Any, spans: Iterable[tuple[int, int]]) -> ScannSearcher:
        """The index saved in `folder` with the rows [low, high) of `spans` anew from `vectors` (rows, dim, take).

        Leaves, codes and settings stay those it was trained with; a row goes to the leaf that its new vector belongs
        to. Upserting rows by number is what scann's inner searcher does: its layer of names above it would save a
        pickle. The same folder and vectors give the same files. Raises as `load`, and IndexBuildError for vectors that
        no index takes.
        """
        searcher = self.load(folder)
        if (vectors.rows, vectors.dim) != (searcher.rows, searcher.dim):
            found = f"{searcher.rows} rows of width {searcher.dim}"
            raise IndexLoadError(f"{folder} holds {found}, wanted {vectors.rows} of {vectors.dim}")
        searcher.upsert(vectors, spans)
        return searcher

    def _reloaded(self, folder: Any, facts: dict[str, Any]) -> ScannSettings:
        """The settings to search a saved index with; refuses to change what was built in."""
        try:
            built = ScannSettings(**facts["settings"])
        except (KeyError, TypeError) as error:
            raise IndexLoadError(f"{folder}: index.json has no ScaNN settings ({error})") from error
        try:
            asked = derive(facts["rows"], facts["dim"], **(asdict(built) | self.given()))
        except IndexBuildError as error:  # for instance a tree where there is none
            known = asdict(built)
            apart = "; ".join(f"{name} {known[name]}, wanted {value}" for name, value in self.given().items())
            raise IndexLoadError(f"{folder} was built with {apart}: {error}; build the index anew") from error
        for name, was in asdict(built).items():
            wanted = getattr(asked, name)
            free = name == "leaves_to_search" or (name == "reorder" and was and wanted)
            if wanted != was and not free:
                raise IndexLoadError(f"{folder} was built with {name} {was}, wanted {wanted}; build the index anew")
        return asked


@dataclass(frozen=True, eq=False)
class ScannSearcher:
    """A built ScaNN index."""

    rows: int
    dim: int
    chosen: ScannSettings
    threads: int
    searcher: Any = field(repr=False)
    kind: ClassVar[str] = "scann"

    def __post_init__(self):
        self.searcher.set_num_threads(self.threads)

    def search(self, query_BE: Any, k: int) -> Hits:
        """The k best rows found for each query [B, E], best first, equal scores by row. Raises QueryError."""
        query_BE = check_query(query_BE, self.dim, k)
        batch = len(query_BE)
        if batch == 0:
            return _as_hits(np.zeros((0, 0), np.uint32), np.zeros((0, 0), np.float32), k)
        wanted = {
            "final_num_neighbors": min(int(k), self.rows),
            "leaves_to_search": self.chosen.leaves_to_search or None,
            "pre_reorder_num_neighbors": max(self.chosen.reorder, 2 * int(k)) if self.chosen.reorder else None,
        }
        if self.threads > 1 and batch >= PARALLEL_FROM:
            block = min(PARALLEL_BLOCK, -(-batch // self.threads))
            found = self.searcher.search_batched_parallel(query_BE, **wanted, batch_size=block)
        else:
            found = self.searcher.search_batched(query_BE, **wanted)
        return _as_hits(*found, k)

    def upsert(self, vectors: Any, spans: Iterable[tuple[int, int]]) -> None:
        """Replaces the rows [low, high) of `spans` in place; nobody may be searching meanwhile."""
        for low, high in spans:
            pieces = (vectors.take(np.arange(at, min(at + UPSERTED, high))) for at in range(low, high, UPSERTED))
            first = low
            for new_NE in read_shards(pieces, rows=high - low):
                self.searcher.searcher.upsert(list(range(first, first + len(new_NE))), new_NE, len(new_NE))
                first += len(new_NE)

    def settings(self) -> dict[str, Any]:
        """What was built, for logs and manifests."""
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "threads": self.threads}
        return facts | asdict(self.chosen)

    def save(self, folder: Any) -> None:
        """Writes ScaNN's files, with paths relative to the folder, and `index.json`."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.searcher.serialize(str(folder), relative_path=True)
        facts = {"kind": self.kind, "rows": self.rows, "dim": self.dim, "settings": asdict(self.chosen)}
        write_facts(folder, facts)


def _as_hits(row_BN: np.ndarray, score_BN: np.ndarray, k: int) -> Hits:
    """ScaNN's rows and scores as exactly k columns; a NaN means not found, whatever row stands beside it."""
    found_BN = score_BN > -np.inf
    width = row_BN.shape[1]
    if width == k and found_BN.all() and (score_BN[:, 1:] < score_BN[:, :-1]).all():
        return Hits(score_BN, row_BN.astype(np.int32), found_BN)  # nearly always: all found, no ties
    score_BK = np.full((len(row_BN), k), -np.inf, np.float32)
    id_BK = np.zeros((len(row_BN), k), np.int32)
    score_BK[:, :width] = np.where(found_BN, score_BN, -np.inf)
    id_BK[:, :width] = np.where(found_BN, row_BN, 0)
    order_BK = np.lexsort((id_BK, -score_BK))
    score_BK, id_BK = (np.take_along_axis(a_BK, order_BK, axis=1) for a_BK in (score_BK, id_BK))
    return Hits(score_BK, id_BK, score_BK > -np.inf)


def _threads(wanted: int) -> int:
    if wanted < 0:
        raise IndexBuildError(f"threads is {wanted}, wanted 0 (every core) or more")
    return wanted or len(os.sched_getaffinity(0))


def _scann():
    try:
        from scann.scann_ops.py import scann_builder, scann_ops_pybind
    except (ImportError, OSError) as error:
        raise ScannMissing(
            f"scann cannot be imported ({error}); type `pip install scann` (Linux only), or choose the index Exact, "
            "which needs no other package"
        ) from error
    return scann_ops_pybind, scann_builder
