"""From documents to a block table.

Documents are read, cut into blocks of whole sentences ([CLS] title [SEP] body [SEP] fits into `block_length`), their
salient spans are placed, and all of it is written to the arrays of a folder (`table.py`): in parts (`build_parts`),
shared among processes (`build_workers`), joined in order (`build_join`). Memory stays bounded but for a few numbers a
document. The same input and settings give the same bytes whatever the number of processes, a build that was killed
goes on, and a folder that was built from them already is used as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from realm.text.build_folder import built_in
from realm.text.build_inputs import ROLES, documents, fingerprint_of
from realm.text.build_join import Join
from realm.text.build_parts import make_part, part_tasks, read_part
from realm.text.build_report import write_manifest
from realm.text.build_workers import Workers
from realm.text.corpus import CorpusError
from realm.text.formats.read import FORMATS, KEEP
from realm.text.spans import SpanFile
from realm.text.table import FORMAT, VOCABULARY, BlockTable
from realm.text.tokenizer import Tokenizer, VocabularyError

SMALLEST_BLOCK = 8
TRAIN = "train:"
FILE_FIELDS = (*ROLES, "spans")
READING = ("format", "fields", "keep")  # part of the source only where they are set


@dataclass(frozen=True)
class CorpusConfig:
    """What a corpus is built from, and how.

    documents: files, folders or URLs of any format (`realm.text.formats`), both masked and retrieved. only_retrieved,
    only_masked: more such entries, where the paper's knowledge corpus Z and pre-training corpus X are not the same.
    spans: JSON lines of {"id", "spans"}, beside the links and entity mentions that a format carries itself; dates
    are always found anew, DATE spans given are left out. format: of all entries, None to find out; an entry
    "FORMAT:PATH" names its own. fields: which names id, title, text and heldout have (dots lead inwards, the id "#"
    numbers the rows); they hold for entries that name no format, and for all where each names one; a title that no
    document has under its name is an error, in lenient reading a warning. keep: "disambiguation" and "list" pages of a
    dump, left out otherwise; refused where nothing is a dump. vocabulary: WordPiece file, `train:SIZE` to train one on
    this corpus, None for BERT's uncased one. block_length: wordpieces of [CLS] title [SEP] body [SEP]; a title gets at
    most a quarter. holdout: share of documents, chosen by their ids, that training never sees as examples. lenient:
    drop and count bad lines rather than stop. language: of the sentence rules. max_span_tokens: longest salient span,
    in wordpieces. min_sentence_tokens: a shorter sentence is no query (it stays in its block). limit: only the first so
    many documents of each entry, None for all.

    One path may stand for a tuple of one.
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
    format: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()

    def __post_init__(self):
        for name in (*FILE_FIELDS, "keep"):
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
        if self.format is not None and self.format not in FORMATS:
            raise CorpusError(f"found format={self.format!r}, wanted one of {sorted(FORMATS)}, or None to find out")
        if not KEEP >= set(self.keep):
            raise CorpusError(f"found keep={self.keep!r}, wanted some of {sorted(KEEP)}")


def build_corpus(
    config: CorpusConfig, out: str | Path, *, overwrite: bool = False, workers: int | None = 1
) -> BlockTable:
    """Builds the block table of `config` in the folder `out`, or opens it when it is there already.

    workers: processes that share the work, None for one a core; the result does not depend on it. Their start imports
    the caller's main module, which therefore needs its `if __name__ == "__main__":`. A build that is stopped leaves
    its finished parts in `out`.parts, from where the same call goes on.

    Raises CorpusError for input that cannot be read (file:line and what was wanted), for no document or block at all,
    and for a folder `out` that holds something else, which only `overwrite` replaces and only if it is a corpus
    folder; SpansError for a bad spans file; VocabularyError for a bad vocabulary; WorkersError for no workers.
    """
    if not config.documents + config.only_retrieved:
        raise CorpusError("found no documents to retrieve, wanted at least one file of them")
    source = _source(config)
    return built_in(out, source, overwrite, lambda folder, parts: _write(config, source, folder, parts, workers))


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


def _tokenizer(config: CorpusConfig, parts: Path, workers: int | None) -> Tokenizer:
    """The vocabulary of the config: loaded, or trained on titles and texts of the corpus itself."""
    size = _trained_size(config)
    if size is None:
        return Tokenizer.load(config.vocabulary)
    with Workers(workers, Tokenizer.load()) as pool:
        found = (document for document, _, _ in documents(config, Counter(), pool, parts))
        return Tokenizer.train((text for document in found for text in (document.title, document.text)), size)


def _source(config: CorpusConfig) -> dict[str, Any]:
    """Everything that decides what is built, paths aside: contents and settings."""
    left_out = (*FILE_FIELDS, *READING, "vocabulary")
    source = {name: value for name, value in asdict(config).items() if name not in left_out}
    trained = _trained_size(config) is not None
    vocabulary = config.vocabulary if trained else Tokenizer.load(config.vocabulary).fingerprint
    source |= {"format": FORMAT, "vocabulary": vocabulary}
    reading = {"format": config.format, "fields": dict(config.fields), "keep": sorted(config.keep)}
    source |= {f"read {name}": value for name, value in reading.items() if value}
    for name in FILE_FIELDS:
        source[name] = [fingerprint_of(entry, name, config.format) for entry in getattr(config, name)]
    return dict(sorted(source.items()))


def _write(config: CorpusConfig, source: dict[str, Any], folder: Path, parts: Path, workers: int | None) -> None:
    """The whole pass: documents to parts to arrays to manifest."""
    dropped, span_skips = Counter(), Counter()
    tokenizer = _tokenizer(config, parts, workers)
    file = SpanFile(config.spans, lenient=config.lenient, counts=span_skips, aside=parts)
    with closing(file) as spans, Workers(workers, tokenizer) as pool, Join(folder, parts) as join:
        rows = (
            (document, [*own, *spans.take(document.id)], role)
            for document, own, role in documents(config, dropped, pool, parts)
        )
        for path, role in pool.ordered(make_part, part_tasks(rows, parts, config)):
            join.add(read_part(path), role)
        titles_missing = dropped.pop("missing title", 0)
        dropped["no wordpieces"] += join.empty
        if join.indexed == 0:
            found = f"no usable document (left out: {dict(+dropped) or 'nothing'})"
            files = ", ".join(config.documents + config.only_retrieved)
            raise CorpusError(f"{files}: found {found}, wanted at least one with text")
        if config.limit is None:
            span_skips["of no document"] += sum(len(left) for _, left in spans.left())
        counts = {**join.finish(), "titles_missing": titles_missing}
    span_skips["malformed span"] += dropped.pop("malformed span", 0)
    span_skips.update(join.span_skips)
    tokenizer.save(folder / VOCABULARY)
    names = list(join.kinds), list(join.taggers)
    write_manifest(folder, config, source, tokenizer.fingerprint, *names, counts, dropped, span_skips)
