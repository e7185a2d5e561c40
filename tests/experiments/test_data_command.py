"""`realm data`: building from any format, looking into a corpus, editing one; and what it says when it cannot."""

import json

import numpy as np
import pytest

from experiments.cli import main
from experiments.data_show import inspected
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.formats import read_documents, read_with_spans
from realm.text.question_sets import read_question_set
from realm.text.question_sets.spec import open_question_set
from realm.text.sample import sample_path
from realm.text.spans import read_spans
from realm.text.table import BlockTable


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "corpus"
    given = ["sample:corpus", "--spans", "sample:spans", "--limit", "40", "--block-length", "96", "--workers", "1"]
    assert main(["data", "build", *given, "--out", str(folder)]) == 0
    return folder


def test_build_reads_several_entries_of_any_format(tmp_path, capsys):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "note.txt").write_text("Ada Smith came in 1969.")
    (tmp_path / "beir.jsonl").write_text('{"_id": "b", "title": "B", "body": "Bo stayed until 1971."}\n')
    arguments = [
        "data",
        "build",
        str(tmp_path / "beir.jsonl"),
        "--fields",
        "id",
        "_id",
        "text",
        "body",
        "title",
        "title",
    ]
    assert main([*arguments, "--out", str(tmp_path / "one")]) == 0
    arguments = ["data", "build", f"folder:{tmp_path / 'texts'}", "sample:corpus", "--limit", "2"]
    assert main([*arguments, "--out", str(tmp_path / "two"), "--json", str(tmp_path / "two.json")]) == 0
    assert "documents: 3" in capsys.readouterr().out
    assert json.loads((tmp_path / "two.json").read_text())["counts"]["documents"] == 3
    table = BlockTable.open(tmp_path / "two")
    assert (table.title(0), table.text(0)) == ("note", "Ada Smith came in 1969.")


def test_inspect_shows_counts_lengths_skips_kinds_and_blocks(corpus, tmp_path, capsys):
    assert main(["data", "inspect", str(corpus), "--blocks", "2", "--verify", "--json", str(tmp_path / "i.json")]) == 0
    said, found = capsys.readouterr().out, json.loads((tmp_path / "i.json").read_text())
    table = BlockTable.open(corpus)
    assert found["counts"] == table.manifest["counts"] and found["skips"] == table.manifest["skips"]
    histogram = found["lengths"]["histogram"]
    assert sum(one["blocks"] for one in histogram) == table.rows
    assert (histogram[0]["from"], histogram[-1]["to"]) == (table.length_N.min(), table.length_N.max())
    for one in histogram:
        inside = (table.length_N >= one["from"]) & (table.length_N <= one["to"])
        assert one["blocks"] == inside.sum()
        assert f"{one['from']}-{one['to']}" in said
    assert found["lengths"]["quantiles"]["wordpieces of a block"]["50"] == np.median(table.length_N)
    assert {one["kind"]: one["spans"] for one in found["kinds"]} == table.manifest["counts"]["spans_by_kind"]
    assert sum(one["supported"] for one in found["kinds"]) == table.manifest["counts"]["spans_supported"]
    assert [one["shown"] for one in found["blocks"]] == [table.show(one["row"]) for one in found["blocks"]]
    assert len(found["blocks"]) == 2 and found["blocks"][0]["id"] in said and "⟦" in said
    assert f"skip   {next(iter(found['skips']))}" in said and "kind   DATE" in said


