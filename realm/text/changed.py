"""Which blocks of a corpus another version of it has too: those keep their vectors, only the others are embedded again.

A block's vector is a function of its title's and its body's wordpieces and of the encoder, so rows with the same
wordpieces are the same to an index. A corpus made by `edit_corpus` brings the answer along; for any other two it is
found from hashes, and every pair is compared wordpiece by wordpiece.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from realm.text import grouping
from realm.text.build_kept import ranges
from realm.text.columns import open_array
from realm.text.corpus import CorpusError
from realm.text.table import BlockTable

PARENT_ROW = "parent_row"  # the array in the folder of an edited corpus
CHUNK_ROWS = 1 << 14


class ChangedRows(NamedTuple):
    """old_row_N int64 [rows of the new table]: the old row with the same wordpieces, -1 where there is none.
    new_row_O int64 [rows of the old table]: where each old row's block went, -1 where it is gone."""

    old_row_N: np.ndarray
    new_row_O: np.ndarray

    @property
    def changed(self) -> np.ndarray:
        """int64: the new rows that have to be embedded, ascending."""
        return np.flatnonzero(self.old_row_N < 0)


def changed_rows(old: BlockTable, new: BlockTable) -> ChangedRows:
    """What became of each row from `old` to `new`. Vectors of one encoder only carry over, as `vector_N = old_vector[
    old_row_N]` wherever old_row_N >= 0.

    Raises CorpusError when the two were cut with different vocabularies.
    """
    if old.tokenizer.fingerprint != new.tokenizer.fingerprint:
        raise CorpusError(
            f"found the vocabulary {new.tokenizer.fingerprint[:12]} in {new.path} and {old.tokenizer.fingerprint[:12]} "
            f"in {old.path}, wanted one and the same: every block has to be embedded"
        )
    if new.manifest.get("lineage", {}).get("parent") == old.fingerprint:
        old_row_N = open_array(new.path, PARENT_ROW)
    else:
        old_row_N = same_rows(old, new, np.arange(new.rows))
    return ChangedRows(old_row_N, _inverse(old_row_N, old.rows))


def same_rows(old: BlockTable, new: BlockTable, row_R: np.ndarray) -> np.ndarray:
    """int64 [R]: for rows `row_R` of `new` a row of `old` with the same wordpieces, -1 where there is none.

    Of several the k-th of the new takes the k-th of the old, as long as there are as many, and then the first.
    """
    key_R = _keys(new, row_R)
    wanted = np.unique(key_R)
    found = [np.zeros(0, np.int64)]
    keys = [np.zeros(0, np.uint64)]
    for low in range(0, old.rows, CHUNK_ROWS):
        row_C = np.arange(low, min(low + CHUNK_ROWS, old.rows))
        key_C = _keys(old, row_C)
        hit_C = np.isin(key_C, wanted)
        found.append(row_C[hit_C])
        keys.append(key_C[hit_C])
    old_F, key_F = np.concatenate(found), np.concatenate(keys)
    order_F = np.argsort(key_F, kind="stable")
    old_F, key_F = old_F[order_F], key_F[order_F]
    low_R, high_R = (np.searchsorted(key_F, key_R, side) for side in ("left", "right"))
    place_R = low_R + _ordinal(key_R)
    place_R = np.where(place_R < high_R, place_R, low_R)
    old_R = np.full(len(row_R), -1, np.int64)
    some_R = low_R < high_R
    old_R[some_R] = old_F[place_R[some_R]]
    some = np.flatnonzero(some_R)
    for low in range(0, len(some), CHUNK_ROWS):
        pair = some[low : low + CHUNK_ROWS]
        old_R[pair[~_equal(old, old_R[pair], new, row_R[pair])]] = -1
    return old_R


def _keys(table: BlockTable, row_R: np.ndarray) -> np.ndarray:
    """uint64 [R]: a hash of the wordpieces of title and body."""
    key = np.empty(len(row_R), np.uint64)
    for low in range(0, len(row_R), CHUNK_ROWS):
        row_C = row_R[low : low + CHUNK_ROWS]
        document_C = table.document_N[row_C]
        halves = []
        for flat, offset, place in (
            (table.title_flat, table.title_offset_D1, document_C),
            (table.token_flat, table.token_offset_N1, row_C),
        ):
            halves.append(grouping.span_hashes(flat, offset[place], offset[place + 1] - offset[place]))
        key[low : low + CHUNK_ROWS] = grouping.pair_hash(*halves)
    return key


def _ordinal(key_R: np.ndarray) -> np.ndarray:
    """For each key how many equal ones stand before it."""
    order_R = np.argsort(key_R, kind="stable")
    sorted_R = key_R[order_R]
    ordinal_R = np.empty(len(key_R), np.int64)
    ordinal_R[order_R] = np.arange(len(key_R)) - np.searchsorted(sorted_R, sorted_R, side="left")
    return ordinal_R


def _equal(old: BlockTable, old_R: np.ndarray, new: BlockTable, new_R: np.ndarray) -> np.ndarray:
    """bool [R]: whether the pairs have the same wordpieces, one by one."""
    same_R = np.ones(len(old_R), bool)
    for old_flat, old_offset, old_place, new_flat, new_offset, new_place in (
        (old.token_flat, old.token_offset_N1, old_R, new.token_flat, new.token_offset_N1, new_R),
        (
            old.title_flat,
            old.title_offset_D1,
            old.document_N[old_R],
            new.title_flat,
            new.title_offset_D1,
            new.document_N[new_R],
        ),
    ):
        size_R = old_offset[old_place + 1] - old_offset[old_place]
        same_R &= size_R == new_offset[new_place + 1] - new_offset[new_place]
        size_R = np.where(same_R, size_R, 0)
        differs = old_flat[ranges(old_offset[old_place], size_R)] != new_flat[ranges(new_offset[new_place], size_R)]
        same_R &= np.bincount(np.repeat(np.arange(len(size_R)), size_R)[differs], minlength=len(size_R)) == 0
    return same_R


def _inverse(old_row_N: np.ndarray, old_rows: int) -> np.ndarray:
    """Of several new rows with one old row the first counts."""
    new_row_O = np.full(old_rows, -1, np.int64)
    kept_N = np.flatnonzero(old_row_N >= 0)[::-1]
    new_row_O[old_row_N[kept_N]] = kept_N
    return new_row_O
