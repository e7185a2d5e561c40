"""From wordpieces to the padded arrays that encoders read: [CLS] title [SEP] body [SEP], and [CLS] query [SEP].

The layout is ORQA's and REALM's (arXiv 1906.00300, 2002.08909). The null block, REALM's candidate 0, is an empty
title and an empty body: [CLS] [SEP] [SEP]. It is packed like any other, as row -1. This runs in every training step,
so all rows are packed at once by index arithmetic on the table's flat arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer

NULL_BLOCK = -1


class PackingError(ValueError):
    """Something that does not fit the padded arrays."""


def pack_blocks(table: BlockTable, row_N: np.ndarray, length: int) -> dict[str, np.ndarray]:
    """The blocks `row_N` (1-D, integers; -1 = null block), padded to `length`.

    Returns token_NT int32 [N, length], length_N int32 with all special tokens, and body_N int32, the position of
    the body's first wordpiece: segments are 0 before it and 1 from it on. A body that is too long loses its tail and
    keeps the last [SEP]; a title only where it leaves no room for the special tokens. Raises PackingError for
    length < 3, IndexError for a row that is not there.
    """
    row_N = np.asarray(row_N)
    if length < 3 or row_N.ndim != 1:
        raise PackingError(f"found length {length} and rows of shape {row_N.shape}, wanted at least 3 and a vector")
    if row_N.size and not (NULL_BLOCK <= row_N.min() and row_N.max() < table.rows):
        raise IndexError(f"found rows {row_N.min()} to {row_N.max()}, wanted -1 (null block) to {table.rows - 1}")
    real_N = row_N != NULL_BLOCK
    safe_N = np.where(real_N, row_N, 0)
    title_start_N, title_size_N = _places(table.title_offset_D1, table.document_N[safe_N], real_N)
    body_start_N, body_size_N = _places(table.token_offset_N1, safe_N, real_N)
    title_size_N = np.minimum(title_size_N, length - 3)
    body_size_N = np.minimum(body_size_N, length - 3 - title_size_N)
    body_N = title_size_N + 2
    length_N = body_N + body_size_N + 1

    token_NT = np.full((len(row_N), length), table.tokenizer.pad, np.int32)
    place_T = np.arange(length)
    in_title_NT = (place_T >= 1) & (place_T < body_N[:, None] - 1)
    in_body_NT = (place_T >= body_N[:, None]) & (place_T < length_N[:, None] - 1)
    token_NT[in_title_NT] = table.title_flat[(title_start_N[:, None] + place_T - 1)[in_title_NT]]
    token_NT[in_body_NT] = table.token_flat[((body_start_N - body_N)[:, None] + place_T)[in_body_NT]]
    every_N = np.arange(len(row_N))
    token_NT[:, 0] = table.tokenizer.cls
    token_NT[every_N, body_N - 1] = table.tokenizer.sep
    token_NT[every_N, length_N - 1] = table.tokenizer.sep
    return {"token_NT": token_NT, "length_N": length_N.astype(np.int32), "body_N": body_N.astype(np.int32)}


def pack_queries(queries: Sequence[np.ndarray], length: int, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Queries as wordpieces, padded to `length`: token_BT int32 [B, length] and length_B int32.

    A query that is too long loses its tail and keeps its [SEP]. Raises PackingError for length < 2.
    """
    if length < 2:
        raise PackingError(f"found length {length}, wanted at least 2: [CLS] and [SEP]")
    token_BT = np.full((len(queries), length), tokenizer.pad, np.int32)
    length_B = np.empty(len(queries), np.int32)
    for number, query in enumerate(queries):
        size = min(len(query), length - 2)
        token_BT[number, 0] = tokenizer.cls
        token_BT[number, 1 : size + 1] = query[:size]
        token_BT[number, size + 1] = tokenizer.sep
        length_B[number] = size + 2
    return token_BT, length_B


def _places(offset: np.ndarray, number_N: np.ndarray, real_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the wordpieces of each row start in the flat array, and how many they are: none for a null block."""
    start_N = offset[number_N]
    return start_N, np.where(real_N, offset[number_N + 1] - start_N, 0)
