"""Documents, one by one, into the arrays of a block table.

Here a document that is encoded becomes rows: its sentences are laid out and dealt to blocks, its salient spans placed,
and everything is rewritten from document to block coordinates. What needs the whole corpus (which blocks are identical,
how many others hold a span) is computed at the end from the arrays on disk.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from realm.text import grouping
from realm.text.columns import BLOCK_RAGGED, DOCUMENT_RAGGED, Column, Ragged, RaggedColumn, save_array
from realm.text.corpus import Document
from realm.text.cut import fill_blocks, lay_sentences
from realm.text.dates import find_dates
from realm.text.spans import Placed, RawSpan, place_spans
from realm.text.tokenizer import Encoding, Tokenizer

GROWING = {"document": "<i4", "length": "<i4", "heldout": "|b1", "first_row": "<i8"}


class Assembly:
    """The growing table, to be used in a `with`. `config` is a CorpusConfig; skipped spans go into `span_skips`."""

    def __init__(self, config: Any, tokenizer: Tokenizer, folder: Path, span_skips: Counter):
        self.config, self.tokenizer, self.folder, self.span_skips = config, tokenizer, folder, span_skips
        ragged = {**BLOCK_RAGGED, **DOCUMENT_RAGGED}
        self._columns: dict[str, Any] = {name: RaggedColumn(folder, name, *ragged[name]) for name in ragged}
        self._columns |= {name: Column(folder / f"{name}.npy", dtype) for name, dtype in GROWING.items()}
        self._digests = bytearray()
        self._id_hashes = array("Q")
        self.kinds: dict[str, int] = {}  # label -> number, in order of first use
        self.blocks = 0
        self.indexed = 0  # rows that may be retrieved: the first ones
        self.only_retrieved = 0  # of them, the last ones: those that are never masked
        self.empty = 0  # documents in which the tokenizer finds nothing
        self.counts = Counter(
            dict.fromkeys(
                "documents tokens unknown_wordpieces sentences sentences_with_span sentences_too_short sentences_split "
                "sentences_without_wordpieces words_cut spans titles_cut heldout_documents heldout_blocks".split(),
                0,
            )
        )

    def __enter__(self) -> Assembly:
        return self

    def __exit__(self, *_) -> None:
        for column in self._columns.values():
            column.close()

    def add(
        self, document: Document, title_T: np.ndarray, body: Encoding, spans: list[RawSpan], role: str = "documents"
    ) -> None:
        """Appends a document's blocks; one without wordpieces is counted in `empty` and leaves no row.

        Roles come one after the other, as in CorpusConfig: documents, only_retrieved, only_masked.
        """
        config, counts, columns = self.config, self.counts, self._columns
        short_title_T = title_T[: config.block_length // 4]
        room = config.block_length - 3 - len(short_title_T)
        sentence_S4 = lay_sentences(document.text, body, room=room, language=config.language, counts=counts)
        if len(sentence_S4) == 0:
            self.empty += 1
            self.span_skips["no wordpieces"] += len(spans)
            return
        placed = place_spans(
            document.text,
            body,
            sentence_S4,
            spans,
            find_dates(document.text),
            max_tokens=config.max_span_tokens,
            unk=self.tokenizer.unk,
            skips=self.span_skips,
        )
        heldout = document.heldout or config.holdout > 0 and grouping.is_held_out(document.id, config.holdout)
        columns["title"].append(document.title.encode())
        columns["title_token"].append(short_title_T)
        columns["document_id"].append(document.id.encode())
        columns["first_row"].append([self.blocks])
        self._id_hashes.append(grouping.id_hash(document.id))
        length_S = sentence_S4[:, 1] - sentence_S4[:, 0]
        blocks = fill_blocks(length_S, room)
        sentence_P = [span.sentence for span in placed]
        for first, end in blocks:
            inside = placed[bisect_left(sentence_P, first) : bisect_left(sentence_P, end)]
            self._add_block(document, sentence_S4[first:end], first, body, inside, 3 + len(short_title_T))
            columns["heldout"].append([heldout])
        if role != "only_masked":
            self.indexed = self.blocks
        if role == "only_retrieved":
            self.only_retrieved += len(blocks)
        counts["titles_cut"] += len(short_title_T) < len(title_T)
        counts["heldout_documents"] += heldout
        counts["heldout_blocks"] += heldout * len(blocks)
        counts["tokens"] += len(body.id_T)
        counts["unknown_wordpieces"] += int((body.id_T == self.tokenizer.unk).sum())
        counts["sentences"] += len(sentence_S4)
        counts["sentences_too_short"] += int((length_S < config.min_sentence_tokens).sum())
        counts["sentences_with_span"] += len({span.sentence for span in placed})
        counts["spans"] += len(placed)
        counts["documents"] += 1

    def _add_block(
        self, document: Document, sentence_S4: np.ndarray, first: int, body: Encoding, spans: list[Placed], around: int
    ) -> None:
        """Appends one block: its sentences in document coordinates, of which the first is number `first`."""
        columns = self._columns
        token_start, char_start = sentence_S4[0, [0, 2]].tolist()
        token_end, char_end = sentence_S4[-1, [1, 3]].tolist()
        text = document.text[char_start:char_end]
        columns["token"].append(body.id_T[token_start:token_end])
        columns["text"].append(text.encode())
        columns["sentence"].append(sentence_S4 - np.array([token_start, token_start, char_start, char_start], np.int32))
        columns["span"].append(
            [
                (
                    span.sentence - first,
                    span.token_start - token_start,
                    span.token_end - token_start,
                    span.char_start - char_start,
                    span.char_end - char_start,
                    self.kinds.setdefault(span.label, len(self.kinds)),
                )
                for span in spans
            ]
        )
        columns["document"].append([self.counts["documents"]])
        columns["length"].append([around + token_end - token_start])
        self._digests += grouping.block_digest(document.title, text)
        self.blocks += 1

    def finish(self) -> dict[str, Any]:
        """Closes the arrays, adds those that need the whole corpus, and returns all counts."""
        self._columns["first_row"].append([self.blocks])
        self.__exit__()
        folder = self.folder
        duplicate_N = grouping.smallest_equal(self._digests)
        save_array(folder, "duplicate", duplicate_N, "<i4")
        id_hash_D = np.frombuffer(self._id_hashes, np.uint64)
        order_D = np.argsort(id_hash_D, kind="stable")
        save_array(folder, "id_hash", id_hash_D[order_D], "<u8")
        save_array(folder, "id_order", order_D, "<i4")
        token, span = Ragged.open(folder, "token"), Ragged.open(folder, "span")
        row_P = np.repeat(np.arange(self.blocks), np.diff(span.offset))
        start_P = token.offset[row_P] + span.flat[:, 1]
        hash_P = grouping.span_hashes(token.flat, start_P, span.flat[:, 2] - span.flat[:, 1])
        support_P = grouping.other_holders(hash_P, duplicate_N[row_P], row_P < self.indexed)
        save_array(folder, "support", support_P, "<i4")
        by_kind = np.bincount(span.flat[:, 5], minlength=len(self.kinds)).tolist()
        return {
            **self.counts,
            "blocks": self.blocks,
            "indexed_blocks": self.indexed,
            "only_retrieved_blocks": self.only_retrieved,
            "duplicate_blocks": int((duplicate_N != np.arange(self.blocks)).sum()),
            "spans_supported": int((support_P > 0).sum()),
            "spans_by_kind": dict(zip(self.kinds, by_kind, strict=True)),
        }
