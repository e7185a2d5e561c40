"""From documents to a block table, in one pass over the corpus.

Documents are read, encoded in batches, cut into blocks of whole sentences ([CLS] title [SEP] body [SEP] fits into
`block_length`), their salient spans are placed, and all of it is appended to the arrays of a folder (`table.py`).
Memory stays bounded but for a few numbers a row. The same input and settings give the same bytes, and a folder that
was built from them already is used as it is.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from realm.text.assemble import Assembly
from realm.text.columns import sha256_of, written_aside
from realm.text.corpus import CorpusError, Document, read_jsonl
from realm.text.spans import SpanFile, SpansError
from realm.text.table import FORMAT, MANIFEST, VOCABULARY, BlockTable, fingerprint_of, read_manifest
from realm.text.tokenizer import Tokenizer, VocabularyError

BATCH_DOCUMENTS = 64
BATCH_CHARACTERS = 1 << 18
SMALLEST_BLOCK = 8
TRAIN = "train:"
ROLES = ("documents", "only_retrieved", "only_masked")
FILE_FIELDS = (*ROLES, "spans")


@dataclass(frozen=True)
class CorpusConfig:
    """What a corpus is built from, and how.

    documents: JSONL(.gz) files of {"id", "title", "text"}, both masked and retrieved. only_retrieved, only_masked:
    more such files, where the paper's knowledge corpus Z and pre-training corpus X are not the same. spans: JSONL(.gz)
    files of {"id", "spans"}; without any, dates only. One path may stand for a tuple of one. vocabulary: WordPiece
    file, `train:SIZE` to train one on this corpus, None for BERT's uncased one. block_length: wordpieces of [CLS]
    title [SEP] body [SEP]; a title gets at most a quarter. holdout: share of documents, chosen by their ids, that
    training never sees as examples. lenient: drop and count bad lines rather than stop. language: of the sentence
    rules. max_span_tokens: longest salient span, in wordpieces. min_sentence_tokens: a shorter sentence is no query
    (it stays in its block). limit: only the first so many documents of each file, None for all.
    """

    documents: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    only_retrieved: tuple[str, ...] = ()
    only_masked: tuple[str, ...] = ()
    vocabulary: str | None = None
    block_length: int = 288
    holdout: float = 0.0
    lenient: bool = False
    language: str = "en"
    max_span_tokens: int = 10
    min_sentence_tokens: int = 4
    limit: int | None = None

    def __post_init__(self):
        for name in FILE_FIELDS:
            value = getattr(self, name)
            paths = () if value is None else (value,) if isinstance(value, str | Path) else value
            object.__setattr__(self, name, tuple(str(path) for path in paths))
        if self.block_length < SMALLEST_BLOCK:
            raise CorpusError(f"found block_length={self.block_length}, wanted at least {SMALLEST_BLOCK}")
        if not 0.0 <= self.holdout < 1.0:
            raise CorpusError(f"found holdout={self.holdout}, wanted a share of at least 0 and below 1")
        for name in ("max_span_tokens", "min_sentence_tokens"):
            if getattr(self, name) < 1:
                raise CorpusError(f"found {name}={getattr(self, name)}, wanted at least 1")
        if self.limit is not None and self.limit < 1:
            raise CorpusError(f"found limit={self.limit}, wanted at least 1 document, or None for all")


def build_corpus(config: CorpusConfig, out: str | Path, *, overwrite: bool = False) -> BlockTable:
    """Builds the block table of `config` in the folder `out`, or opens it when it is there already.

    Raises CorpusError for input that cannot be read (file:line and what was wanted), for no document or block at all,
    and for a folder `out` that holds something else, which only `overwrite` replaces and only if it is a corpus
    folder; SpansError for a bad spans file; VocabularyError for a bad vocabulary.
    """
    out = Path(out).absolute()
    if not config.documents + config.only_retrieved:
        raise CorpusError("found no documents to retrieve, wanted at least one file of them")
    source = _source(config)
    replace = False
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        if not overwrite:
            return _same(out, source)
        if not ((out / MANIFEST).is_file() and (out / VOCABULARY).is_file()):
            raise CorpusError(
                f"{out}: found files that no corpus build left there, wanted a corpus folder to overwrite"
            )
        replace = True
    try:
        with written_aside(out, replace) as folder:
            _write(config, _tokenizer(config), source, folder)
    except OSError as error:
        if replace or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return _same(out, source)  # another process was first
    return BlockTable.open(out)


def _trained_size(config: CorpusConfig) -> int | None:
    """The size in `train:SIZE`; None for a vocabulary that is there already."""
    if config.vocabulary is None or not config.vocabulary.startswith(TRAIN):
        return None
    size = config.vocabulary.removeprefix(TRAIN)
    if not size.isdecimal():
        raise VocabularyError(
            f"found vocabulary={config.vocabulary!r}, wanted a file, or {TRAIN}SIZE as in {TRAIN}8000"
        )
    return int(size)


def _tokenizer(config: CorpusConfig) -> Tokenizer:
    """The vocabulary of the config: loaded, or trained on titles and texts of the corpus itself."""
    size = _trained_size(config)
    if size is None:
        return Tokenizer.load(config.vocabulary)
    documents = (document for document, _ in _documents(config, Counter()))
    return Tokenizer.train((text for document in documents for text in (document.title, document.text)), size)


def _documents(config: CorpusConfig, counts: Counter) -> Iterator[tuple[Document, str]]:
    """(document, role) of all files, in the order of ROLES: what is retrieved comes first."""
    seen: dict[str, str] = {}
    for role in ROLES:
        for path in getattr(config, role):
            documents = read_jsonl(path, lenient=config.lenient, counts=counts, seen=seen)
            yield from ((document, role) for document in islice(documents, config.limit))


def _source(config: CorpusConfig) -> dict[str, Any]:
    """Everything that decides what is built, paths aside: contents and settings."""
    source = {name: value for name, value in asdict(config).items() if name not in (*FILE_FIELDS, "vocabulary")}
    trained = _trained_size(config) is not None
    vocabulary = config.vocabulary if trained else Tokenizer.load(config.vocabulary).fingerprint
    source |= {"format": FORMAT, "vocabulary": vocabulary}
    for name in FILE_FIELDS:
        source[name] = []
        for path in getattr(config, name):
            try:
                source[name].append(sha256_of(path))
            except OSError as problem:
                error = SpansError if name == "spans" else CorpusError
                raise error(
                    f"{path}: found no readable file ({problem.strerror}), wanted {name} as JSON lines (.jsonl(.gz))"
                ) from problem
    return dict(sorted(source.items()))


def _same(out: Path, source: dict[str, Any]) -> BlockTable:
    """The table in `out` if it was built from the same source; CorpusError names what differs."""
    found = read_manifest(out)["source"]
    if found == source:
        return BlockTable.open(out)
    differs = "; ".join(
        f"{name}: found {found.get(name)!r}, wanted {source.get(name)!r}"
        for name in sorted(found.keys() | source.keys())
        if found.get(name) != source.get(name)
    )
    raise CorpusError(f"{out} holds a corpus built otherwise ({differs}): choose another folder or pass overwrite=True")


def _write(config: CorpusConfig, tokenizer: Tokenizer, source: dict[str, Any], folder: Path) -> None:
    """The whole pass: documents to arrays to manifest."""
    dropped, span_skips = Counter(), Counter()
    spans = SpanFile(config.spans, lenient=config.lenient, counts=span_skips)
    with Assembly(config, tokenizer, folder, span_skips) as assembly:
        for batch in _batches(_documents(config, dropped)):
            encodings = tokenizer.encode_batch([one.title for one, _ in batch] + [one.text for one, _ in batch])
            titles, bodies = encodings[: len(batch)], encodings[len(batch) :]
            for (document, role), title, body in zip(batch, titles, bodies, strict=True):
                assembly.add(document, title.id_T, body, spans.take(document.id), role)
        titles_missing = dropped.pop("missing title", 0)
        dropped["no wordpieces"] += assembly.empty
        if assembly.indexed == 0:
            found = f"no usable document (left out: {dict(+dropped) or 'nothing'})"
            files = ", ".join(config.documents + config.only_retrieved)
            raise CorpusError(f"{files}: found {found}, wanted at least one with text")
        if config.limit is None:
            span_skips["of no document"] += sum(len(left) for left in spans.left().values())
        counts = {**assembly.finish(), "titles_missing": titles_missing}
    skips = {f"document: {reason}": count for reason, count in sorted((+dropped).items())}
    skips |= {f"span: {reason}": count for reason, count in sorted((+span_skips).items())}
    tokenizer.save(folder / VOCABULARY)
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    manifest = {
        "format": FORMAT,
        "config": asdict(config),
        "source": source,
        "tokenizer": tokenizer.fingerprint,
        "kinds": list(assembly.kinds),
        "counts": dict(sorted(counts.items())),
        "skips": skips,
        "warnings": _warnings(config, counts, skips),
        "files": files,
        "fingerprint": fingerprint_of(files, tokenizer.fingerprint),
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _batches(documents: Iterable[tuple[Document, str]]) -> Iterator[list[tuple[Document, str]]]:
    """Documents in batches small enough to hold and large enough to encode on all cores."""
    batch, size = [], 0
    for document, role in documents:
        batch.append((document, role))
        size += len(document.text)
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _warnings(config: CorpusConfig, counts: dict[str, Any], skips: dict[str, int]) -> list[str]:
    """What whoever starts a run should read first: losses above one in a hundred, and shares that came out odd."""
    lost = sum(count for reason, count in skips.items() if reason.startswith("document: "))
    misplaced = sum(skips.get(f"span: {reason}", 0) for reason in ("outside the text", "of no document"))
    spans = counts["spans"] + sum(count for reason, count in skips.items() if reason.startswith("span: "))
    cut = skips.get("span: cuts a word", 0)
    documents = ", ".join(path for role in ROLES for path in getattr(config, role))
    files = ", ".join(config.spans)
    shares = (
        (lost, lost + counts["documents"], f"documents of {documents} were left out"),
        (misplaced, spans, f"salient spans of {files} fit no document of {documents}: other texts or ids?"),
        (cut, spans, f"salient spans of {files} begin or end inside a word: byte offsets, or another text?"),
        (counts["sentences_without_wordpieces"], counts["sentences"], "sentences hold nothing the tokenizer knows"),
        (counts["unknown_wordpieces"], counts["tokens"], "wordpieces are [UNK]: another script than the vocabulary's?"),
    )
    warnings = [f"{part} of {whole} {what}" for part, whole, what in shares if part > whole / 100]
    if config.holdout and not 0 < counts["heldout_documents"] < counts["documents"]:
        warnings.append(
            f"holdout={config.holdout} holds out {counts['heldout_documents']} of {counts['documents']} documents: "
            "a corpus this small needs another share"
        )
    return warnings