def test_inspect_finds_what_cleaning_left_of_markup(corpus, tmp_path, capsys):
    assert inspected(BlockTable.open(corpus), 1, 0)["residue"] is None
    rows = ["Ada came in 1969.", "Bo [[stayed]] until ''1971''.", "C.\n|-\n", "It cost &pound;3 and {{5}} of [[x"]
    lines = [json.dumps({"id": f"d{n}", "title": "", "text": text}) for n, text in enumerate(rows)]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    assert main(["data", "build", str(tmp_path / "c.jsonl"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    assert "blocks a second" in capsys.readouterr().out
    assert main(["data", "inspect", str(tmp_path / "out"), "--residue", "--json", str(tmp_path / "i.json")]) == 0
    said, found = capsys.readouterr().out, json.loads((tmp_path / "i.json").read_text())["residue"]
    assert found["blocks"] == 3 and found["first"] == ["d1:0", "d2:0", "d3:0"]
    assert found["kinds"] == {"brackets": 3, "quotes": 2, "braces": 2, "table": 1, "entity": 1}
    assert "residue of markup in 3 of 4 blocks: brackets 3, " in said and "d2:0" in said


def test_dates_are_measured_against_labels(tmp_path, capsys):
    text = "Born on 4 July 1776, he left in 1790 for three years, today known as March."
    labels = [("4 July 1776", "DATE"), ("left in 1790", "DATE"), ("three years", "DATE"), ("he", "PERSON")]
    spans = [[text.index(part), text.index(part) + len(part), label] for part, label in labels]
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"id": "a", "text": text}) + "\n" + json.dumps({"id": "b", "text": "Unlabelled 1969."})
    )
    (tmp_path / "s.jsonl").write_text(json.dumps({"id": "a", "spans": spans}))
    given = [str(tmp_path / "c.jsonl"), "--spans", str(tmp_path / "s.jsonl"), "--show", "1"]
    assert main(["data", "dates", *given, "--json", str(tmp_path / "d.json")]) == 0
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["counts"]["found"] == 3 and found["counts"]["labelled"] == 3
    assert found["exact"] == {"precision": 1 / 3, "recall": 1 / 3, "calendar_recall": 1 / 2}
    assert found["touching"] == {"precision": 2 / 3, "recall": 2 / 3, "calendar_recall": 1.0}
    said = capsys.readouterr().out
    assert "found alone: " in said and "⟦1790⟧" in said and "⟦left in 1790⟧" in said and "⟦three years⟧" not in said


def test_a_corpus_and_its_questions_become_a_dataset_and_come_back(tmp_path, capsys):
    out = tmp_path / "data"
    given = ["sample:corpus", "--spans", "sample:spans", "--questions", "test", "sample:questions-test"]
    assert main(["data", "tfds", *given, "--out", str(out), "--json", str(tmp_path / "t.json")]) == 0
    folders = json.loads((tmp_path / "t.json").read_text())["folders"]
    assert folders["documents"] in capsys.readouterr().out
    questions = read_question_set(f"tfds:{folders['questions']}:test")
    assert questions.questions == open_question_set("sample:questions-test").questions
    pairs = list(read_with_spans(folders["documents"]))
    assert [one for one, _ in pairs] == list(read_documents(sample_path("corpus")))
    wanted = {number: spans for number, spans in read_spans(sample_path("spans"))}
    assert [spans for _, spans in pairs] == [[(*span, "file") for span in wanted[one.id]] for one, _ in pairs]
    (tmp_path / "trec.tsv").write_text("1\tfactoid\tHow tall?\t20\\s?,320\n")
    given = ["sample:corpus", "--questions", "test", f"trec:{tmp_path / 'trec.tsv'}", "--out", str(tmp_path / "other")]
    assert main(["data", "tfds", *given]) == 1 and not (tmp_path / "other").exists()
    assert "found regular expressions, wanted answers that are texts" in capsys.readouterr().err


def test_inspect_of_another_seed_shows_other_blocks(corpus):
    table = BlockTable.open(corpus)
    rows = [[one["row"] for one in inspected(table, 5, seed)["blocks"]] for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2] and rows[0] == sorted(rows[0])
    assert len(inspected(table, 10_000, 0)["blocks"]) == table.rows


def test_edit_makes_a_version_that_says_what_changed(corpus, tmp_path, capsys):
    table = BlockTable.open(corpus)
    (tmp_path / "add.jsonl").write_text('{"id": "new", "title": "N", "text": "Ada came in 1969."}\n')
    ids = list(dict.fromkeys(table.document_id(row) for row in range(table.rows)))
    changed = {"id": ids[5], "title": "Other", "text": "Nothing is left of it."}
    (tmp_path / "replace.jsonl").write_text(json.dumps(changed) + "\n")
    (tmp_path / "gone.txt").write_text(f"{ids[0]}\n\n{ids[9]}\n")
    arguments = ["--add", str(tmp_path / "add.jsonl"), "--replace", str(tmp_path / "replace.jsonl")]
    arguments += ["--delete", f"@{tmp_path / 'gone.txt'}", ids[12], "--out", str(tmp_path / "new")]
    assert main(["data", "edit", str(corpus), *arguments, "--workers", "1", "--json", str(tmp_path / "e.json")]) == 0
    assert "lineage deleted_documents: 3" in capsys.readouterr().out
    new = BlockTable.open(tmp_path / "new")
    lineage = json.loads((tmp_path / "e.json").read_text())["lineage"]
    assert lineage["parent"] == table.fingerprint and lineage["deleted_documents"] == 3
    assert (lineage["replaced_documents"], lineage["added_documents"]) == (1, 1)
    assert new.text(new.row_of("new:0")) == "Ada came in 1969."
    assert new.text(new.row_of(f"{changed['id']}:0")) == changed["text"]
    with pytest.raises(KeyError):
        new.rows_of_document(ids[0])
    capsys.readouterr()
    assert main(["data", "inspect", str(tmp_path / "new")]) == 0
    assert "lineage added_documents: 1" in capsys.readouterr().out


