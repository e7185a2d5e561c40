"""A TensorFlow Datasets builder of ours: a corpus and its question sets as array_record, for others to load.

Prepared and read without TensorFlow. One dataset with two configs: `documents` (split train: id, title, text, heldout,
spans with their taggers' names) and `questions` (a split for each set: id, question, answers, document). The builder's
class is made on demand, because it has to inherit from a package that is only imported behind its door. Others need no
line of ours: `tfds.builder_from_directory(folder).as_data_source()`.
"""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from realm.text.corpus import CorpusError
from realm.text.formats.tfds import ARRAY_RECORD, INFO, exists, tensorflow_datasets
from realm.text.questions import Question, QuestionsError
from realm.text.spans import FILE, RawSpan, SpanFile, found_by

DATASET = "realm_corpus"
VERSION = "1.1.0"  # 1.0.0 had no taggers
SPLIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
EVERY_SPLIT = "all"  # what TensorFlow Datasets takes for all splits together
CONFIGS = {
    "documents": "A corpus of documents with salient spans; their offsets are in characters of the text.",
    "questions": "Open-domain questions over the documents; `document` is the id of one that answers, if known.",
}


@cache
def builder_class() -> type:
    """The builder: `builder_class()(config=..., data_dir=..., file_format="array_record")`, its `rows` set after."""
    tfds = tensorflow_datasets()

    class RealmCorpus(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        name = DATASET
        VERSION = tfds.core.Version(VERSION)
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=name, description=text) for name, text in CONFIGS.items()]
        rows: Mapping[str, Callable[[], Iterable[dict]]] = {}  # what each split is made of

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                description=CONFIGS[self.builder_config.name],
                features=_features(tfds, self.builder_config.name),
                disable_shuffling=True,  # rows stay in the order of the corpus
            )

        def _split_generators(self, dl_manager):
            del dl_manager
            return {split: self._generate_examples(rows) for split, rows in self.rows.items()}

        def _generate_examples(self, rows):
            yield from enumerate(rows())

    return RealmCorpus


def _features(tfds: Any, config: str) -> Any:
    text = tfds.features.Text
    if config == "questions":
        columns = {"id": text(), "question": text(), "answers": tfds.features.Sequence(text()), "document": text()}
    else:
        spans = tfds.features.Sequence({"start": np.int64, "end": np.int64, "label": text(), "tagger": text()})
        columns = {"id": text(), "title": text(), "text": text(), "heldout": np.bool_, "spans": spans}
    return tfds.features.FeaturesDict(columns)


def prepare(
    documents: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    keep: Collection[str] = (),
    spans: str | Path | None = None,
    questions: Mapping[str, str | Path] | None = None,
    lenient: bool = False,
    counts: Counter | None = None,
) -> dict[str, Path]:
    """Writes a corpus, and question sets by split name, under `out`; the folder of each config that was written.

    documents: an entry as CorpusConfig takes it. format, fields, keep, lenient, counts: as `read_documents` takes them.
    spans: a file as `read_spans` takes it; None for the spans that the documents' format carries itself, if any. Each
    is stored with the tagger's name that a build would give it. questions: as `open_question_set` takes them.
    Raises CorpusError where `out` holds a dataset already, QuestionsError for answers that are regular expressions and
    for names that no split can have, and whatever the readers raise; what was written then goes away.
    """
    from realm.text.build_inputs import opened, plain_documents
    from realm.text.question_sets.spec import open_question_set

    _check_splits(questions or {})
    counts = Counter() if counts is None else counts
    reading = SimpleNamespace(format=format, fields=fields or {}, keep=keep, lenient=lenient)
    entries = opened([str(documents)], reading)  # what cannot be opened is noticed before anything is written

    def document_rows() -> Iterator[dict[str, Any]]:
        file = None if spans is None else SpanFile([spans], lenient=lenient, counts=counts)
        with contextlib.nullcontext() if file is None else contextlib.closing(file):
            for document, own in plain_documents(entries, reading, counts):
                found = own if file is None else found_by(file.take(document.id), FILE)
                yield document._asdict() | {"spans": _columns(found)}

    sets = {split: open_question_set(path).questions for split, path in (questions or {}).items()}
    for split, rows in sets.items():
        if rows[0].kind == "regex":  # the dataset has no place to say so, and others would take them for texts
            raise QuestionsError(f"{questions[split]}: found regular expressions, wanted answers that are texts")
    configs = {"documents": {"train": document_rows}}
    if sets:
        configs["questions"] = {split: (lambda rows=rows: map(_question, rows)) for split, rows in sets.items()}
    builders = {name: _builder(name, splits, out) for name, splits in configs.items()}
    with contextlib.ExitStack() as undo:
        for builder in builders.values():
            _prepare(builder)
            undo.callback(_remove, builder.data_dir)
        undo.pop_all()
    return {name: Path(builder.data_dir) for name, builder in builders.items()}


def _check_splits(names: Iterable[str]) -> None:
    """A split's name is a part of file names, and of what others write to read it."""
    for name in names:
        if not SPLIT_NAME.fullmatch(name) or name == EVERY_SPLIT:
            wanted = f"letters, digits, _ and - alone, and not {EVERY_SPLIT!r}, which means every split"
            raise QuestionsError(f"found the split {name!r} for questions, wanted a name of {wanted}")


def _columns(spans: list[RawSpan]) -> dict[str, list]:
    names = ("start", "end", "label", "tagger")
    return {name: [span[place] for span in spans] for place, name in enumerate(names)}


def _question(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "answers": list(question.answers),
        "document": question.document or "",
    }


def _builder(name: str, splits: dict[str, Any], out: str | Path) -> Any:
    """The builder of one config, whose place is empty."""
    builder = builder_class()(config=name, data_dir=str(out), file_format=ARRAY_RECORD)
    builder.rows = splits
    if exists(f"{builder.data_dir}/{INFO}"):
        raise CorpusError(f"{builder.data_dir}: found a dataset, wanted an empty place: remove it or choose another")
    return builder


def _prepare(builder: Any) -> None:
    """Written without progress bars, and without asking a cloud bucket whether it has it already."""
    tfds = tensorflow_datasets()

    quiet = (contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()))
    with tempfile.TemporaryDirectory() as downloads, quiet[0], quiet[1]:
        config = tfds.download.DownloadConfig(try_download_gcs=False)
        builder.download_and_prepare(download_dir=downloads, download_config=config)


def _remove(folder: str) -> None:
    from etils import epath

    epath.Path(folder).rmtree(missing_ok=True)
