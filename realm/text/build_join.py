"""Parts, one after the other, into the arrays of a corpus folder; then what needs the whole corpus.

A part adds its rows and is forgotten. Which blocks are identical and how many others hold a span is found from hashes
on disk, a bucket of them at a time: so memory does not grow with the corpus but for a few numbers a document.
"""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from realm.text import grouping
from realm.text.assemble import COUNTS, Part
from realm.text.columns import BLOCK_RAGGED, DOCUMENT_RAGGED, Column, Ragged, RaggedColumn, open_array, save_array

MOST_TAGGERS, OTHERS = 255, "others"
GROWING = {"document": "<i4", "length": "<i4", "heldout": "|b1", "first_row": "<i8", "tagger": "|u1"}
CHUNK_ROWS = 1 << 14


class Join:
    """The growing table in `folder`, to be used in a `with`; `aside` is a folder for what is needed on the way only."""

    def __init__(self, folder: Path, aside: Path):
        self.folder, self._aside = folder, aside
        ragged = {**BLOCK_RAGGED, **DOCUMENT_RAGGED}
        self._ragged = {name: RaggedColumn(folder, name, *ragged[name]) for name in ragged}
        self._plain = {name: Column(folder / f"{name}.npy", dtype) for name, dtype in GROWING.items()}
        self._digest = Column(aside / "digest.npy", "<u8", 2)
        self._id_hashes = array("Q")
        self.kinds: dict[str, int] = {}  # label -> number, in order of first use
        self.taggers: dict[str, int] = {}
        self.counts, self.span_skips = Counter(dict.fromkeys(COUNTS, 0)), Counter()
        self.blocks = 0
        self.indexed = 0  # rows that may be retrieved: the first ones
        self.only_retrieved = 0  # of them, the last ones: those that are never masked
        self.empty = 0  # documents in which the tokenizer finds nothing

    def __enter__(self) -> Join:
        return self

    def __exit__(self, *_) -> None:
        for column in (*self._ragged.values(), *self._plain.values(), self._digest):
            column.close()

    def add(self, part: Part, role: str) -> None:
        """The rows of a part. Roles come one after the other: documents, only_retrieved, only_masked."""
        arrays = part.arrays
        kind_K = np.array([self.kinds.setdefault(label, len(self.kinds)) for label in part.kinds], np.int32)
        span_P6 = arrays["span"].copy()
        span_P6[:, 5] = kind_K[span_P6[:, 5]] if len(kind_K) else 0
        for name, column in self._ragged.items():
            column.extend(span_P6 if name == "span" else arrays[name], arrays[f"{name}_count"])
        tagger_K = np.array([self._tagger(name) for name in part.taggers], np.uint8)
        self._plain["tagger"].append(tagger_K[arrays["tagger"]] if len(tagger_K) else np.zeros(0, np.uint8))
        first_D = self.blocks + np.cumsum(arrays["blocks"]) - arrays["blocks"]
        self._plain["document"].append(arrays["document"] + self.counts["documents"])
        self._plain["length"].append(arrays["length"])
        self._plain["heldout"].append(arrays["heldout"])
        self._plain["first_row"].append(first_D)
        self._digest.append(arrays["digest"].view("<u8").reshape(-1, 2))
        self._id_hashes.frombytes(arrays["id_hash"].tobytes())
        blocks = len(arrays["length"])
        self.blocks += blocks
        if role != "only_masked":
            self.indexed = self.blocks
        if role == "only_retrieved":
            self.only_retrieved += blocks
        self.counts.update(part.counts)
        self.span_skips.update(part.span_skips)
        self.empty += part.empty

    def _tagger(self, name: str) -> int:
        """Its number, of which a byte has room for 256: all names past that share the last."""
        name = name if name in self.taggers or len(self.taggers) < MOST_TAGGERS else OTHERS
        return self.taggers.setdefault(name, len(self.taggers))

    def finish(self) -> dict[str, Any]:
        """Closes the arrays, adds those that need the whole corpus, and returns all counts."""
        self._plain["first_row"].append([self.blocks])
        self.__exit__()
        folder = self.folder
        duplicate_N = grouping.smallest_equal(np.load(self._aside / "digest.npy", mmap_mode="r"))
        save_array(folder, "duplicate", duplicate_N, "<i4")
        id_hash_D = np.frombuffer(self._id_hashes, np.uint64)
        order_D = np.argsort(id_hash_D, kind="stable")
        save_array(folder, "id_hash", id_hash_D[order_D], "<u8")
        save_array(folder, "id_order", order_D, "<i4")
        supported, by_kind = self._support(duplicate_N)
        return {
            **self.counts,
            "blocks": self.blocks,
            "indexed_blocks": self.indexed,
            "only_retrieved_blocks": self.only_retrieved,
            "duplicate_blocks": int((duplicate_N != np.arange(self.blocks)).sum()),
            "spans_supported": supported,
            "spans_by_kind": dict(zip(self.kinds, by_kind, strict=True)),
            "spans_by_tagger": self._by_tagger(),
        }

    def _by_tagger(self) -> dict[str, int]:
        tagger_P = open_array(self.folder, "tagger")
        return dict(zip(self.taggers, np.bincount(tagger_P, minlength=len(self.taggers)).tolist(), strict=True))

    def _support(self, duplicate_N: np.ndarray) -> tuple[int, list[int]]:
        """Writes `support`; (spans with any, spans of each kind)."""
        hash_column, group_column = Column(self._aside / "hash.npy", "<u8"), Column(self._aside / "group.npy", "<i4")
        by_kind_K = np.zeros(len(self.kinds), np.int64)
        for low in range(0, self.blocks, CHUNK_ROWS):
            high = min(low + CHUNK_ROWS, self.blocks)
            # mapped anew each time: pages that were read stay in memory for as long as their mapping lives
            token, span = Ragged.open(self.folder, "token"), Ragged.open(self.folder, "span")
            span_P6 = span.flat[span.offset[low] : span.offset[high]]
            row_P = np.repeat(np.arange(low, high), np.diff(span.offset[low : high + 1]))
            start_P = token.offset[row_P] + span_P6[:, 1]
            hash_column.append(grouping.span_hashes(token.flat, start_P, span_P6[:, 2] - span_P6[:, 1]))
            group_column.append(duplicate_N[row_P])
            by_kind_K += np.bincount(span_P6[:, 5], minlength=len(by_kind_K))
        hash_column.close()
        group_column.close()
        hash_P, group_P = (np.load(self._aside / f"{name}.npy", mmap_mode="r") for name in ("hash", "group"))
        last = int(open_array(self.folder, "span_offset")[self.indexed])  # spans before it make their blocks holders
        if not len(hash_P):
            save_array(self.folder, "support", np.zeros(0), "<i4")
            return 0, by_kind_K.tolist()
        support_P = np.lib.format.open_memmap(
            self.folder / "support.npy", mode="w+", dtype="<i4", shape=(len(hash_P),), version=(1, 0)
        )
        supported = 0
        for place_G in grouping.in_buckets(hash_P):
            support_G = grouping.other_holders(hash_P[place_G], group_P[place_G], place_G < last)
            support_P[place_G] = support_G
            supported += int((support_G > 0).sum())
        support_P.flush()
        return supported, by_kind_K.tolist()
