"""Folders as they are given out: all of the corpus is read, what lies beside it is counted, doubt is an error."""

import bz2
import gzip
import json
import zipfile
from collections import Counter
from pathlib import Path

import fsspec
import pyarrow
import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.corpus import CorpusError, Document
from realm.text.formats import BY_DESIGN, format_of, read_documents
from tests.text.formats.format_samples import WRITERS, A, Z, beir, dpr, dump, jsonl, lines, write_parquet

# As BEIR's own archives are (scifact).
QUERIES = lines(
    {"_id": "1", "text": "0-dimensional biomaterials show inductive properties.", "metadata": {}},
    {"_id": "3", "text": "1,000 genomes project enables mapping of genetic sequence variation.", "metadata": {}},
)
QRELS = b"query-id\tcorpus-id\tscore\n1\ta\t1\n3\tz\t1\n"
PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}
PACK[".zst"] = lambda raw: pyarrow.compress(raw, codec="zstd", asbytes=True)


def write(root: Path, files: dict[str, bytes | list[Document]]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (root / name).write_bytes(content)
        else:
            write_parquet(root / name, [{"id": one.id, "title": one.title, "text": one.text} for one in content])
    return root


def read(path: Path | str, **options) -> tuple[list[Document], dict[str, int]]:
    counts = Counter()
    return list(read_documents(path, counts=counts, **options)), counts


BEIR = {
    "corpus.jsonl": beir(),
    "queries.jsonl": QUERIES,
    "qrels/test.tsv": QRELS,
    "qrels/train.tsv": QRELS,
    "README.md": b"A retrieval benchmark.",
}


@pytest.mark.parametrize("format", [None, "beir"])
@pytest.mark.parametrize("suffix", PACK)
def test_of_a_beir_folder_the_corpus_is_read_and_nothing_else(tmp_path, format, suffix):
    write(tmp_path, {name + (suffix if "json" in name else ""): content for name, content in BEIR.items()})
    for name in ("corpus.jsonl", "queries.jsonl"):
        packed = tmp_path / f"{name}{suffix}"
        packed.write_bytes(PACK[suffix](packed.read_bytes()))
    assert format_of(tmp_path) == "beir"
    found, counts = read(tmp_path, format=format)
    assert found == [A, Z] and counts == {"BEIR queries": 1, "BEIR qrels": 2, "metadata file": 1}
    assert counts.keys() <= BY_DESIGN


def test_beir_sets_below_a_folder_and_in_parquet(tmp_path):
    other = lines({"_id": "b", "title": "B", "text": "Text."})
    write(tmp_path / "sets", {f"android/{name}": content for name, content in BEIR.items()})
    write(tmp_path / "sets", {"english/corpus.jsonl": other, "english/queries.jsonl": QUERIES})
    assert read(tmp_path / "sets") == (
        [A, Z, Document("b", "B", "Text.")],
        {"BEIR queries": 2, "BEIR qrels": 2, "metadata file": 1},
    )
    hub = {"corpus/corpus-00000-of-00001.parquet": [A, Z], "queries/queries-00000-of-00001.parquet": [A]}
    assert read(write(tmp_path / "hub", hub)) == ([A, Z], {"BEIR queries": 1})


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("format", [None, "beir"])
@pytest.mark.parametrize("name", ["queries.jsonl", "nq-queries.jsonl.gz"])
def test_queries_are_refused_as_a_corpus(tmp_path, name, format, lenient):
    path = tmp_path / "beir" / name
    write(tmp_path, {f"beir/{name}": gzip.compress(QUERIES) if name.endswith("gz") else QUERIES})
    for given in (path, tmp_path / "beir"):
        with pytest.raises(
            CorpusError, match=f"{name}:1: found BEIR's queries .fields: _id, metadata, text., wanted a "
        ):
            list(read_documents(given, format=format, lenient=lenient))
    path.write_bytes(beir())  # of that name, and yet passages: they have titles
    assert read(path, format=format) == ([A, Z], {})


@pytest.mark.parametrize("lenient", [False, True])
def test_judgements_are_refused_as_a_corpus(tmp_path, lenient):
    write(tmp_path, {"test.tsv": QRELS})
    with pytest.raises(
        CorpusError, match="test.tsv:1: found BEIR's judgements .query-id, corpus-id, score., wanted pa"
    ):
        list(read_documents(tmp_path / "test.tsv", lenient=lenient))


B, C, D = (Document(one, one.upper(), f"Text of {one}.") for one in "bcd")


def test_a_folder_of_hugging_face_is_its_data_and_not_its_card(tmp_path):
    files = {"README.md": b"---\nlicense: mit\n---\nA card.", "LICENSE": b"MIT", "dataset_infos.json": b"{}"}
    files |= {
        ".gitattributes": b"*",
        "data/train-00001-of-00002.parquet": [C],
        "data/train-00000-of-00002.parquet": [B],
    }
    write(tmp_path, files | {"data/test-00000-of-00001.parquet": [A], "z.parquet": [Z]})
    wanted = [Z, A, B, C], {"metadata file": 3, "hidden file": 1}
    assert read(tmp_path) == wanted == read(tmp_path.as_uri()) == read(tmp_path, format="parquet")
    for path in (tmp_path / "data").iterdir():
        path.rename(path.with_suffix(".csv"))
    (tmp_path / "z.parquet").unlink()
    with pytest.raises(CorpusError, match="no file of a format that is read .data/test.*csv and 5 more., wanted names"):
        format_of(tmp_path)


@pytest.mark.parametrize(
    "kind, suffix", [("jsonl", ".jsonl"), ("beir", ".json"), ("dpr", ".tsv"), ("mediawiki", ".xml")]
)
def test_files_in_subfolders_are_read_in_one_order_wherever_they_lie(tmp_path, kind, suffix):
    parts = {f"{place}{suffix}": WRITERS[kind]() for place in ("b/c/2", "b/1", "a/9", "b", "0")}
    write(tmp_path, parts)
    system = fsspec.filesystem("memory")
    system.pipe({f"/folders/{kind}/{name}": content for name, content in parts.items()})
    orders = []
    for root in (str(tmp_path), tmp_path.as_uri(), f"memory://folders/{kind}"):
        assert format_of(root) == kind
        assert read(root, lenient=True) == ([A, Z], {"duplicate id": 8})
        with pytest.raises(CorpusError, match=f"b{suffix}:.*once more"):  # 0 is the first, b the next
            list(read_documents(root))
        orders.append(read(root, fields={"id": "#"})[0] if kind in ("jsonl", "beir", "dpr") else [])
    assert orders[0] == orders[1] == orders[2]
    assert kind != "jsonl" or [one.id for one in orders[0]][::2] == [
        f"{name}.jsonl:1" for name in ("0", "b", "9", "1", "2")
    ]


def test_a_folder_of_dumps_has_them_under_the_names_of_wikimedia(tmp_path):
    name = "enwiki-20240101-pages-articles-multistream{}1.{}-p1p41242.bz2"
    files = {name.format("", "xml"): bz2.compress(dump()), name.format("-index", "txt"): bz2.compress(b"600:10:A\n")}
    write(tmp_path, files | {"enwiki-20240101-md5sums.txt": b"0  a\n"})
    assert format_of(tmp_path) == "mediawiki" and read(tmp_path) == ([A, Z], {"metadata file": 2})


def test_what_wikiextractor_writes_is_read_or_named(tmp_path):
    rows = [{"id": one.id, "revid": "1", "url": "", "title": one.title, "text": one.text} for one in (A, B, C, Z)]
    names = ("AA/wiki_00", "AA/wiki_01", "AB/wiki_00", "AB/wiki_01.bz2")
    files = {name: lines(row) for name, row in zip(names, rows, strict=True)}
    write(tmp_path, files | {names[-1]: bz2.compress(files[names[-1]])})
    assert read(tmp_path) == ([A, B, C, Z], {}) and format_of(tmp_path) == "jsonl"
    (tmp_path / "AA" / "wiki_00").write_text('<doc id="1" url="" title="A">\nA\n\nFirst text.\n</doc>\n')
    with pytest.raises(CorpusError, match="wiki_00: found <doc> pages of WikiExtractor.*run it with --json"):
        format_of(tmp_path)


MIXED = {"a.parquet": [A], "b.jsonl": jsonl(), "deep/c.txt": b"Text.", "d.tsv": dpr(), "e.csv": b"1,2"}


def test_a_folder_of_several_formats_is_refused_until_one_is_named(tmp_path):
    write(tmp_path, MIXED | {"deep/f.txt": b"Text."})
    found = r"a.parquet \(parquet\) and b.jsonl \(jsonl\) and d.tsv \(dpr\) and deep/c.txt and 1 more \(folder\)"
    wanted = f"files of one format: name the one to read, as in parquet:{tmp_path}"
    with pytest.raises(CorpusError, match=f"found {found}, wanted {wanted}"):
        list(read_documents(tmp_path, lenient=True))
    for format, found in (("parquet", [A]), ("jsonl", [A, Z]), ("dpr", [A, Z])):
        assert read(tmp_path, format=format) == (found, {"other file": 6 - len(found) // 3 - 1})
    assert [one.id for one in read(tmp_path, format="folder")[0]] == ["deep/c.txt", "deep/f.txt"]


def test_a_build_warns_of_files_that_were_not_read(tmp_path):
    write(tmp_path / "in", MIXED | {"README.md": b"A card."})
    table = build_corpus(CorpusConfig(f"jsonl:{tmp_path / 'in'}"), tmp_path / "out")
    assert table.manifest["skips"] == {"document: metadata file": 1, "document: other file": 4}
    [warning] = table.manifest["warnings"]
    assert warning.startswith(f"4 files in the folders of jsonl:{tmp_path / 'in'} were not read")


@pytest.mark.parametrize("suffix", PACK)
def test_packed_texts_are_read_too(tmp_path, suffix):
    write(tmp_path, {f"a.txt{suffix}": PACK[suffix](b"\xef\xbb\xbfOne."), "b/c.d.md": b"Two.", "b/x.tar.gz": b"no"})
    wanted = [Document(f"a.txt{suffix}", "a", "One."), Document("b/c.d.md", "c.d", "Two.")], {"other file": 1}
    assert read(tmp_path) == wanted == read(tmp_path.as_uri())


def test_a_packed_text_that_ends_early_is_an_error_or_one_document_less(tmp_path):
    write(tmp_path, {"a.txt.gz": gzip.compress(b"One." * 99)[:-9], "b.txt": b"Two."})
    with pytest.raises(CorpusError, match="a.txt.gz: found a gzip file that ends early"):
        list(read_documents(tmp_path))
    assert read(tmp_path, lenient=True) == ([Document("b.txt", "b", "Two.")], {"unreadable file": 1})


def test_texts_in_an_archive_are_read_by_its_url(tmp_path):
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("in/a.txt", "One.")
        archive.writestr("in/b.md", "Two.")
        archive.writestr("c.jsonl", jsonl())
    found = read(f"zip://in::{tmp_path}/texts.zip")[0]
    assert [(one.id, one.text) for one in found] == [("a.txt", "One."), ("b.md", "Two.")]
    assert read(f"zip://::{tmp_path}/texts.zip", format="jsonl") == ([A, Z], {"other file": 2})


def test_a_prepared_dataset_below_a_folder_is_one(tmp_path):
    files = {"dataset_info.json": b"{}", "features.json": b"{}", "x-train.array_record-00000-of-00001": b""}
    write(tmp_path, {f"x/1.0.0/{name}": content for name, content in files.items()})
    assert format_of(tmp_path / "x" / "1.0.0") == format_of(tmp_path / "x") == format_of(tmp_path) == "tfds"


def test_a_corpus_stays_the_same_whatever_metadata_says(tmp_path):
    write(tmp_path, {"corpus.jsonl": jsonl(), "README.md": json.dumps({}).encode()})
    assert read(tmp_path) == ([A, Z], {"metadata file": 1})
    assert read(write(tmp_path / "notes", {"README.md": b"A note."}))[0] == [Document("README.md", "README", "A note.")]
