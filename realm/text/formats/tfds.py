"""Datasets that TensorFlow Datasets has prepared, read without TensorFlow: any folder of array_record files with texts.

The one door to tensorflow_datasets. `as_data_source` reads array_record only, so a folder prepared as tfrecord, and a
name that is not prepared at all, end in an error that says what to type where TensorFlow is at hand. A prepared name
(NAME, NAME/CONFIG) is found where TensorFlow Datasets keeps it: TFDS_DATA_DIR, or its folder in the home folder.
Spans are read from two layouts: `salient_span_wikipedia`'s (start, limit, type; REALM's own corpus, offsets in bytes)
and ours (start, end, label, and since version 1.1.0 tagger; offsets in characters).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from realm.text.corpus import CorpusError, Document
from realm.text.formats.admission import Admission
from realm.text.formats.jsonl import ROW_NUMBER, field_of
from realm.text.formats.source import is_url
from realm.text.spans import RawSpan

SPLIT = "split"
INFO = "dataset_info.json"
ARRAY_RECORD = "array_record"
DATA_DIR = "TFDS_DATA_DIR"  # where tfds itself looks, and by default in the home folder


def tensorflow_datasets() -> ModuleType:
    """The package itself, imported on the first call (it does not import TensorFlow by itself)."""
    import tensorflow_datasets

    return tensorflow_datasets


def read_tfds(
    path: str | Path, admit: Admission, fields: Mapping[str, str] | None = None
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The documents of one split of a prepared dataset, with their spans if it has any.

    path: the folder with dataset_info.json (NAME/[CONFIG/]VERSION), or a prepared NAME[/CONFIG[/VERSION]]. fields:
    names of the id, title and text features, dots lead inwards, and "split"; without them id, title and text, the row's
    number for a missing id, and the only split. A span that does not fit its text is rejected ("malformed span").
    Raises CorpusError for a folder that is not prepared, holds another file format, is damaged, or has no such split or
    feature; a named title that is not there is an error in strict reading only.
    """
    path = prepared_folder(path)
    builder = _builder(path)
    names = {name: name for name in ("id", "title", "text", "heldout")} | dict(fields or {})
    split = _split(path, builder, names.pop(SPLIT, None))
    features = _names(builder.info.features)
    if names["text"] not in features:
        raise _missing(path, "text", names["text"], features)
    if fields and "title" in fields and names["title"] not in features and not admit.reject.lenient:
        raise _missing(path, "title", names["title"], features)
    if names["id"] not in features and names["id"] != ROW_NUMBER:
        if fields and "id" in fields:
            raise _missing(path, "id", names["id"], features, f", or {ROW_NUMBER!r}")
        names["id"] = ROW_NUMBER
    for row, (where, example) in enumerate(_examples(path, builder, split)):
        document = _document(where, f"{split}:{row}", example, names, admit)
        if document is not None:
            yield document, list(_spans(where, example.get("spans"), document.text, admit))