def test_ids_to_delete_come_from_files_of_lines_and_may_begin_with_at(tmp_path):
    ids = ["@a", "b\u2028c", "d\x0be", "f", "g"]
    rows = [{"id": one, "text": "Ada came in 1969."} for one in ids]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = build_corpus(CorpusConfig(str(tmp_path / "c.jsonl")), tmp_path / "old")
    (tmp_path / "gone.txt").write_bytes("\ufeffb\u2028c\r\n\nd\x0be\n".encode())
    given = ["--delete", f"@{tmp_path / 'gone.txt'}", "@@a", "f", "--out", str(tmp_path / "new"), "--workers", "1"]
    assert main(["data", "edit", str(table.path), *given]) == 0
    new = BlockTable.open(tmp_path / "new")
    assert [new.document_id(row) for row in range(new.rows)] == ["g"]


@pytest.mark.parametrize(
    "written, said",
    [
        (None, "ids.txt: found no readable file (No such file or directory), wanted a file of ids, one a line"),
        (b"good\n\xff\n", "ids.txt:2: found the byte 0xff, which is not UTF-8, wanted a file of ids, one a line"),
        (b"\n", "ids.txt, wanted a file of ids, one a line"),
        (
            "alone",
            "found no id in --delete @, wanted a file of ids, one a line (an id that begins with @ is written @@",
        ),
    ],
)
def test_a_file_of_ids_that_cannot_be_read_is_one_line(corpus, tmp_path, capsys, written, said):
    path = tmp_path / "ids.txt"
    if isinstance(written, bytes):
        path.write_bytes(written)
    given = "@" if written == "alone" else f"@{path}"
    assert main(["data", "edit", str(corpus), "--delete", given, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_folder_of_another_source_is_answered_in_options(corpus, capsys):
    assert main(["data", "build", "sample:corpus", "--limit", "3", "--out", str(corpus)]) == 1
    assert "choose another folder, or replace it (--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        ([], 2, "realm data inspect CORPUS"),
        (["destroy"], 2, "realm data edit CORPUS"),
        (["inspect"], 2, "wanted `realm data inspect CORPUS`"),
        (["edit", "--out", "x"], 2, "wanted `realm data edit CORPUS`"),
        (["dates", "--spans", "x"], 2, "wanted `realm data dates DOCUMENTS"),
        (["dates", "sample:corpus", "--spans", "none.jsonl"], 1, "none.jsonl: found no readable file"),
        (["tfds", "--out", "x"], 2, "wanted `realm data tfds DOCUMENTS"),
        (["tfds", "none.jsonl", "--out", "OUT"], 1, "none.jsonl: found no readable file"),
        (["tfds", "sample:corpus", "--questions", "../x", "sample:questions", "--out", "OUT"], 1, "the split '../x'"),
        (["tfds", "CORPUS", "--out", "OUT"], 1, "found a built corpus, wanted the documents that it was built from"),
        (["build", "CORPUS", "--out", "OUT"], 1, "found a built corpus, wanted the documents that it was built from"),
        (["inspect", "nowhere"], 1, "found no corpus folder (no manifest.json), wanted one that `realm data build`"),
        (["inspect", "CORPUS", "--seed", "-1"], 2, "found --seed -1, wanted 0 or more"),
        (["inspect", "CORPUS", "--blocks", "0"], 2, "--blocks 0"),
        (["build", "none.jsonl", "--out", "OUT", "--workers", "0"], 2, "--workers 0"),
        (["build", "none.jsonl", "--out", "OUT"], 1, "none.jsonl: found no readable file"),
        (["edit", "CORPUS", "--delete", "nobody", "--out", "OUT"], 1, "delete: found no document 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_one_line(corpus, tmp_path, capsys, arguments, code, said):
    places = {"CORPUS": str(corpus), "OUT": str(tmp_path / "out")}
    assert main(["data", *(places.get(one, one) for one in arguments)]) == code
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
