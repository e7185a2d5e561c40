"""Bad input in every format: a named error with its place when strict, a counted drop when lenient, always in step.

Between two good documents stands something bad. Whatever it is, the two come out with their own ids and texts.
"""

import os
from collections import Counter

import pytest

from realm.text.corpus import MAX_LINE_BYTES, CorpusError
from realm.text.formats import BY_DESIGN, read_documents, read_with_spans
from tests.text.formats.format_samples import WRITERS, A, Z, article, dump, kilt, page, write_parquet

LONG = b"x" * (MAX_LINE_BYTES + 8)
# (format, reason) -> what stands between the good documents, one case each.
BAD = {
    ("jsonl", "empty line"): [b"\n", b" \t\n", b"\r\n"],
    ("jsonl", "broken JSON"): [b'{"id": "b", "text": "cut\n', b"words\n", b"{" * 99_999 + b"\n", b"1" * 9999 + b"\n"],
    ("jsonl", "not an object"): [b'["b"]\n', b"null\n"],
    ("jsonl", "missing id"): [{"text": "T."}, {"id": None, "text": "T."}, {"id": "", "text": "T."}],
    ("jsonl", "missing text"): [{"id": "b", "contents": "T."}],
    ("jsonl", "null text"): [{"id": "b", "text": None}],
    ("jsonl", "blank text"): [{"id": "b", "text": " \n"}, {"id": "b", "text": "\u200b\ufeff"}],
    ("jsonl", "not a string"): [{"id": 0.5, "text": "T."}, {"id": True, "text": "T."}, {"id": "b", "text": ["T."]}],
    ("jsonl", "not a truth value"): [{"id": "b", "text": "T.", "heldout": "no"}],
    ("jsonl", "duplicate id"): [{"id": "a", "text": "Other."}],
    ("jsonl", "not UTF-8"): [
        b'{"id": "b", "text": "caf\xe9"}\n',
        b'{"id": "b", "text": "\\ud800"}\n',
        b"\xff\xfe{\x00\n",
    ],
    ("jsonl", "line too long"): [b'{"id": "b", "text": "' + LONG + b'"}\n'],
    ("beir", "missing id"): [{"title": "B", "text": "T."}, {"id": "b", "text": "T."}],
    ("beir", "duplicate id"): [{"_id": "a", "title": "B", "text": "T."}],
    ("dpr", "empty line"): [b"\n", b"\r\n"],
    ("dpr", "broken quotes"): [b'b\t"open\tB\n', b'b\t"shut" early\tB\n'],
    ("dpr", "wrong number of columns"): [b"b\tT.\n", b"b\tT.\tB\tmore\n", b"b T. B\n"],
    ("dpr", "missing id"): [b"\tT.\tB\n"],
    ("dpr", "blank text"): [b"b\t\tB\n", b'b\t" "\tB\n'],
    ("dpr", "duplicate id"): [b"a\tT.\tB\n"],
    ("dpr", "not UTF-8"): [b"b\tcaf\xe9\tB\n"],
    ("dpr", "line too long"): [b"b\t" + LONG + b"\tB\n"],
    ("kilt", "missing text"): [{"wikipedia_id": "b", "wikipedia_title": "B"}],
    ("kilt", "not a string"): [article("b", "B") | {"text": "One string."}, article("b", "B") | {"text": ["B", 1]}],
    ("kilt", "missing id"): [article("", "B", "T.")],
    ("kilt", "blank text"): [article("b", "B"), article("b", "B", "Section::::History.", "BULLET::::- ")],
    ("kilt", "duplicate id"): [article("a", "B", "T.")],
    ("kilt", "broken JSON"): [b'{"wikipedia_id": "b", "text": ["B",\n'],
    ("mediawiki", "page too long"): [page("b", "B", LONG.decode())],
    ("mediawiki", "broken XML"): [
        b"<page><title>B</title><text>open</page>",
        b"<page><title>B</title>" + page("c", "C", "T."),
        page("b", "B", "T.").replace(b"T.", b"&bomb;"),
        page("b", "B", "T.").replace(b"T.", b"caf\xe9"),
        page("b", "B", "T.").replace(b"T.", b"\x00"),
        b"<page><ns>0</ns><id>1</id></page>",
        b"<page><title>B</title><id>1</id></page>",
    ],
    ("mediawiki", "missing id"): [page("", "B", "T."), page("b", "B", "T.").replace(b"<id>b</id>", b"")],
    ("mediawiki", "blank text"): [
        page("b", "B", ""),
        page("b", "B", "T.").replace(b">T.</text>", b" deleted='1'></text>"),
    ],
    ("mediawiki", "duplicate id"): [page("a", "B", "T.")],
}
ROWS = [
    pytest.param(kind, reason, bad, id=f"{kind}-{reason}-{n}")
    for (kind, reason), cases in BAD.items()
    for n, bad in enumerate(cases)
]


@pytest.mark.parametrize("kind, reason, bad", ROWS)
def test_what_is_bad_is_named_or_counted_and_its_neighbours_stay(tmp_path, kind, reason, bad):
    path, counts = tmp_path / "corpus", Counter()
    path.write_bytes(WRITERS[kind](bad))
    found = list(read_documents(path, format=kind, lenient=True, counts=counts))
    assert found == [A, Z] and counts == {reason: 1}
    with pytest.raises(CorpusError, match="found .*, wanted .*; lenient reading drops") as caught:
        list(read_documents(path, format=kind))
    place = {"mediawiki": ": page 2 at byte ", "dpr": ":3: "}.get(kind, ":2: ")
    assert str(caught.value).startswith(f"{path}{place}")


