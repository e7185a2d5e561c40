"""`realm data`: building from any format, looking into a corpus, editing one; and what it says when it cannot."""

import json

import numpy as np
import pytest

from experiments.cli import main
from experiments.data_show import inspected
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


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        ([], 2, "realm data inspect CORPUS"),
        (["destroy"], 2, "realm data edit CORPUS"),
        (["inspect"], 2, "wanted `realm data inspect CORPUS`"),
        (["edit", "--out", "x"], 2, "wanted `realm data edit CORPUS`"),
        (["inspect", "nowhere"], 1, "found no corpus folder"),
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
