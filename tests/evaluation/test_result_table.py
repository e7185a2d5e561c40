"""A result table says what each number was measured on, in print and in JSON."""

import json

import numpy as np
import pytest
from rich.console import Console

from realm.evaluation.table import Rate, ResultTable, Setting, TableError

SQUAD = dict(dataset="squad", split="dev", rows=20958, corpus="0123456789abcdef", k=100)


def two_rows():
    table = ResultTable("recall [dev]")
    table.add("BM25", Setting(**SQUAD, index="bm25"), {"gold@1": Rate(741, 1000), "ms": 0.25})
    table.add(
        "ICT",
        Setting(**SQUAD, index="exact", generation_step=2000, index_age=0),
        {"gold@1": Rate(3, 8), "gold@200": Rate(0, 8, "100 retrieved"), "blocks": 12345},
    )
    return table


def test_text_shows_shared_settings_once_and_the_others_as_columns():
    text = two_rows().text()
    assert text.count("squad") == 1 and "recall [dev]" in text
    for shown in ("rows 20,958", "corpus 0123456789ab", "k 100", "bm25", "exact", "2000", "index age"):
        assert shown in text, text
    for shown in ("74.1", "37.5", "n/a (100 retrieved)", "0.25", "12,345"):
        assert shown in text, text
    assert "abcdef" not in text


def test_a_setting_that_one_row_lacks_is_no_column():
    lines = two_rows().text().splitlines()
    assert "index" in lines[2] and "generation" not in lines[2]
    assert "generation step 2000 · index age 0" in " ".join(" ".join(lines).split())


def test_one_row_needs_no_setting_column_and_absent_settings_are_not_named():
    table = ResultTable("t")
    table.add("BM25", Setting(**SQUAD, index="bm25"), {"x": None, "y": float("nan")})
    text = table.text()
    assert "index bm25" in text and "generation" not in text and "n/a" in text and "nan" in text
    assert "no rows" in ResultTable("t").text()


def test_rich_prints_the_table_itself(capsys):
    Console(width=120).print(two_rows())
    assert "BM25" in capsys.readouterr().out


def test_json_has_the_documented_keys_and_can_be_recomputed(tmp_path):
    table = two_rows()
    table.add("odd", Setting(**SQUAD, index="exact"), {"loss": float("inf"), "note": "dé"})
    table.write(tmp_path / "result.json")
    read = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert read == table.to_json() and set(read) == {"title", "notes", "rows"}
    first, second, odd = read["rows"]
    assert first["values"]["gold@1"] == {"value": 0.741, "text": "74.1", "hits": 741, "questions": 1000}
    assert first["setting"] == dict(SQUAD, index="bm25", generation_step=None, index_age=None, fingerprint=None)
    assert second["values"]["gold@200"] == {
        "value": None,
        "text": "n/a (100 retrieved)",
        "hits": 0,
        "questions": 8,
    }
    assert odd["values"]["loss"] == {"value": None, "text": "inf"}
    assert odd["values"]["note"] == {"value": "dé", "text": "dé"}


def test_misleading_rows_are_refused():
    setting, table = Setting(**SQUAD, index="bm25"), ResultTable("t")
    with pytest.raises(TableError, match="column 'k'"):
        table.add("x", setting, {"k": 1})
    with pytest.raises(TableError, match="float32 as 'loss'"):
        table.add("x", setting, {"loss": np.float32(1)})
    with pytest.raises(TableError, match="both or neither"):
        Setting(**SQUAD, index="exact", generation_step=3)
    assert not table.rows