LEFT_OUT = {
    "redirect": [page("b", "B", "#REDIRECT [[A]]", more='<redirect title="A" />'), page("b", "B", "#redirect [[A]]")],
    "not an article": [
        page("b", "Diskussion:B", "T.", ns="<ns>1</ns>"),
        page("b", "Datei:B", "T.", ns=""),
        page("b", "B", "body {}", model="css"),
    ],
    "disambiguation page": [
        page("b", "B (disambiguation)", "T."),
        page("b", "B", "B may be:\n* [[C]]\n{{disambig}}"),
        page("b", "B", "B may be:\n* [[C]]\n{{ Human name disambiguation | a=b}}"),
    ],
    "list page": [page("b", "List of things", "* [[Thing]]")],
    "no text but markup": [page("b", "B", "{{Infobox\n|name = B\n}}\n[[Kategorie:B]]\n[[Datei:b.jpg|mini|B]]")],
}


@pytest.mark.parametrize("reason, left_out", [(reason, one) for reason, many in LEFT_OUT.items() for one in many])
def test_what_a_dump_holds_beside_articles_is_counted_in_strict_reading_too(tmp_path, reason, left_out):
    path, counts = tmp_path / "dump.xml", Counter()
    path.write_bytes(dump(left_out))
    assert list(read_documents(path, counts=counts)) == [A, Z] and counts == {reason: 1}
    assert reason in BY_DESIGN


ANCHOR = {"text": "Some", "paragraph_id": 1, "start": 0, "end": 4}
BAD_ANCHORS = [
    ANCHOR | {"text": "Sime"},
    ANCHOR | {"paragraph_id": 9},
    ANCHOR | {"paragraph_id": -1},
    ANCHOR | {"start": 4, "end": 0, "text": ""},
    ANCHOR | {"end": "4"},
    ["Some", 0, 4],
    None,
]


@pytest.mark.parametrize("anchor", BAD_ANCHORS)
def test_a_bad_anchor_costs_the_anchor_and_not_the_article(tmp_path, anchor):
    path, counts = tmp_path / "kilt.json", Counter()
    path.write_bytes(kilt(article("b", "B", "Some words.", anchors=[anchor, ANCHOR])))
    found = dict((one.id, spans) for one, spans in read_with_spans(path, lenient=True, counts=counts))
    assert found == {"a": [], "b": [(0, 4, "ANCHOR")], "z": []} and counts == {"malformed span": 1}
    with pytest.raises(CorpusError, match=":2: found the anchor"):
        list(read_with_spans(path))


PARQUET_ROWS = {
    "missing id": [{"id": None, "text": b"T."}, {"id": b"", "text": b"T."}],
    "null text": [{"id": b"b", "text": None}],
    "blank text": [{"id": b"b", "text": b" "}],
    "duplicate id": [{"id": b"a", "text": b"T."}],
    "not UTF-8": [{"id": b"b", "text": b"caf\xe9"}, {"id": b"\xff", "text": b"T."}, {"id": b"b", "title": b"\xc3"}],
    "text too long": [{"id": b"b", "text": LONG}],
}


@pytest.mark.parametrize("reason, bad", [(reason, one) for reason, rows in PARQUET_ROWS.items() for one in rows])
def test_a_bad_parquet_row_is_named_or_counted(tmp_path, reason, bad):
    path, counts = tmp_path / "corpus.parquet", Counter()
    rows = [{name: value.encode() for name, value in one._asdict().items() if name != "heldout"} for one in (A, Z)]
    write_parquet(path, [rows[0], {"title": b"B", **bad}, rows[1]], row_group_size=2)
    assert list(read_documents(path, lenient=True, counts=counts)) == [A, Z] and counts == {reason: 1}
    with pytest.raises(CorpusError, match=": row 2: found .*, wanted"):
        list(read_documents(path))


def _link_out(folder):
    (folder.parent / "secret.txt").write_text("Not for this corpus.")
    os.symlink(folder.parent / "secret.txt", folder / "m.txt")


FOLDERS = {
    "not UTF-8": [
        lambda folder: (folder / "m.txt").write_bytes(b"caf\xe9"),
        lambda folder: open(os.fsencode(folder) + b"/m\xff.txt", "wb").close(),
    ],
    "outside the folder": [
        _link_out,
        lambda folder: os.symlink("/nowhere/m.txt", folder / "m.txt"),
        lambda folder: os.symlink("../" * 40 + "etc/hostname", folder / "m.txt"),
    ],
    "linked folder": [
        lambda folder: os.symlink(folder.parent, folder / "m"),
        lambda folder: os.symlink(".", folder / "loop"),
    ],
    "unreadable file": [lambda folder: os.symlink("nowhere.txt", folder / "m.txt")],
    "not a file": [lambda folder: os.mkfifo(folder / "m.txt")],
    "blank text": [lambda folder: (folder / "m.md").touch(), lambda folder: (folder / "m.txt").write_text("\ufeff \n")],
    "file too long": [lambda folder: (folder / "m.txt").write_bytes(LONG)],
}


@pytest.mark.parametrize("reason, plant", [(reason, one) for reason, many in FOLDERS.items() for one in many])
def test_a_bad_file_in_a_folder_is_named_or_counted(tmp_path, reason, plant):
    folder, counts = tmp_path / "texts", Counter()
    folder.mkdir()
    (folder / "a.txt").write_text(A.text)
    (folder / "z.txt").write_text(Z.text)
    plant(folder)
    found = list(read_documents(folder, lenient=True, counts=counts))
    assert [(one.id, one.title, one.text) for one in found] == [("a.txt", "a", A.text), ("z.txt", "z", Z.text)]
    assert counts == {reason: 1}
    with pytest.raises(CorpusError, match="found .*, wanted"):
        list(read_documents(folder))
