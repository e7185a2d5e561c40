"""The block table on disk: ids, duplicates, support, and refusal of folders that are not whole."""

import json
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from realm.text import blocks as building
from realm.text import grouping
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.corpus import CorpusError
from realm.text.table import BlockTable

TALE = "The old lighthouse stood on the northern cliff. It was built in 1869 by Ada Smith. Did the keeper leave?"


def write(path: Path, records: list[dict]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(path)


def documents(texts: list[str], title: str = "A title") -> list[dict]:
    return [{"id": f"d{n}", "title": title, "text": text} for n, text in enumerate(texts)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("table")
    source = write(
        place / "corpus.jsonl", [{"id": "doc:1:x", "title": "T", "text": TALE}, *documents([TALE, "Short."])]
    )
    build_corpus(CorpusConfig(source, block_length=24), place / "out")
    return place / "out"


@pytest.fixture
def copy(folder, tmp_path):
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_ids_and_rows_lead_to_each_other(folder):
    table = BlockTable.open(folder, verify=True)
    assert [table.block_id(row) for row in range(table.rows)] == ["doc:1:x:0", "doc:1:x:1", "d0:0", "d0:1", "d1:0"]
    for row in range(table.rows):
        assert table.row_of(table.block_id(row)) == row
        assert row in table.rows_of_document(table.document_id(row))
    assert table.rows_of_document("doc:1:x") == [0, 1]
    for unknown in ("doc:1:x:2", "doc:1:x", "d0:-1", "d0:", "nobody:0", ""):
        with pytest.raises(KeyError, match="found no block"):
            table.row_of(unknown)
    with pytest.raises(KeyError, match="found no document 'nobody'"):
        table.rows_of_document("nobody")
    for row in (-1, table.rows):
        with pytest.raises(IndexError, match=f"found row {row}, wanted 0 to 4"):
            table.text(row)


def test_arrays_have_the_promised_types_and_cannot_be_written(folder):
    table = BlockTable.open(folder)
    for values in (table.token_T(0), table.title_T(0), table.sentences(0), table.spans(0), table.support(0)):
        assert values.dtype == np.int32
    assert table.spans(4).shape == (0, 6) and table.sentences(0).shape == (2, 4)
    assert [table.length_N.dtype, table.document_N.dtype, table.duplicate_N.dtype] == [np.int32] * 3
    assert table.heldout_N.dtype == bool and table.rows == len(table.length_N) == 5
    with pytest.raises(ValueError, match="read-only"):
        table.token_T(0)[0] = 1
    assert pickle.loads(pickle.dumps(table)).fingerprint == table.fingerprint
    assert table.show(0).startswith("doc:1:x:0 [T] The old") and "⟦1869|DATE 1⟧" in table.show(0)
    assert "5 blocks of 3 documents" in repr(table)


def test_duplicates_are_byte_identical_and_nothing_else(tmp_path):
    nfc, nfd = "Café society met Ada in 1969.", "Cafe\u0301 society met Ada in 1969."
    records = documents([nfc, nfd, nfc, nfc + " ", nfc.replace("&", "&amp;"), "café society met ada in 1969."], "T")
    records += [{"id": "other", "title": "t", "text": nfc}, {"id": "again", "title": "T", "text": nfd}]
    table = build_corpus(CorpusConfig(write(tmp_path / "c.jsonl", records)), tmp_path / "out")
    # A blank at the end of a document is in no sentence, so in no block: rows 0, 2, 3 and 4 hold the same bytes.
    assert table.duplicate_N.tolist() == [0, 1, 0, 0, 0, 5, 6, 1]
    assert table.manifest["counts"]["duplicate_blocks"] == 4
    for row in range(table.rows):
        same = table.duplicate_N[row]
        assert (table.title(row), table.text(row)) == (table.title(same), table.text(same))


def test_support_counts_other_blocks_with_the_same_wordpieces(tmp_path):
    texts = ["Ada met Bo in 1969.", "In 1969 and 1969 it was ADA.", "Ada met Bo in 1969.", "Was Bo here in 1971?"]
    where = {"Ada": [(0, 0, 3), (1, 24, 27), (2, 0, 3)], "Bo": [(0, 8, 10), (2, 8, 10)]}
    spans = [
        {"id": f"d{n}", "spans": [[s, e, "P"] for one in where.values() for d, s, e in one if d == n]} for n in range(4)
    ]
    config = CorpusConfig(write(tmp_path / "c.jsonl", documents(texts)), write(tmp_path / "s.jsonl", spans))
    table = build_corpus(config, tmp_path / "out")
    found = [
        [(table.text(row)[a:b], n) for (a, b), n in zip(table.spans(row)[:, 3:5], table.support(row), strict=True)]
        for row in range(4)
    ]
    # Rows 0 and 2 are copies: they support nobody twice, and each other not at all. "ADA" has the pieces of "Ada".
    assert found[0] == found[2] == [("Ada", 1), ("Bo", 0), ("1969", 1)]
    assert found[1] == [("1969", 1), ("1969", 1), ("ADA", 1)]
    assert found[3] == [("1971", 0)]
    assert table.manifest["counts"]["spans_supported"] == 7
    assert table.manifest["counts"]["spans_by_kind"] == {"P": 5, "DATE": 5}


def test_grouping_agrees_with_counting_one_by_one():
    rng = np.random.default_rng(0)
    token_flat, start_P = rng.integers(0, 3, 500), rng.integers(0, 490, 300)
    length_P, group_P = rng.integers(1, 5, 300), rng.integers(0, 12, 300)
    counts_P = rng.random(300) < 0.7
    words = [tuple(token_flat[a : a + n]) for a, n in zip(start_P, length_P, strict=True)]
    hash_P = grouping.span_hashes(token_flat, start_P, length_P)
    assert len(set(hash_P.tolist())) == len(set(words))
    wanted = [
        len({g for w, g, counts in zip(words, group_P, counts_P, strict=True) if counts and w == word} - {mine})
        for word, mine in zip(words, group_P, strict=True)
    ]
    assert grouping.other_holders(hash_P, group_P, counts_P).tolist() == wanted
    empty = np.zeros(0, np.int64)
    none = grouping.other_holders(grouping.span_hashes(token_flat, empty, empty), empty, empty.astype(bool))
    assert none.tolist() == []


def test_hashes_sorted_in_buckets_give_what_one_bucket_gives():
    rng = np.random.default_rng(1)
    half_N2 = rng.integers(0, 40, (500, 2)).astype(np.uint64)
    first = {}
    wanted = [first.setdefault(tuple(half), row) for row, half in enumerate(half_N2.tolist())]
    for most in (1, 7, 100, 10_000):
        assert grouping.smallest_equal(half_N2, most).tolist() == wanted
        buckets = [place.tolist() for place in grouping.in_buckets(half_N2[:, 0], most)]
        assert sorted(sum(buckets, [])) == list(range(500)) and all(one == sorted(one) for one in buckets)
        assert sum(len(set(half_N2[one, 0].tolist())) for one in buckets) == len(set(half_N2[:, 0].tolist()))


def test_a_folder_that_is_missing_or_unfinished_is_refused(tmp_path, copy):
    with pytest.raises(CorpusError, match="found no corpus folder.*build_corpus"):
        BlockTable.open(tmp_path / "nowhere")
    (copy / "manifest.json").unlink()
    with pytest.raises(CorpusError, match="found no corpus folder"):
        BlockTable.open(copy)
    (copy / "manifest.json").write_text("{")
    with pytest.raises(CorpusError, match="broken JSON"):
        BlockTable.open(copy)
    (copy / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(CorpusError, match="found format 99, wanted 2"):
        BlockTable.open(copy)


def test_every_file_is_needed_and_its_rows_are_checked(folder, copy):
    arrays = sorted(path.name for path in copy.glob("*.npy"))
    assert len(arrays) == 23
    for name in [*arrays, "vocab.txt"]:
        for damage in ("gone", "empty", "short"):
            if damage == "gone":
                (copy / name).unlink()
            elif damage == "empty":
                (copy / name).write_bytes(b"")
            elif name.endswith(".npy"):
                np.save(copy / name, np.load(folder / name)[:-1])
                if len(np.load(folder / name)) == 0:
                    continue
            else:
                (copy / name).write_bytes((folder / name).read_bytes()[:-9])
            with pytest.raises(CorpusError, match=re.escape(str(copy))):
                BlockTable.open(copy)
            shutil.copy(folder / name, copy / name)
    BlockTable.open(copy, verify=True)


def test_verify_notices_a_changed_value_and_a_changed_manifest(folder, copy):
    values = np.load(copy / "token.npy")
    values[3] += 1
    np.save(copy / "token.npy", values)
    BlockTable.open(copy)
    with pytest.raises(CorpusError, match="token.npy: found sha256"):
        BlockTable.open(copy, verify=True)
    shutil.copy(folder / "token.npy", copy / "token.npy")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "fingerprint": "0" * 64}))
    with pytest.raises(CorpusError, match="manifest.json: found files of fingerprint"):
        BlockTable.open(copy, verify=True)


