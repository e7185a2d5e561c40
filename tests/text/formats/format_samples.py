"""Small corpora in every format, written on the spot: a good document, whatever the test puts in, a good one."""

import contextlib
import io
import json
import os
import tempfile
from unittest import mock

import pyarrow
from pyarrow import parquet

from realm.text.corpus import Document
from realm.text.formats.tfds import tensorflow_datasets

A = Document("a", "A", "First text.")
Z = Document("z", "Z", "Last text.")


def lines(*rows: dict | bytes) -> bytes:
    return b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows)


def jsonl(*bad: dict | bytes) -> bytes:
    return lines({"id": "a", "title": "A", "text": A.text}, *bad, {"id": "z", "title": "Z", "text": Z.text})


def beir(*bad: dict | bytes) -> bytes:
    return lines({"_id": "a", "title": "A", "text": A.text}, *bad, {"_id": "z", "title": "Z", "text": Z.text})


def dpr(*bad: bytes) -> bytes:
    return b"id\ttext\ttitle\n" + b"a\tFirst text.\tA\n" + b"".join(bad) + b'z\t"Last text."\tZ\n'


def article(number: str, title: str, *paragraphs: str, **more) -> dict:
    text = [f"{title}\n", *(f"{one}\n" for one in paragraphs)]
    return {"_id": number, "wikipedia_id": number, "wikipedia_title": title, "text": text, "anchors": [], **more}


def kilt(*bad: dict | bytes) -> bytes:
    return lines(article("a", "A", A.text), *bad, article("z", "Z", Z.text))


SITEINFO = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
<siteinfo><sitename>Wiki</sitename><namespaces>
<namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Diskussion</namespace>
<namespace key="6" case="first-letter">Datei</namespace><namespace key="14" case="first-letter">Kategorie</namespace>
</namespaces></siteinfo>
"""


def page(number: str, title: str, text: str, ns: str = "<ns>0</ns>", more: str = "", model: str = "wikitext") -> bytes:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    content = f'<model>{model}</model><origin>1</origin><text bytes="1" xml:space="preserve">{escaped}</text>'
    revision = f"<revision><id>1</id>{content}</revision>"
    return f"<page><title>{title}</title>{ns}<id>{number}</id>{more}{revision}</page>\n".encode()


def dump(*bad: bytes, header: str = SITEINFO, end: str = "</mediawiki>\n") -> bytes:
    return header.encode() + page("a", "A", A.text) + b"".join(bad) + page("z", "Z", Z.text) + end.encode()


def write_parquet(path, rows: list[dict], types: dict | None = None, **options) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pyarrow.array([row.get(name) for row in rows], (types or {}).get(name)) for name in names}
    parquet.write_table(pyarrow.table(columns), path, **options)


def write_tfds(folder, splits: dict[str, list[dict]], columns: dict, name: str = "texts") -> str:
    """A prepared dataset as TensorFlow Datasets itself writes it; the folder to read."""
    tfds = tensorflow_datasets()
    quiet = (contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()))
    # Sequences of sequences ask TensorFlow for the name of a type, and for nothing else.
    types = mock.patch.object(tfds.features.TensorInfo, "dtype", property(lambda info: info.np_dtype))
    with tempfile.TemporaryDirectory() as downloads, quiet[0], quiet[1], types:
        builder = tfds.dataset_builders.AdhocBuilder(
            name=name,
            version="1.0.0",
            features=tfds.features.FeaturesDict(columns),
            split_datasets={},
            data_dir=str(folder),
            file_format="array_record",
            disable_shuffling=True,
        )
        # AdhocBuilder's own splits ask TensorFlow what kind of data they are.
        builder._split_generators = lambda _: {split: iter(enumerate(rows)) for split, rows in splits.items()}
        config = tfds.download.DownloadConfig(try_download_gcs=False)
        builder.download_and_prepare(download_dir=downloads, download_config=config)
    return os.fspath(builder.data_dir)


WRITERS = {"jsonl": jsonl, "beir": beir, "dpr": dpr, "kilt": kilt, "mediawiki": dump}
