"""Names of fields are never dropped unseen: they hold for the entries they are meant for, and are met somewhere."""

import json
from collections import Counter
from pathlib import Path

import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_inputs import ABSENT, opened
from realm.text.corpus import CorpusError
from realm.text.edit import CorpusEdit, edit_corpus
from realm.text.formats import read_documents
from realm.text.formats.tfds import tensorflow_datasets
from tests.text.formats.format_samples import page, write_tfds

TEXT = tensorflow_datasets().features.Text
ROWS = [{"id": f"d{n}", "_id": f"e{n}", "title": "T", "body": f"Ada came in {1960 + n}."} for n in range(3)]


def jsonl(path: Path, rows=ROWS) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def parquet(path: Path) -> str:
    import pyarrow
    from pyarrow import parquet as files

    files.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return str(path)


def tsv(path: Path) -> str:
    path.write_text("id\tbody\ttitle\n" + "".join(f"{row['id']}\t{row['body']}\tT\n" for row in ROWS))
    return str(path)


def prepared(path: Path) -> str:
    rows = [{name: row[name] for name in ("id", "title", "body")} for row in ROWS]
    return write_tfds(path, {"train": rows}, {"id": TEXT(), "title": TEXT(), "body": TEXT()})


WRITE = {"jsonl": jsonl, "parquet": parquet, "dpr": tsv, "tfds": prepared}


def test_fields_hold_for_named_entries_where_each_names_a_format(tmp_path):
    path = jsonl(tmp_path / "c.jsonl")
    with pytest.raises(CorpusError, match='c.jsonl:1: found no "nothere"'):
        build_corpus(CorpusConfig(f"beir:{path}", fields={"text": "nothere"}), tmp_path / "out")
    table = build_corpus(CorpusConfig(f"beir:{path}", fields={"text": "body"}), tmp_path / "out")
    assert [table.document_id(row) for row in range(3)] == ["e0", "e1", "e2"]
    with pytest.raises(CorpusError, match="found fields=.* for the format kilt, wanted none"):
        build_corpus(CorpusConfig(f"kilt:{path}", fields={"text": "body"}), tmp_path / "none")


def test_beside_entries_that_name_no_format_a_named_one_has_its_usual_fields():
    reading = CorpusConfig("x", format="jsonl", fields={"text": "body"})
    given = ["a.jsonl", "beir:b.jsonl"]
    assert [one.fields for one in opened(given, reading)] == [{"text": "body"}, {}]
    assert [one.fields for one in opened(given[1:], reading)] == [{"text": "body"}]
    assert [one.fields for one in opened(given[1:], reading, among=given)] == [{}]


def test_a_split_of_a_prepared_name_can_be_chosen(tmp_path, monkeypatch):
    splits = {name: [{"text": f"Ada came to {name}."}] for name in ("train", "test")}
    folder = Path(write_tfds(tmp_path / "data" / "made", splits, {"text": TEXT()}))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    name = str(folder.relative_to(tmp_path / "data"))
    with pytest.raises(CorpusError, match=r"wanted one of them as the field split: --fields split NAME"):
        build_corpus(CorpusConfig(f"tfds:{name}"), tmp_path / "out")
    table = build_corpus(CorpusConfig(f"tfds:{name}", fields={"split": "test"}), tmp_path / "out")
    assert table.text(0) == "Ada came to test."


def test_an_edit_reads_named_entries_with_the_fields_too(tmp_path):
    old = build_corpus(CorpusConfig(jsonl(tmp_path / "c.jsonl"), fields={"text": "body"}), tmp_path / "old")
    new = jsonl(tmp_path / "new.jsonl", [{"id": "n", "said": "Bo left."}])
    edit = CorpusEdit(add=f"jsonl:{new}", fields={"text": "said"})
    table = edit_corpus(old.path, edit, tmp_path / "edited")
    assert table.text(table.row_of("n:0")) == "Bo left."