def test_a_folder_built_from_the_same_source_is_used_again(tmp_path, monkeypatch):
    source = write(tmp_path / "corpus.jsonl", documents([TALE]))
    first = build_corpus(CorpusConfig(source), tmp_path / "out")
    elsewhere = write(tmp_path / "moved.jsonl", documents([TALE]))
    monkeypatch.setattr(building, "_write", None)  # building again would fail
    assert build_corpus(CorpusConfig(elsewhere), tmp_path / "out").fingerprint == first.fingerprint


def test_a_folder_with_something_else_is_refused_naming_both(tmp_path):
    source = write(tmp_path / "corpus.jsonl", documents([TALE]))
    build_corpus(CorpusConfig(source), tmp_path / "out")
    with pytest.raises(CorpusError, match="block_length: found 288, wanted 24.*overwrite=True"):
        build_corpus(CorpusConfig(source, block_length=24), tmp_path / "out")
    table = build_corpus(CorpusConfig(source, block_length=24), tmp_path / "out", overwrite=True)
    assert table.rows == 2 and sorted(one.name for one in tmp_path.iterdir()) == ["corpus.jsonl", "out"]


def test_overwrite_spares_folders_that_are_no_corpus(tmp_path):
    source = write(tmp_path / "corpus.jsonl", documents([TALE]))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(CorpusError, match="out"):
            build_corpus(CorpusConfig(source), tmp_path / "out", overwrite=overwrite)
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"
    (tmp_path / "empty").mkdir()
    assert build_corpus(CorpusConfig(source), tmp_path / "empty").rows == 1


def test_a_build_that_loses_a_race_uses_the_winner(tmp_path, monkeypatch):
    config = CorpusConfig(write(tmp_path / "corpus.jsonl", documents([TALE])))
    write_once = building._write

    def slow(*arguments):
        monkeypatch.setattr(building, "_write", write_once)
        build_corpus(config, tmp_path / "out")
        write_once(*arguments)

    monkeypatch.setattr(building, "_write", slow)
    assert build_corpus(config, tmp_path / "out").rows == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["corpus.jsonl", "out"]
