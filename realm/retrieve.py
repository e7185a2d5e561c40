"""From search hits to the candidates that a loss marginalises over.

REALM (Guu et al. 2020, section 3.3-3.4): candidate 0 is the null block; the query's own block, which would give the
answer away, is dropped; what is left is cut to k columns with a validity mask, never refilled with a forbidden block.
The loss re-embeds the candidates, so each distinct block of a batch is packed once and addressed by slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from realm.protocols import Arrays, Hits, Searcher
from realm.text.answer_places import AnswerPlaces
from realm.text.packing import pack_blocks
from realm.text.table import BlockTable

NULL = -1


class RowsMismatch(ValueError):
    """An index and a corpus that do not belong together."""


class Candidates(NamedTuple):
    """id_BK int32 index rows (column 0 is NULL), valid_BK bool, own_hit_B bool: the search had found the own block."""

    id_BK: np.ndarray
    valid_BK: np.ndarray
    own_hit_B: np.ndarray


def choose_candidates(hits: Hits, own_B: np.ndarray, group_N: np.ndarray, k: int) -> Candidates:
    """Null block first, then the best k-1 hits that are not the query's own block or a byte-identical copy of it.

    own_B holds the own row or -1 for a query that comes from no block; group_N maps a row to the smallest row with
    the same bytes. Hits must have been asked with room for every copy (`search_width`).
    """
    group_BL = group_N[hits.id_BK]
    own_group_B = np.where(own_B >= 0, group_N[np.maximum(own_B, 0)], -1)
    own_BL = hits.valid_BK & (group_BL == own_group_B[:, None])
    keep_BL = hits.valid_BK & ~own_BL
    order_BL = np.argsort(~keep_BL, axis=1, kind="stable")[:, : k - 1]
    id_BL = np.take_along_axis(hits.id_BK, order_BL, axis=1)
    valid_BL = np.take_along_axis(keep_BL, order_BL, axis=1)
    rows = len(own_B)
    id_BK = np.zeros((rows, k), np.int32)
    valid_BK = np.zeros((rows, k), bool)
    id_BK[:, 0], valid_BK[:, 0] = NULL, True
    width = id_BL.shape[1]
    id_BK[:, 1 : 1 + width] = np.where(valid_BL, id_BL, 0)
    valid_BK[:, 1 : 1 + width] = valid_BL
    return Candidates(id_BK, valid_BK, own_BL.any(axis=1))


def queries_of(batch: Arrays) -> Arrays:
    """What `Objective.embed_queries` reads of a batch: the arrays named `query_*`."""
    return {name: array for name, array in batch.items() if name.startswith("query_")}


def device_arrays(batch: Arrays) -> Arrays:
    """What of a batch a device may see: all but the arrays named `host_*`."""
    return {name: array for name, array in batch.items() if not name.startswith("host_")}


def null_only(rows: int) -> Candidates:
    """The null block for each of `rows` queries: a model without retrieval."""
    return Candidates(np.full((rows, 1), NULL, np.int32), np.ones((rows, 1), bool), np.zeros(rows, bool))


def best_of(candidates: Candidates, score_BL: np.ndarray, k: int) -> Candidates:
    """The null block and the k-1 valid candidates of the highest scores, the earlier one where scores are equal.

    score_BL: of all columns of `candidates`; that of the null block does not matter.
    """
    score_BL = np.where(candidates.valid_BK, np.asarray(score_BL, np.float64), -np.inf)[:, 1:]
    order_BK = np.argsort(-score_BL, axis=1, kind="stable")[:, : k - 1] + 1
    order_BK = np.concatenate([np.zeros((len(order_BK), 1), order_BK.dtype), order_BK], axis=1)
    id_BK, valid_BK = (np.take_along_axis(array, order_BK, axis=1) for array in candidates[:2])
    return Candidates(id_BK, valid_BK, candidates.own_hit_B)


def search_width(own_B: np.ndarray, group_N: np.ndarray, copies_N: np.ndarray, k: int) -> int:
    """How many hits to ask for so that k-1 are left once each query's own block and all its copies are dropped.

    copies_N: how many rows each group has. Rounded up to a power of two above k-1, so that few widths occur.
    """
    real = own_B[own_B >= 0]
    copies = int(copies_N[group_N[real]].max()) if len(real) else 0
    return k - 1 + (1 << (copies - 1).bit_length() if copies else 0)


def distinct_blocks(candidates: Candidates, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(row_U, slot_BK): every distinct block once, the null block at slot 0, padded with null to one of `sizes`.

    Few sizes mean few compilations; the largest must hold a batch without any repetition.
    """
    wanted = np.unique(candidates.id_BK[candidates.valid_BK & (candidates.id_BK >= 0)])
    size = next(s for s in sizes if s >= len(wanted) + 1)
    row_U = np.full(size, NULL, np.int64)
    row_U[1 : 1 + len(wanted)] = wanted
    slot_BK = np.searchsorted(wanted, candidates.id_BK) + 1
    real_BK = candidates.valid_BK & (candidates.id_BK >= 0)
    return row_U, np.where(real_BK, slot_BK, 0).astype(np.int32)