def examples(path: str | Path, split: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, example) of one split of a prepared dataset, whatever its features are; without `split` the only one.

    Raises CorpusError as `read_tfds` does.
    """
    path = prepared_folder(path)
    builder = _builder(path)
    yield from _examples(path, builder, _split(path, builder, split))


def dataset_name(path: str | Path) -> str:
    """The name under which a dataset was prepared. Raises CorpusError as `read_tfds` does."""
    return _builder(prepared_folder(path)).info.name


def checked_folder(path: str | Path) -> str:
    """`prepared_folder` of a dataset that can be read. Raises CorpusError as `read_tfds` does."""
    folder = prepared_folder(path)
    _builder(folder)
    return folder


def prepared_folder(path: str | Path) -> str:
    """The folder of a prepared dataset: a folder or URL that is one as it is, else the only one inside it, or inside
    what TensorFlow Datasets keeps under that name.

    What is not found is given back, for `read_tfds` to complain about. Raises CorpusError where several configs or
    versions are prepared.
    """
    path = str(path).removeprefix("file://")
    if exists(f"{path.rstrip('/')}/{INFO}") or is_url(path):
        return path
    home = Path(os.environ.get(DATA_DIR) or Path.home() / "tensorflow_datasets")
    for base in dict.fromkeys((Path(path), home / path)):
        for pattern in (INFO, f"*/{INFO}", f"*/*/{INFO}"):
            found = sorted(one.parent for one in base.glob(pattern))
            if len(found) > 1:
                names = ", ".join(str(one.relative_to(base)) for one in found)
                raise CorpusError(f"{path}: found {names} in {base}, wanted one of them: name it too")
            if found:
                return str(found[0])
    return path


def _examples(path: str, builder: Any, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = _rows(path, builder, split)
    for row in itertools.count():
        try:
            example = next(rows)
        except StopIteration:
            return
        except Exception as problem:  # whatever the file's library and its protocol buffers raise
            found = f"a damaged example ({type(problem).__name__}: {problem})"
            raise CorpusError(f"{path}: found {found} at row {row} of {split}, wanted a whole dataset") from problem
        yield f"{path}: row {row} of {split}", example


def _builder(path: str) -> Any:
    if not exists(f"{path.rstrip('/')}/{INFO}"):
        wanted = (
            f"the folder of a prepared dataset, with its {INFO}. If this is the name of a dataset, prepare it first, "
            "where its needs are installed (many names need TensorFlow or Apache Beam): "
            f"tfds build {path} --file_format={ARRAY_RECORD}"
        )
        raise CorpusError(f"{path}: found no {INFO}, wanted {wanted}")
    try:
        builder = tensorflow_datasets().builder_from_directory(path)
        kind = builder.info.file_format.value
    except Exception as problem:
        found = f"a {INFO} or features.json that cannot be read ({type(problem).__name__}: {problem})"
        raise CorpusError(f"{path}: found {found}, wanted a folder that TensorFlow Datasets has prepared") from problem
    if kind != ARRAY_RECORD:
        wanted = (
            f"{ARRAY_RECORD}, which is read without TensorFlow. Where TensorFlow is installed: "
            f"tfds convert_format --dataset_version_dir={path} --out_file_format={ARRAY_RECORD} --out_dir=NEW_FOLDER"
        )
        raise CorpusError(f"{path}: found a dataset prepared as {kind}, wanted {wanted}")
    return builder


def exists(path: str) -> bool:
    """Whether a path or URL is there."""
    from etils import epath

    try:
        return epath.Path(path).exists()
    except (OSError, ValueError, ImportError, KeyError) as problem:  # KeyError: of a protocol it does not know
        raise CorpusError(f"{path}: found no way to read it ({problem}), wanted a folder") from problem


def _split(path: str, builder: Any, asked: str | None) -> str:
    splits = sorted(builder.info.splits)
    if asked is None and len(splits) == 1:
        return splits[0]
    if asked not in splits:
        found = f"the splits {splits}" + ("" if asked is None else f" and no {asked!r}")
        wanted = f"one of them as the field {SPLIT}: --fields {SPLIT} NAME, or fields={{'{SPLIT}': NAME}}"
        raise CorpusError(f"{path}: found {found}, wanted {wanted}")
    return asked


def _missing(path: str, name: str, feature: str, features: set[str], otherwise: str = "") -> CorpusError:
    wanted = f"the name of one as the field {name}: --fields {name} NAME{otherwise}"
    return CorpusError(f"{path}: found no feature {feature!r} (features: {sorted(features)}), wanted {wanted}")


def _names(features: Any) -> set[str]:
    """Every feature's name, inner ones with dots."""
    names = set()
    for name, feature in features.items():
        names.add(name)
        if hasattr(feature, "items"):
            names |= {f"{name}.{inner}" for inner in _names(feature)}
    return names


def _rows(path: str, builder: Any, split: str) -> Iterator[dict[str, Any]]:
    try:
        source = builder.as_data_source(split=split)
        count = len(source)
    except Exception as problem:
        found = f"a split that cannot be opened ({type(problem).__name__}: {problem})"
        raise CorpusError(f"{path}: found {found}, wanted whole {ARRAY_RECORD} files") from problem
    return (source[row] for row in range(count))


def _document(where: str, row: str, example: dict, names: Mapping[str, str], admit: Admission) -> Document | None:
    values: dict[str, Any] = {"id": row}
    for name, feature in names.items():
        if feature == ROW_NUMBER:
            continue
        value = field_of(example, feature)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bytes):
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"the byte 0x{value[error.start]:02x} at {error.start + 1} of the {name}, which is not UTF-8"
                return admit.reject(where, "not UTF-8", found, "UTF-8 text")
        values[name] = value
    return admit(where, values["id"], values.get("title"), values.get("text"), bool(values.get("heldout")))


def _spans(where: str, spans: Any, text: str, admit: Admission) -> Iterator[RawSpan]:
    """The spans of an example, in characters, with their taggers' names where those are stored."""
    match spans:
        case {"start": starts, "limit": ends, "type": labels}:
            character = _characters(text)
        case {"start": starts, "end": ends, "label": labels}:
            character = range(len(text) + 1)
        case _:
            return
    taggers = spans.get("tagger", itertools.repeat(b"", len(starts)))
    for start, end, label, tagger in zip(starts, ends, labels, taggers, strict=True):
        inside = 0 <= start < end < len(character)
        first, last = (int(character[start]), int(character[end])) if inside else (-1, -1)
        if first < 0 or last < 0 or not label:
            wanted = "a labelled span of whole characters inside the text"
            admit.reject(where, "malformed span", f"the span {int(start), int(end), label}", wanted)
            continue
        span = first, last, label.decode("utf-8", "replace")
        yield (*span, tagger.decode("utf-8", "replace")) if isinstance(tagger, bytes) and tagger else span


def _characters(text: str) -> np.ndarray | range:
    """For each byte of a text in UTF-8, and the end, the character that begins there; -1 inside a character."""
    if text.isascii():
        return range(len(text) + 1)
    byte = np.frombuffer(text.encode(), np.uint8)
    begins = (byte & 0xC0) != 0x80
    return np.append(np.where(begins, np.cumsum(begins) - 1, -1), len(text))
