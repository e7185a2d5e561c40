"""A new version of a corpus is what building it anew would give, and says which rows kept their wordpieces."""

import gzip
import json

import numpy as np
import pytest

from realm.text import edit as edit_module
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.changed import changed_rows
from realm.text.corpus import CorpusError
from realm.text.edit import CorpusEdit, EditError, edit_corpus
from realm.text.sample import sample_path
from realm.text.table import BlockTable

SETTINGS = {"block_length": 64, "holdout": 0.3, "min_sentence_tokens": 6}


def write(path, records):
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(path)


@pytest.fixture(scope="module")
def records():
    with gzip.open(sample_path("corpus"), "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in list(file)[::60]]
    found[3]["title"] = ""
    found[4]["title"] = "a title that is longer than what a block of this length gives to it " * 2
    return found


@pytest.fixture(scope="module")
def old(records, tmp_path_factory):
    """Documents in all three roles, with spans of a file."""
    folder = tmp_path_factory.mktemp("old")
    write(folder / "spans.jsonl", [{"id": one["id"], "spans": [[0, 3, "FIRST"]]} for one in records])
    config = CorpusConfig(
        write(folder / "both.jsonl", records[:20]),
        str(folder / "spans.jsonl"),
        write(folder / "z.jsonl", records[20:26]),
        write(folder / "x.jsonl", records[26:32]),
        **SETTINGS,
    )
    return build_corpus(config, folder / "out")


def edited(old, records, tmp_path, **more):
    """Documents of every role replaced and deleted, two added, one of them a copy of one that stays."""
    new = [{**records[40], "text": records[5]["text"], "title": records[5]["title"]}, records[41]]
    changed = [{**records[n], "text": f"A new beginning of 1969. {records[n]['text']}"} for n in (7, 22, 30)]
    edit = CorpusEdit(
        add=write(tmp_path / "add.jsonl", new),
        replace=write(tmp_path / "replace.jsonl", changed),
        delete=(records[2]["id"], records[20]["id"], records[31]["id"]),
        spans=write(tmp_path / "spans.jsonl", [{"id": one["id"], "spans": [[2, 5, "NEW"]]} for one in new + changed]),
    )
    return edit_corpus(old.path, edit, tmp_path / "new", **more), new, changed


def test_an_edit_gives_what_a_build_of_the_edited_documents_gives(old, records, tmp_path, monkeypatch):
    monkeypatch.setattr(edit_module, "KEPT_DOCUMENTS", 5)
    table, new, changed = edited(old, records, tmp_path)
    roles = {"both": [], "z": [], "x": []}
    for name, low, high in (("both", 0, 20), ("z", 20, 26), ("x", 26, 32)):
        roles[name] += [records[n] for n in range(low, high) if n not in (2, 20, 31, 7, 22, 30)]
    roles["both"] += [changed[0], *new]
    roles["z"].append(changed[1])
    roles["x"].append(changed[2])
    fresh_ids = {one["id"] for one in new + changed}
    spans = [
        {"id": one["id"], "spans": [[2, 5, "NEW"]] if one["id"] in fresh_ids else [[0, 3, "FIRST"]]}
        for rows in roles.values()
        for one in rows
    ]
    config = CorpusConfig(
        write(tmp_path / "1.jsonl", roles["both"]),
        write(tmp_path / "s.jsonl", spans),
        write(tmp_path / "2.jsonl", roles["z"]),
        write(tmp_path / "3.jsonl", roles["x"]),
        **SETTINGS,
    )
    fresh = build_corpus(config, tmp_path / "fresh")
    for path in fresh.path.glob("*.npy"):
        assert path.read_bytes() == (table.path / path.name).read_bytes(), path.name
    assert table.kinds == fresh.kinds
    unknowable = {"sentences_split", "sentences_without_wordpieces", "words_cut"}
    for name, count in fresh.manifest["counts"].items():
        assert name in unknowable or table.manifest["counts"][name] == count, name
    lineage = table.manifest["lineage"]
    assert lineage["parent"] == old.fingerprint and lineage["ancestors"] == [old.fingerprint]
    assert [lineage[f"{what}_documents"] for what in ("kept", "deleted", "replaced", "added")] == [26, 3, 3, 2]
    BlockTable.open(table.path, verify=True)


def check(old, new):
    """`changed_rows` against a comparison of every pair of rows."""
    found = changed_rows(old, new)
    sides = [
        [(tuple(table.title_T(row)), tuple(table.token_T(row))) for row in range(table.rows)] for table in (old, new)
    ]
    known = set(sides[0])
    for row, key in enumerate(sides[1]):
        old_row = found.old_row_N[row]
        assert (old_row >= 0) == (key in known)
        assert old_row < 0 or sides[0][old_row] == key
    for row, new_row in enumerate(found.new_row_O.tolist()):
        assert new_row < 0 or sides[1][new_row] == sides[0][row]
        assert new_row < 0 or found.old_row_N[new_row] == row
    assert found.changed.tolist() == [row for row, key in enumerate(sides[1]) if key not in known]
    return found


def test_unchanged_blocks_are_known_with_and_without_lineage(old, records, tmp_path):
    table, new, changed = edited(old, records, tmp_path)
    found = check(old, table)
    for row in range(table.rows):  # a document that stays leads to its own old block, not to a copy of it
        if table.document_id(row) not in {one["id"] for one in new + changed}:
            assert old.block_id(int(found.old_row_N[row])) == table.block_id(row)
    assert table.manifest["lineage"]["kept_blocks"] == int((found.old_row_N >= 0).sum())
    copies = table.rows_of_document(new[0]["id"])
    assert (found.old_row_N[copies] == old.rows_of_document(records[5]["id"])).all()
    assert 0 < len(found.changed) < 20
    vector_N = np.arange(old.rows)[found.old_row_N]  # how a refresher takes vectors over
    assert vector_N[0] == 0
    check(table, old)  # no lineage leads back: found from hashes
    again = edit_corpus(table.path, CorpusEdit(delete=records[0]["id"]), tmp_path / "third")
    assert again.manifest["lineage"]["ancestors"] == [old.fingerprint, table.fingerprint]
    check(old, again)
    assert changed_rows(table, again).changed.size == 0
    assert changed_rows(old, old).old_row_N.tolist() == list(range(old.rows))


def test_other_vocabularies_share_no_vectors(old, records, tmp_path):
    config = CorpusConfig(write(tmp_path / "c.jsonl", records[:20]), vocabulary="train:400", **SETTINGS)
    with pytest.raises(CorpusError, match="wanted one and the same"):
        changed_rows(old, build_corpus(config, tmp_path / "out"))


def test_the_same_edit_is_used_again_and_the_old_version_stays(old, records, tmp_path):
    before = {path.name: path.read_bytes() for path in old.path.iterdir()}
    table, *_ = edited(old, records, tmp_path)
    assert edited(old, records, tmp_path)[0].fingerprint == table.fingerprint
    with pytest.raises(CorpusError, match="delete: found .*choose another folder"):
        edit_corpus(old.path, CorpusEdit(delete=records[0]["id"]), tmp_path / "new")
    assert before == {path.name: path.read_bytes() for path in old.path.iterdir()}
    assert not list(tmp_path.glob("*.parts*")) + list(tmp_path.glob("*.partial*"))


def test_an_edit_from_two_processes_has_the_same_bytes(old, records, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = edited(old, records, tmp_path / "one")[0]
    second = edited(old, records, tmp_path / "two", workers=2)[0]
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda r, p: CorpusEdit(delete="nobody"), "delete: found no document 'nobody'"),
        (lambda r, p: CorpusEdit(delete=(r[0]["id"],) * 2), "delete: found the document .* once more"),
        (lambda r, p: CorpusEdit(add=write(p / "a.jsonl", r[:1])), "add: found the document .* has already"),
        (lambda r, p: CorpusEdit(replace=write(p / "a.jsonl", r[40:41])), "replace: found no document"),
        (
            lambda r, p: CorpusEdit(replace=write(p / "a.jsonl", r[:1]), delete=r[0]["id"]),
            "replace: found the document .* deleted or replaced already",
        ),
        (lambda r, p: CorpusEdit(delete=[one["id"] for one in r[:26]]), "leaves nothing to retrieve"),
        (lambda r, p: CorpusEdit(add=str(p / "none.jsonl")), "none.jsonl: found no readable file"),
    ],
)
def test_edits_that_do_not_fit_are_refused_and_leave_nothing(old, records, tmp_path, make, message):
    with pytest.raises(CorpusError, match=message):
        edit_corpus(old.path, make(records, tmp_path), tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir() if path.name != "a.jsonl"] == []


def test_a_lenient_edit_passes_over_what_does_not_fit_and_counts_it(old, records, tmp_path):
    edit = CorpusEdit(
        add=write(tmp_path / "a.jsonl", [records[0], records[40]]),
        replace=write(tmp_path / "r.jsonl", [records[41], {**records[1], "text": "New."}]),
        delete=("nobody", records[1]["id"]),
        lenient=True,
    )
    table = edit_corpus(old.path, edit, tmp_path / "new")
    lineage = table.manifest["lineage"]
    assert [lineage[f"{what}_documents"] for what in ("kept", "deleted", "replaced", "added")] == [31, 1, 0, 1]
    assert {name: count for name, count in table.manifest["skips"].items() if "unfit" in name} == {
        "document: unfit for add": 1,
        "document: unfit for delete": 1,
        "document: unfit for replace": 2,
    }


def test_edits_of_nothing_and_in_place_are_refused(old):
    with pytest.raises(EditError, match="nothing to do"):
        CorpusEdit()
    with pytest.raises(EditError, match="role='queries'"):
        CorpusEdit(delete="a", role="queries")
    with pytest.raises(EditError, match="wanted another folder"):
        edit_corpus(old.path, CorpusEdit(delete="a"), old.path)
