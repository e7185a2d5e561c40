"""A new version of a corpus: documents added, taken out or replaced, everything else copied as it is.

Rows of documents that stay keep their order and close up; those of documents that are replaced, then those of new ones,
come after them, each at the end of its role. The new folder says where it comes from (`lineage` in its manifest) and
which of its rows the old one has too (`changed.changed_rows`), so that a refresher embeds only what changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from realm.text.blocks import CorpusConfig
from realm.text.build_folder import built_in
from realm.text.build_inputs import ROLES, documents, fingerprint_of
from realm.text.build_join import Join
from realm.text.build_kept import Kept
from realm.text.build_parts import make_part, part_tasks, read_part
from realm.text.build_report import write_manifest
from realm.text.build_workers import Workers
from realm.text.changed import PARENT_ROW, same_rows
from realm.text.columns import Column, open_array, save_array
from realm.text.corpus import CorpusError, Document
from realm.text.spans import RawSpan, SpanFile
from realm.text.table import FORMAT, VOCABULARY, BlockTable

KEPT_DOCUMENTS = 1 << 12


class EditError(CorpusError):
    """An edit that does not fit the corpus."""


@dataclass(frozen=True)
class CorpusEdit:
    """What is done to a corpus.

    add: entries of documents, as CorpusConfig takes them, whose ids the corpus has not. replace: entries of documents
    whose ids it has. delete: ids of documents. spans: files for the added and replaced documents. role: of the added
    documents: `documents`, `only_retrieved` or `only_masked`; a replaced one keeps its own. format, fields, keep: as in
    CorpusConfig. lenient: drop and count bad documents, and pass over and count ids that do not fit, rather than stop.
    """

    add: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    role: str = "documents"
    format: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    lenient: bool = False

    def __post_init__(self):
        for name in ("add", "replace", "delete", "spans"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(map(str, value)))
        if not self.add + self.replace + self.delete:
            raise EditError("found nothing to do, wanted documents to add, replace or delete")
        if self.role not in ROLES:
            raise EditError(f"found role={self.role!r}, wanted one of {ROLES}")


def edit_corpus(
    corpus: str | Path, edit: CorpusEdit, out: str | Path, *, overwrite: bool = False, workers: int | None = 1
) -> BlockTable:
    """The corpus `corpus` with an edit done, in the new folder `out`; blocks are cut as the old ones were.

    Counts and skips of sentences and words that were cut are those of the new documents; all others are of the whole.
    Raises EditError for ids that do not fit and for an edit that leaves nothing to retrieve; else as `build_corpus`.
    """
    old = BlockTable.open(corpus)
    if Path(out).absolute() == old.path.absolute():
        raise EditError(f"{out}: found the corpus itself, wanted another folder: a version is never changed")
    source = {
        "format": FORMAT,
        "parent": old.fingerprint,
        "delete": sorted(edit.delete),
        **{name: [fingerprint_of(one, name) for one in getattr(edit, name)] for name in ("add", "replace", "spans")},
        "reading": [edit.role, edit.format, dict(edit.fields), sorted(edit.keep), edit.lenient],
    }
    return built_in(
        out, source, overwrite, lambda folder, parts: _Edited(old, edit, folder, parts).write(source, workers)
    )


class _Edited:
    """One edit, on its way to `folder`."""

    def __init__(self, old: BlockTable, edit: CorpusEdit, folder: Path, parts: Path):
        self.old, self.edit, self.folder, self.parts = old, edit, folder, parts
        self.dropped, self.span_skips = Counter(), Counter()
        self.replaced_D = np.zeros(len(old.first_row_D1) - 1, bool)
        stored = {name: old.manifest["config"][name] for name in ("block_length", "holdout", "language")}
        stored |= {name: old.manifest["config"][name] for name in ("max_span_tokens", "min_sentence_tokens")}
        self.config = CorpusConfig(
            format=edit.format,
            fields=edit.fields,
            keep=edit.keep,
            lenient=edit.lenient,
            spans=edit.spans,
            vocabulary=str(old.path / VOCABULARY),
            **stored,
        )

    def write(self, source: dict[str, Any], workers: int | None) -> None:
        old, edit = self.old, self.edit
        gone_D = np.zeros(len(old.first_row_D1) - 1, bool)
        for document_id in edit.delete:
            self._mark(gone_D, document_id, "delete", "deleted")
        deleted = int(gone_D.sum())
        spans = SpanFile(edit.spans, lenient=edit.lenient, counts=self.span_skips, aside=self.parts)
        parent = Column(self.parts / f"{PARENT_ROW}.npy", "<i8")
        with (
            closing(spans),
            closing(parent),
            Workers(workers, old.tokenizer) as pool,
            Join(self.folder, self.parts) as join,
        ):
            for document, _, _ in self._read("replace", pool, Counter()):
                if self._mark(gone_D, document.id, "replace", "deleted or replaced"):
                    self.replaced_D[self._number(document.id)] = True
            replaced = int(self.replaced_D.sum())
            missing = self._join(gone_D, spans, join, pool, parent)
            if join.indexed == 0:
                raise EditError(f"{old.path}: found an edit that leaves nothing to retrieve, wanted some document left")
            self.span_skips["of no document"] += sum(len(left) for _, left in spans.left())
            counts = {**join.finish(), "titles_missing": missing + self.dropped.pop("missing title", 0)}
            names, total = (list(join.kinds), list(join.taggers)), join.counts["documents"]
        self.dropped["no wordpieces"] += join.empty
        self.span_skips["malformed span"] += self.dropped.pop("malformed span", 0)
        self.span_skips.update(join.span_skips)
        old.tokenizer.save(self.folder / VOCABULARY)
        kept = int((~gone_D).sum())
        before = old.manifest.get("lineage", {})
        lineage = {
            "parent": old.fingerprint,
            "ancestors": [*before.get("ancestors", []), old.fingerprint],
            "parent_rows": old.rows,
            "kept_documents": kept,
            "deleted_documents": deleted,
            "replaced_documents": replaced,
            "added_documents": total - kept - replaced,
        }
        lineage["kept_blocks"] = self._save_parents(join.blocks)
        write_manifest(
            self.folder,
            replace(self.config, documents=edit.add + edit.replace),
            source,
            old.tokenizer.fingerprint,
            *names,
            counts,
            self.dropped,
            self.span_skips,
            lineage,
        )

    def _mark(self, gone_D: np.ndarray, document_id: str, verb: str, reason: str) -> bool:
        """Whether a document goes; it does not where its id does not fit."""
        number = self._number(document_id)
        if number < 0:
            self._unfit(verb, f"found no document {document_id!r} in {self.old.path}", "an id that it has")
        elif gone_D[number]:
            self._unfit(verb, f"found the document {document_id!r} once more", f"each once: it is {reason} already")
        else:
            gone_D[number] = True
            return True
        return False

    def _unfit(self, verb: str, found: str, wanted: str) -> None:
        if not self.edit.lenient:
            raise EditError(f"{verb}: {found}, wanted {wanted}; a lenient edit passes over it")
        self.dropped[f"unfit for {verb}"] += 1

    def _read(self, name: str, pool: Workers, dropped: Counter) -> Iterator[tuple[Document, list[RawSpan], str]]:
        config = replace(self.config, documents=getattr(self.edit, name))
        return documents(config, dropped, pool, self.parts / name, among=self.edit.add + self.edit.replace)

    def _join(self, gone_D: np.ndarray, spans: SpanFile, join: Join, pool: Workers, parent: Column) -> int:
        """All parts in order; writes where the rows of kept documents come from. Returns how many lack a title."""
        old, missing = self.old, 0
        kept = Kept(old)
        borders = (0, old.only_retrieved.start, old.only_retrieved.stop, old.rows)
        border_D = np.searchsorted(old.first_row_D1, borders).tolist()
        for role, low, high in zip(ROLES, border_D[:-1], border_D[1:], strict=True):
            document_G = np.flatnonzero(~gone_D[low:high]) + low
            for start in range(0, len(document_G), KEPT_DOCUMENTS):
                part, row_N = kept.part(document_G[start : start + KEPT_DOCUMENTS])
                missing += part.counts.pop("titles_missing")
                join.add(part, role)
                parent.append(row_N)
            rows = chain(
                self._replaced(pool, role, range(low, high)), self._added(pool) if role == self.edit.role else ()
            )
            rows = ((document, [*own, *spans.take(document.id)], role) for document, own, _ in rows)
            folder = self.parts / role
            folder.mkdir(exist_ok=True)
            for path, _ in pool.ordered(make_part, part_tasks(rows, folder, self.config)):
                part = read_part(path)
                join.add(part, role)
                parent.append(np.full(len(part.arrays["length"]), -1))
        return missing

    def _replaced(self, pool: Workers, role: str, here: range) -> Iterator[tuple[Document, list[RawSpan], str]]:
        """The replacements of documents numbered `here`. The files are read once for every role and counted once."""
        counts = self.dropped if role == ROLES[0] else Counter()
        for row in self._read("replace", pool, counts) if self.edit.replace else ():
            number = self._number(row[0].id)
            if number in here and self.replaced_D[number]:
                yield row

    def _added(self, pool: Workers) -> Iterator[tuple[Document, list[RawSpan], str]]:
        for document, own, role in self._read("add", pool, self.dropped) if self.edit.add else ():
            if self._number(document.id) >= 0:
                found = f"found the document {document.id!r}, which {self.old.path} has already"
                self._unfit("add", found, "a new id, or to replace it")
                continue
            yield document, own, role

    def _number(self, document_id: str) -> int:
        """The number of a document in the old corpus, -1 when it has none of this id."""
        try:
            return int(self.old.document_N[self.old.rows_of_document(document_id)[0]])
        except KeyError:
            return -1

    def _save_parents(self, rows: int) -> int:
        """Writes the array of old rows; new rows that happen to equal an old one have it too. Returns how many do."""
        old_row_N = np.load(self.parts / f"{PARENT_ROW}.npy")
        new_R = np.flatnonzero(old_row_N < 0)
        view = _Rows(self.folder, self.old)
        old_row_N[new_R] = same_rows(self.old, view, new_R)
        save_array(self.folder, PARENT_ROW, old_row_N, "<i8")
        return int((old_row_N >= 0).sum())


class _Rows:
    """The arrays that `same_rows` compares, of a folder that has no manifest yet."""

    def __init__(self, folder: Path, like: BlockTable):
        self.tokenizer = like.tokenizer
        self.document_N = open_array(folder, "document")
        self.token_flat, self.token_offset_N1 = open_array(folder, "token"), open_array(folder, "token_offset")
        self.title_flat, self.title_offset_D1 = (
            open_array(folder, "title_token"),
            open_array(folder, "title_token_offset"),
        )
