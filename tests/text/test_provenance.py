"""Who found a span is stored with it: through parts, joins and edits, and for corpora that were built before."""

import json

import numpy as np
import pytest

from realm.text import build_parts
from realm.text.assemble import assemble
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_encode import WordEncoder
from realm.text.build_join import OTHERS, Join
from realm.text.build_kept import Kept
from realm.text.corpus import CorpusError, Document
from realm.text.edit import CorpusEdit, edit_corpus
from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer

WANTED = {
    "a": [("Ada", "PER", "bert"), ("Paris", "LOC", "hand"), ("1969", "DATE", "dates")],
    "b": [("Bo", "PER", "file"), ("Rome", "LOC", "file"), ("1971", "DATE", "dates")],
    "c": [("Cy", "PER", "file"), ("1970", "DATE", "dates")],
}


def write(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    """Three documents; the spans of the first by a tagger that the line names, but for one that names its own."""
    documents = [
        {"id": "a", "title": "", "text": "Ada left Paris in 1969."},
        {"id": "b", "title": "", "text": "Bo left Rome in 1971."},
        {"id": "c", "title": "", "text": "Cy left home in 1970."},
    ]
    spans = [
        {"id": "a", "tagger": "bert", "spans": [[0, 3, "PER"], [9, 14, "LOC", "hand"]]},
        {"id": "b", "spans": [[0, 2, "PER"], [8, 12, "LOC"], [16, 20, "DATE"]]},  # a file's date is not taken
        {"id": "c", "spans": [[0, 2, "PER"]]},
    ]
    return CorpusConfig(write(tmp_path / "d.jsonl", documents), write(tmp_path / "s.jsonl", spans))


def found(table, document):
    row = table.row_of(f"{document}:0")
    text = table.text(row)
    return [
        (text[start:end], table.kinds[kind], tagger)
        for (_, _, _, start, end, kind), tagger in zip(table.spans(row).tolist(), table.found_by(row), strict=True)
    ]


def test_each_span_keeps_its_tagger(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(build_parts, "PART_DOCUMENTS", 1)  # every part numbers its taggers anew
    table = build_corpus(corpus, tmp_path / "out")
    assert {name: found(table, name) for name in WANTED} == WANTED
    assert table.tagger_P.dtype == np.uint8 and len(table.tagger_P) == len(table.span_P6)
    assert table.manifest["counts"]["spans_by_tagger"] == {"bert": 1, "hand": 1, "dates": 3, "file": 3}
    assert BlockTable.open(table.path, verify=True).taggers == ["bert", "hand", "dates", "file"]


def test_an_edit_copies_them(corpus, tmp_path):
    table = build_corpus(corpus, tmp_path / "out")
    spans = write(tmp_path / "more.jsonl", [{"id": "e", "tagger": "spacy:x", "spans": [[0, 2, "PER"]]}])
    add = write(tmp_path / "add.jsonl", [{"id": "e", "title": "", "text": "Em left in 1972."}])
    edited = edit_corpus(table.path, CorpusEdit(add=add, delete="a", spans=spans), tmp_path / "new")
    assert {name: found(edited, name) for name in "bc"} == {name: WANTED[name] for name in "bc"}
    assert found(edited, "e") == [("Em", "PER", "spacy:x"), ("1972", "DATE", "dates")]
    assert edited.manifest["counts"]["spans_by_tagger"] == {"file": 3, "dates": 3, "spacy:x": 1}


def aged(folder):
    """The corpus as it would have been written before the column was there."""
    (folder / "tagger.npy").unlink()
    manifest = json.loads((folder / "manifest.json").read_text())
    for part, name in (
        (manifest, "taggers"),
        (manifest["files"], "tagger.npy"),
        (manifest["counts"], "spans_by_tagger"),
    ):
        del part[name]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return BlockTable.open(folder)


def test_an_older_corpus_opens_and_can_be_edited(corpus, tmp_path):
    old = aged(build_corpus(corpus, tmp_path / "out").path)
    assert found(old, "a") == [(text, kind, "unknown") for text, kind, _ in WANTED["a"]]
    edited = edit_corpus(old.path, CorpusEdit(delete="a"), tmp_path / "new")
    assert [tagger for *_, tagger in found(edited, "b")] == ["unknown"] * 3
    assert build_corpus(corpus, tmp_path / "out").fingerprint == old.fingerprint, "the same source is not built again"


def test_a_corpus_that_should_have_the_column_and_has_not_is_damaged(corpus, tmp_path):
    table = build_corpus(corpus, tmp_path / "out")
    (table.path / "tagger.npy").unlink()
    with pytest.raises(CorpusError, match="a file missing or damaged"):
        BlockTable.open(table.path)


def test_a_part_of_an_earlier_layout_is_made_again(corpus, tmp_path, monkeypatch):
    task = build_parts.PartTask(tmp_path / "part.npz", "documents", [(Document("a", "", "Ada."), [])], corpus)
    encoder = WordEncoder(Tokenizer.load())
    monkeypatch.setattr(build_parts, "LAYOUT", 1)
    build_parts.make_part(encoder, task)
    before = task.path.stat().st_mtime_ns, task.path.stat().st_ino
    build_parts.make_part(encoder, task)
    assert (task.path.stat().st_mtime_ns, task.path.stat().st_ino) == before
    monkeypatch.setattr(build_parts, "LAYOUT", 2)
    build_parts.make_part(encoder, task)
    assert (task.path.stat().st_mtime_ns, task.path.stat().st_ino) != before


def test_more_taggers_than_a_byte_has_room_for_share_the_last(corpus, tmp_path):
    text = "Ada " * 300 + "."
    spans = [(4 * n, 4 * n + 3, "PER", f"tagger {n}") for n in range(300)]
    config = CorpusConfig(corpus.documents, block_length=512)
    part = assemble([(Document("a", "", text), spans)], config, WordEncoder(Tokenizer.load()))
    assert len(part.taggers) == 300
    (tmp_path / "aside").mkdir()
    with Join(tmp_path, tmp_path / "aside") as join:
        join.add(part, "documents")
        counts = join.finish()["spans_by_tagger"]
    assert len(counts) == 256 and counts[OTHERS] == 45 and counts["tagger 254"] == 1


def test_kept_documents_bring_only_the_taggers_they_have(corpus, tmp_path):
    part, _ = Kept(build_corpus(corpus, tmp_path / "out")).part(np.array([1, 2]))
    assert part.taggers == ["file", "dates"] and part.arrays["tagger"].tolist() == [0, 0, 1, 0, 1]
