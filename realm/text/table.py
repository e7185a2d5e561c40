"""The block table: a corpus cut into blocks, as a folder of memory-mapped arrays.

Row numbers are what an index answers with; block ids ("document id:ordinal") are what outlives a rebuild. Everything
about a block is here: wordpieces, exact text, sentences, salient spans and how many other blocks hold the same one,
which blocks are byte-identical, which are held out. Offsets inside a block count from its first wordpiece and its first
character. The methods answer for one row; the flat arrays behind them serve whole-corpus work without a Python loop.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from realm.text.columns import BLOCK_PLAIN, BLOCK_RAGGED, DOCUMENT_RAGGED, OTHER_PLAIN, Ragged, open_array, sha256_of
from realm.text.corpus import CorpusError
from realm.text.grouping import id_hash
from realm.text.spans import UNKNOWN
from realm.text.tokenizer import Tokenizer

FORMAT = 2
MANIFEST = "manifest.json"
VOCABULARY = "vocab.txt"
BUILD = "`realm data build` (build_corpus)"


class BlockTable:
    """N blocks of D documents, read-only. Made by `open` or `build_corpus`.

    The first `indexed` rows may be retrieved; what comes after is masked only. The slice `only_retrieved` of them is
    never masked. Where a corpus is both, as usual, indexed = rows and the slice is empty.

    Per row: length_N int32, wordpieces of [CLS] title [SEP] body [SEP]; document_N int32, the document's number;
    duplicate_N int32, the smallest row with byte-identical title and text (its own when there is none); heldout_N bool.
    Flat: token_flat int32 with token_offset_N1 int64; sentence_S4 with sentence_offset_N1; span_P6, support_P and
    tagger_P uint8 (who found it, a number in `taggers`; "unknown" of older corpora) with span_offset_N1; title_flat
    with title_offset_D1; first_row_D1 int64, the first row of each document (and N).
    The rows of flat arrays are those that `token_T`, `sentences`, `spans`, `support` and `title_T` give.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], tokenizer: Tokenizer):
        self.path, self.manifest, self.tokenizer = path, manifest, tokenizer
        self.kinds: list[str] = manifest["kinds"]
        self.fingerprint: str = manifest["fingerprint"]
        self.min_sentence_tokens: int = manifest["config"]["min_sentence_tokens"]  # a shorter sentence is no query
        ragged = {name: Ragged.open(path, name) for name in (*BLOCK_RAGGED, *DOCUMENT_RAGGED)}
        plain = {name: open_array(path, name) for name in (*BLOCK_PLAIN, *OTHER_PLAIN)}
        self._title, self._title_token, self._document_id, self._text = (
            ragged[name] for name in ("title", "title_token", "document_id", "text")
        )
        self.title_flat, self.title_offset_D1 = self._title_token.flat, self._title_token.offset
        self.token_flat, self.token_offset_N1 = ragged["token"].flat, ragged["token"].offset
        self.sentence_S4, self.sentence_offset_N1 = ragged["sentence"].flat, ragged["sentence"].offset
        self.span_P6, self.span_offset_N1 = ragged["span"].flat, ragged["span"].offset
        self.length_N, self.document_N, self.duplicate_N, self.heldout_N = (
            plain[name] for name in ("length", "document", "duplicate", "heldout")
        )
        self.support_P, self.first_row_D1 = plain["support"], plain["first_row"]
        self._id_hash, self._id_order = plain["id_hash"], plain["id_order"]
        self.taggers: list[str] = manifest.get("taggers", [UNKNOWN])
        stored = "taggers" in manifest
        unknown_P = np.broadcast_to(np.uint8(0), manifest["counts"]["spans"])
        self.tagger_P = plain["tagger"] = open_array(path, "tagger") if stored else unknown_P
        self._check_rows({**{name: (one.flat, one.offset) for name, one in ragged.items()}, **plain})
        self.rows: int = manifest["counts"]["blocks"]
        self.indexed: int = manifest["counts"]["indexed_blocks"]
        self.only_retrieved = slice(self.indexed - manifest["counts"]["only_retrieved_blocks"], self.indexed)

    @classmethod
    def open(cls, path: str | Path, verify: bool = False) -> BlockTable:
        """The table in a folder; with `verify` every file is read and its sha256 compared.

        Raises CorpusError when the folder is missing, incomplete, of another format, or its files do not belong
        together (row counts are compared always).
        """
        path = Path(path)
        manifest = read_manifest(path)
        try:
            if verify:
                _verify(path, manifest)
            tokenizer = Tokenizer.load(path / VOCABULARY)
            if tokenizer.fingerprint != manifest["tokenizer"]:
                raise CorpusError(
                    f"{path / VOCABULARY}: found vocabulary {tokenizer.fingerprint}, wanted {manifest['tokenizer']}, "
                    "which the corpus was cut with"
                )
            return cls(path, manifest, tokenizer)
        except CorpusError:
            raise
        except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
            raise CorpusError(
                f"{path}: found a corpus folder with a file missing or damaged ({error}), wanted all that {BUILD} wrote"
            ) from error

    def _check_rows(self, arrays: dict[str, Any]) -> None:
        """Every array has the rows that the manifest names, and every flat array those its offsets end at."""
        counts = self.manifest["counts"]
        wanted = {**dict.fromkeys((*BLOCK_RAGGED, *BLOCK_PLAIN), counts["blocks"])}
        wanted |= dict.fromkeys((*DOCUMENT_RAGGED, "id_hash", "id_order"), counts["documents"])
        wanted |= {"support": counts["spans"], "tagger": counts["spans"], "first_row": counts["documents"] + 1}
        for name, rows in wanted.items():
            array = arrays[name]
            found = len(array[1]) - 1 if isinstance(array, tuple) else len(array)
            if found != rows:
                raise CorpusError(f"{self.path}: found {found} rows of {name}, wanted {rows}: build the corpus again")
            if isinstance(array, tuple) and len(array[0]) != array[1][-1]:
                raise CorpusError(
                    f"{self.path}: found {len(array[0])} values of {name}, wanted {array[1][-1]}: build it again"
                )
        if len(arrays["span"][0]) != counts["spans"] or arrays["first_row"][-1] != counts["blocks"]:
            raise CorpusError(f"{self.path}: found arrays of two different builds, wanted one: build the corpus again")

    def token_T(self, row: int) -> np.ndarray:
        """int32 [T]: the body's wordpieces, no special tokens."""
        return self.token_flat[self._range(self.token_offset_N1, row)]

    def title_T(self, row: int) -> np.ndarray:
        """int32 [T]: the title's wordpieces, cut as they count in length_N."""
        return self._title_token.row(self._document(row))

    def text(self, row: int) -> str:
        """The block's exact characters: a slice of the document, from its first sentence to its last."""
        return self._text.string(self._row(row))

    def title(self, row: int) -> str:
        """The whole title, "" when the document has none."""
        return self._title.string(self._document(row))

    def document_id(self, row: int) -> str:
        return self._document_id.string(self._document(row))

    def block_id(self, row: int) -> str:
        """ "document id:ordinal", ordinal counting the document's blocks from 0."""
        return f"{self.document_id(row)}:{row - int(self.first_row_D1[self._document(row)])}"

    def sentences(self, row: int) -> np.ndarray:
        """int32 [S, 4]: token_start, token_end, char_start, char_end of each sentence in the block."""
        return self.sentence_S4[self._range(self.sentence_offset_N1, row)]

    def spans(self, row: int) -> np.ndarray:
        """int32 [P, 6]: sentence ordinal, token_start, token_end, char_start, char_end in the block, kind (`kinds`)."""
        return self.span_P6[self._range(self.span_offset_N1, row)]

    def support(self, row: int) -> np.ndarray:
        """int32 [P]: other blocks of the index with a span of these pieces; byte-identical ones count once, own copies
        not."""
        return self.support_P[self._range(self.span_offset_N1, row)]

    def found_by(self, row: int) -> list[str]:
        """Who found each salient span: "dates", "anchors", "file", "bert:97012a55", "spacy:PIPELINE", ..."""
        return [self.taggers[number] for number in self.tagger_P[self._range(self.span_offset_N1, row)].tolist()]

    def row_of(self, block_id: str) -> int:
        """The row of a block id. Raises KeyError."""
        document_id, _, ordinal = block_id.rpartition(":")
        rows = self.document_rows(document_id)
        if not (ordinal.isascii() and ordinal.isdigit()) or int(ordinal) >= len(rows):
            raise KeyError(f"found no block {block_id!r} in {self.path}, wanted 'document id:ordinal'")
        return rows[int(ordinal)]

    def rows_of_document(self, document_id: str) -> list[int]:
        """The rows of a document, in its order. Raises KeyError when the corpus has no such document."""
        rows = self.document_rows(document_id)
        if not rows:
            raise KeyError(f"found no document {document_id!r} in {self.path}")
        return list(rows)

    def document_rows(self, document_id: str) -> range:
        """The same side by side, however many; empty when the corpus has no such document."""
        wanted = np.uint64(id_hash(document_id))
        for place in range(*(int(np.searchsorted(self._id_hash, wanted, side)) for side in ("left", "right"))):
            number = int(self._id_order[place])
            if self._document_id.string(number) == document_id:
                return range(int(self.first_row_D1[number]), int(self.first_row_D1[number + 1]))
        return range(0)

    def _row(self, row: int) -> int:
        if not 0 <= row < self.rows:
            raise IndexError(f"found row {row}, wanted 0 to {self.rows - 1}")
        return int(row)

    def _document(self, row: int) -> int:
        return int(self.document_N[self._row(row)])

    def _range(self, offset_N1: np.ndarray, row: int) -> slice:
        row = self._row(row)
        return slice(int(offset_N1[row]), int(offset_N1[row + 1]))

    def show(self, row: int) -> str:
        """The block for human eyes: id, title, and the text with every salient span in ⟦brackets⟧, kind and support."""
        text, parts, end = self.text(row), [], 0
        for (_, _, _, start, stop, kind), support in zip(self.spans(row).tolist(), self.support(row), strict=True):
            parts += [text[end:start], f"⟦{text[start:stop]}|{self.kinds[kind]} {support}⟧"]
            end = stop
        return f"{self.block_id(row)} [{self.title(row)}] {''.join(parts)}{text[end:]}"

    def __reduce__(self):
        return BlockTable.open, (self.path,)

    def __repr__(self) -> str:
        counts = self.manifest["counts"]
        return (
            f"BlockTable({self.path}: {self.rows} blocks of {counts['documents']} documents, {counts['sentences']} "
            f"sentences, {counts['spans']} salient spans, {self.fingerprint[:12]})"
        )


def _verify(path: Path, manifest: dict[str, Any]) -> None:
    for name, wanted in manifest["files"].items():
        found = sha256_of(path / name)
        if found != wanted:
            raise CorpusError(f"{path / name}: found sha256 {found}, wanted {wanted}: build the corpus again")
    found, wanted = fingerprint_of(manifest["files"], manifest["tokenizer"]), manifest["fingerprint"]
    if found != wanted:
        raise CorpusError(f"{path / MANIFEST}: found files of fingerprint {found}, wanted {wanted}: build it again")


def fingerprint_of(files: dict[str, str], tokenizer: str) -> str:
    """The fingerprint of a corpus, from the sha256 of each of its files and its vocabulary's fingerprint."""
    return sha256(json.dumps([files, tokenizer], sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a corpus folder. Raises CorpusError when there is none or it is of another format."""
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_bytes())
    except OSError as error:
        raise CorpusError(f"{path}: found no corpus folder (no {MANIFEST}), wanted one that {BUILD} made") from error
    except ValueError as error:
        raise CorpusError(f"{file}: found broken JSON ({error}), wanted the manifest of a corpus folder") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else manifest
        raise CorpusError(f"{file}: found format {found!r}, wanted {FORMAT}: build the corpus again")
    return manifest