@pytest.mark.parametrize("format", WRITE)
def test_a_title_that_no_document_has_is_an_error_or_a_warning(tmp_path, format):
    path = WRITE[format](tmp_path / "c")
    fields = {"text": "body", "title": "nope"}
    with pytest.raises(CorpusError, match="'nope'.* wanted (a name|the name of one).*--fields title NAME"):
        build_corpus(CorpusConfig(path, format=format, fields=fields), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    table = build_corpus(CorpusConfig(path, format=format, fields=fields, lenient=True), tmp_path / "out")
    assert table.manifest["warnings"] == ["no document with a title under the name 'nope'"]
    assert table.manifest["skips"] == {} and table.manifest["counts"]["titles_missing"] == 3
    good = CorpusConfig(path, format=format, fields={"text": "body", "title": "title"})
    assert build_corpus(good, tmp_path / "good").manifest["warnings"] == []


def test_one_entry_with_titles_is_enough_and_a_limit_makes_it_a_warning(tmp_path):
    rows = [{"id": f"n{row['id']}", "body": row["body"]} for row in ROWS]
    without, some = jsonl(tmp_path / "a.jsonl", rows), jsonl(tmp_path / "b.jsonl")
    fields = {"text": "body", "title": "title"}
    assert build_corpus(CorpusConfig((without, some), fields=fields), tmp_path / "two").manifest["warnings"] == []
    table = build_corpus(CorpusConfig(without, fields=fields, limit=2), tmp_path / "cut")
    assert table.manifest["warnings"] == [f"{ABSENT}a title under the name 'title'"]


def test_a_mark_of_held_out_documents_that_none_has_is_a_warning(tmp_path):
    """It is no error: documents may all say that they are not held out."""
    config = CorpusConfig(jsonl(tmp_path / "c.jsonl"), fields={"text": "body", "heldout": "nope"})
    assert build_corpus(config, tmp_path / "out").manifest["warnings"] == [f"{ABSENT}a heldout under the name 'nope'"]


def test_a_lenient_edit_warns_of_a_title_that_no_added_document_has(tmp_path):
    path = jsonl(tmp_path / "c.jsonl")
    old = build_corpus(CorpusConfig(path, fields={"text": "body"}), tmp_path / "old")
    new = jsonl(tmp_path / "new.jsonl", [{"id": "n", "body": "Bo left."}])
    edit = CorpusEdit(add=new, fields={"text": "body", "title": "nam"}, lenient=True)
    warnings = edit_corpus(old.path, edit, tmp_path / "edited").manifest["warnings"]
    assert warnings == [f"{ABSENT}a title under the name 'nam'"]
    with pytest.raises(CorpusError, match="found 1 documents and none with a title under the name 'nam'"):
        edit_corpus(old.path, CorpusEdit(add=new, fields={"text": "body", "title": "nam"}), tmp_path / "strict")


def test_a_built_corpus_is_no_document(tmp_path):
    built = build_corpus(CorpusConfig(jsonl(tmp_path / "c.jsonl"), fields={"text": "body"}), tmp_path / "old").path
    said = "old: found a built corpus, wanted the documents that it was built from"
    for entry in (str(built), f"folder:{built}"):
        with pytest.raises(CorpusError, match=said):
            build_corpus(CorpusConfig(entry), tmp_path / "out")
    with pytest.raises(CorpusError, match=said):
        edit_corpus(built, CorpusEdit(add=str(built)), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.jsonl", "old"]


def test_a_folder_of_dumps_is_read_in_a_build_as_anywhere(tmp_path):
    for number, name in enumerate(("a.xml", "inner/b.xml", "readme.md")):
        path = tmp_path / "dumps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"<mediawiki>{page(f'p{number}', name, 'Ada came.').decode()}</mediawiki>".encode())
    folder = str(tmp_path / "dumps")
    counts = Counter()
    wanted = [one.id for one in read_documents(folder, format="mediawiki", counts=counts)]
    table = build_corpus(CorpusConfig(f"mediawiki:{folder}"), tmp_path / "out")
    assert [table.document_id(row) for row in range(table.rows)] == wanted == ["p0", "p1"]
    assert table.manifest["skips"] == {f"document: {reason}": count for reason, count in counts.items()}
