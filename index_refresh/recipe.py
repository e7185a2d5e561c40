"""The recipe: everything, besides parameters, that turns a snapshot into a generation.

It is data: an objective (whose `embed_items` makes the vectors), the folder of the corpus, an index config and batch
shapes. It pickles, so an engine may send it to another process or machine; opening the table and compiling happen
there. Which of its fields a generation depends on is written into every manifest (`settings`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from realm.protocols import Arrays, Objective, Params, Searcher

DTYPES = ("float32", "bfloat16")


class RecipeError(ValueError):
    """A recipe that no engine could follow."""


class Index(Protocol):
    """An index config (a frozen dataclass): N vectors in, a searcher out. Shards are float32 arrays in row order;
    `load` refuses a folder that another kind or other built-in settings left, and names both. `bytes_plan(rows, dim)`
    tells what it costs. A kind that has `renew(folder, vectors, spans)` puts new rows into a saved index."""

    def build(self, shards: Iterable[np.ndarray], mesh: Any = None, rows: int | None = None) -> Searcher: ...

    def load(self, folder: Any, shards: Iterable[np.ndarray], mesh: Any = None) -> Searcher: ...


class Table(Protocol):
    """What embedding needs of a corpus; `realm.text.table.BlockTable` is one. Rows 0 to indexed - 1 are embedded."""

    indexed: int
    fingerprint: str
    length_N: np.ndarray

    @property
    def tokenizer(self) -> Any: ...

    def block_id(self, row: int) -> str: ...


@dataclass(frozen=True)
class Recipe:
    """How blocks become vectors and vectors an index.

    `corpus` is a BlockTable folder. Blocks are embedded `batch_rows` at a time, padded to one of the ascending
    `lengths` (wordpieces, specials included; a longer block is cut to the last one), and stored `shard_rows` to a file.
    slices, rebuild: of a rolling refresh (`schedule.Rolling`); with 1 slice each generation embeds the whole corpus.
    Raises RecipeError.
    """

    objective: Objective
    corpus: str
    index: Index
    shard_rows: int = 65536
    batch_rows: int = 64
    lengths: tuple[int, ...] = (64, 128, 192, 288)
    vector_dtype: Literal["float32", "bfloat16"] = "float32"
    slices: int = 1
    rebuild: int = 0

    def __post_init__(self) -> None:
        if self.objective.items != "blocks":
            raise RecipeError(
                f"{type(self.objective).__name__} has items {self.objective.items!r}, wanted 'blocks': "
                "an objective without an index is trained without a refresh engine"
            )
        if self.slices < 1 or self.rebuild < 0:
            raise RecipeError(
                f"found slices={self.slices}, rebuild={self.rebuild}, wanted 1 slice or more, and rounds from 0 on"
            )
        if self.shard_rows < 1 or self.batch_rows < 1:
            raise RecipeError(
                f"found shard_rows={self.shard_rows}, batch_rows={self.batch_rows}, wanted numbers of rows from 1 on"
            )
        if not self.lengths or list(self.lengths) != sorted(set(self.lengths)) or self.lengths[0] < 4:
            raise RecipeError(f"found lengths={self.lengths}, wanted ascending lengths from 4 on, such as (64, 288)")
        if self.vector_dtype not in DTYPES:
            raise RecipeError(f"found vector_dtype={self.vector_dtype!r}, wanted one of {DTYPES}")

    def open_table(self) -> Table:
        """The corpus, memory-mapped."""
        from realm.text.table import BlockTable

        return BlockTable.open(Path(self.corpus))

    def pack(self, table: Table, row_N: np.ndarray, length: int) -> Arrays:
        """{token_NT, length_N, body_N} of these rows, -1 being the null block."""
        from realm.text.packing import pack_blocks

        return pack_blocks(table, row_N, length)

    def embedder(self, table: Table, params: Params) -> Any:
        """What turns blocks into vectors, in this process: an `embed.Embedder`."""
        from index_refresh.embed import Embedder

        return Embedder(self, table, params)

    def settings(self) -> dict[str, Any]:
        """The fields that vectors and index depend on, as JSON. The corpus counts by fingerprint, not by its folder."""
        return {
            "objective": repr(self.objective),
            "index": repr(self.index),
            "vector_dtype": self.vector_dtype,
            "lengths": list(self.lengths),
            "batch_rows": self.batch_rows,
            "shard_rows": self.shard_rows,
        } | ({"slices": self.slices, "rebuild": self.rebuild} if self.slices > 1 else {})