def distinct_sizes(batch: int, k: int, multiple: int = 8) -> tuple[int, ...]:
    """Padded numbers of distinct blocks: half, three quarters and all of what a batch could need at most."""
    most = batch * (k - 1) + 1
    return tuple(
        sorted(
            {-(-int(most * share) // multiple) * multiple for share in (0.5, 0.75, 1.0)}
            | {-(-most // multiple) * multiple}
        )
    )


class Retrieval:
    """Search and packing for one corpus: everything between query vectors and the arrays a loss reads.

    `multiple`: the number of distinct blocks is padded to a multiple of it, so that they split over the devices.
    `one_shape`: always pad to the most there can be, because the processes of a job must all pack to one shape and do
    not know each other's blocks.
    """

    def __init__(
        self,
        table: BlockTable,
        *,
        candidates: int,
        block_lengths: tuple[int, ...],
        multiple: int = 8,
        one_shape: bool = False,
    ):
        self.table, self.k, self.one_shape = table, candidates, one_shape
        self.block_lengths = tuple(sorted(block_lengths))[-1:] if one_shape else tuple(sorted(block_lengths))
        self.multiple = multiple
        self.places = AnswerPlaces(table)
        self.group_N = np.asarray(table.duplicate_N)
        # Copies that are not in the index cannot be found.
        self.copies_N = np.bincount(self.group_N[: table.indexed], minlength=table.rows)

    def search(self, searcher: Searcher, query_BE: np.ndarray, own_B: np.ndarray) -> Candidates:
        """Candidates of each query; raises RowsMismatch when index and corpus have different row counts."""
        if searcher.rows != self.table.indexed:
            raise RowsMismatch(
                f"the index has {searcher.rows} rows but the corpus {self.table.path} has {self.table.indexed} blocks "
                "to retrieve; they must be built from the same corpus folder"
            )
        if self.k == 1:
            return null_only(len(own_B))
        width = search_width(own_B, self.group_N, self.copies_N, self.k)
        hits = searcher.search(np.asarray(query_BE, np.float32), width)
        return choose_candidates(hits, own_B, self.group_N, self.k)

    def retrieved(self, candidates: Candidates, stored: Callable[[], Any] | None = None) -> Retrieved:
        """What `Objective.found` is given. stored: gives the vectors of the index that found them."""
        return Retrieved(candidates, self, stored)

    def pack(self, candidates: Candidates) -> Arrays:
        """The arrays that a loss reads: `block` (each distinct one once), `slot_BK`, `valid_BK`, `own_hit_B`."""
        rows, k = candidates.id_BK.shape
        sizes = distinct_sizes(rows, k, self.multiple)
        row_U, slot_BK = distinct_blocks(candidates, sizes[-1:] if self.one_shape else sizes)
        real = row_U[row_U >= 0]
        longest = int(self.table.length_N[real].max()) if len(real) else 3
        fitting = [t for t in self.block_lengths if t >= longest] or [self.block_lengths[-1]]
        packed = pack_blocks(self.table, row_U, fitting[0])
        return {
            "block_token_UT": packed["token_NT"],
            "block_length_U": packed["length_N"],
            "block_body_U": packed["body_N"],
            "slot_BK": slot_BK,
            "valid_BK": candidates.valid_BK,
            "own_hit_B": candidates.own_hit_B,
        }


@dataclass(frozen=True)
class Retrieved:
    """What a batch's queries found, on the host: the candidates, and what can be had of them."""

    candidates: Candidates
    retrieval: Retrieval
    stored: Callable[[], Any] | None = None

    @property
    def places(self) -> AnswerPlaces:
        """Where answers stand in the blocks of the corpus."""
        return self.retrieval.places

    @cached_property
    def vectors(self) -> Any:
        """The index's vectors; `take(row_N)` gives float32 [N, E]. Raises RowsMismatch where there is no index."""
        if self.stored is None:
            raise RowsMismatch("found candidates of no index, wanted those of one that keeps its vectors")
        return self.stored()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Padded numbers of the distinct blocks that all columns may hold, ascending; never above the corpus's."""
        multiple = self.retrieval.multiple
        most = -(-self.retrieval.table.indexed // multiple) * multiple
        sizes = distinct_sizes(*self.candidates.id_BK.shape, multiple)
        return (min(sizes[-1], most),) if self.retrieval.one_shape else (*(s for s in sizes if s < most), most)

    def pack(self, columns: int | None = None) -> Arrays:
        """The arrays of the first `columns` columns (None: all of them), as Retrieval.pack gives them."""
        id_BK, valid_BK, own_hit_B = self.candidates
        return self.retrieval.pack(Candidates(id_BK[:, :columns], valid_BK[:, :columns], own_hit_B))
