"""Documents of a finished corpus as a part of a new one: copied, not cut and encoded again, and so the same blocks."""

from __future__ import annotations

import numpy as np

from realm.text import grouping
from realm.text.assemble import Part, by_first_use
from realm.text.columns import Ragged, open_array
from realm.text.table import BlockTable


class Kept:
    """Hands out the documents of a table, many at a time."""

    def __init__(self, table: BlockTable):
        self.table = table
        self._text, self._title, self._id = (Ragged.open(table.path, name) for name in ("text", "title", "document_id"))
        self._title_token = Ragged.open(table.path, "title_token")
        self._id_hash_D = np.empty(len(self._id), np.uint64)
        self._id_hash_D[open_array(table.path, "id_order")] = open_array(table.path, "id_hash")

    def part(self, document_G: np.ndarray) -> tuple[Part, np.ndarray]:
        """(the part of documents numbered `document_G`, the rows of its blocks)."""
        table = self.table
        first_D1 = table.first_row_D1
        blocks_G = first_D1[document_G + 1] - first_D1[document_G]
        row_N = ranges(first_D1[document_G], blocks_G)
        arrays: dict[str, np.ndarray] = {}
        for name, column, place in (
            ("token", Ragged(table.token_flat, table.token_offset_N1), row_N),
            ("sentence", Ragged(table.sentence_S4, table.sentence_offset_N1), row_N),
            ("span", Ragged(table.span_P6, table.span_offset_N1), row_N),
            ("text", self._text, row_N),
            ("title", self._title, document_G),
            ("title_token", self._title_token, document_G),
            ("document_id", self._id, document_G),
        ):
            count = column.offset[place + 1] - column.offset[place]
            arrays[name] = column.flat[ranges(column.offset[place], count)]
            arrays[f"{name}_count"] = count
        kind_P, kinds = by_first_use(arrays["span"][:, 5])
        arrays["span"][:, 5] = kind_P
        span_P = ranges(table.span_offset_N1[row_N], arrays["span_count"])
        arrays["tagger"], taggers = by_first_use(table.tagger_P[span_P])
        arrays |= {
            "document": np.repeat(np.arange(len(document_G), dtype=np.int32), blocks_G),
            "length": table.length_N[row_N],
            "heldout": table.heldout_N[row_N],
            "blocks": blocks_G,
            "id_hash": self._id_hash_D[document_G],
        }
        arrays["digest"] = self._digests(arrays)
        names = [table.kinds[kind] for kind in kinds], [table.taggers[tagger] for tagger in taggers]
        return Part(arrays, *names, self._counts(arrays), {}, 0), row_N

    def _digests(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        titles = _pieces(arrays["title"], arrays["title_count"])
        owners = arrays["document"].tolist()
        texts = _pieces(arrays["text"], arrays["text_count"])
        digests = [grouping.block_digest(titles[d], text) for d, text in zip(owners, texts, strict=True)]
        return np.frombuffer(b"".join(digests), np.uint8)

    def _counts(self, arrays: dict[str, np.ndarray]) -> dict[str, int]:
        """What can be counted again; sentences and words that were cut leave no trace in a table."""
        size_S = arrays["sentence"][:, 1] - arrays["sentence"][:, 0]
        longest = self.table.manifest["config"]["block_length"] // 4
        full = np.flatnonzero(arrays["title_token_count"] == longest).tolist()
        titles = _pieces(arrays["title"], arrays["title_count"])
        whole = self.table.tokenizer.encode_batch([titles[d].decode() for d in full])
        block_P = np.repeat(np.arange(len(arrays["length"])), arrays["span_count"])
        with_span = np.unique(np.stack([block_P, arrays["span"][:, 0]], axis=1), axis=0)
        first_G = np.cumsum(arrays["blocks"]) - arrays["blocks"]
        return {
            "documents": len(arrays["blocks"]),
            "tokens": len(arrays["token"]),
            "unknown_wordpieces": int((arrays["token"] == self.table.tokenizer.unk).sum()),
            "sentences": len(size_S),
            "sentences_with_span": len(with_span),
            "sentences_too_short": int((size_S < self.table.min_sentence_tokens).sum()),
            "spans": len(block_P),
            "titles_cut": sum(len(one.id_T) > longest for one in whole),
            "titles_missing": int((arrays["title_count"] == 0).sum()),
            "heldout_documents": int(arrays["heldout"][first_G].sum()),
            "heldout_blocks": int(arrays["heldout"].sum()),
        }


def ranges(start_N: np.ndarray, count_N: np.ndarray) -> np.ndarray:
    """The numbers start, start + 1, ..., `count` of them, of one row after the other; int64."""
    count_N = np.asarray(count_N, np.int64)
    before_N = np.cumsum(count_N) - count_N
    return np.arange(int(count_N.sum())) + np.repeat(np.asarray(start_N, np.int64) - before_N, count_N)


def _pieces(flat: np.ndarray, count_N: np.ndarray) -> list[bytes]:
    raw, ends = flat.tobytes(), np.cumsum(count_N).tolist()
    return [raw[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=False)]
