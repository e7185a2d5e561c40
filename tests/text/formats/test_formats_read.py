"""Good corpora in every format: told apart by content, packed in every way, local and by URL, exact to the letter."""

import bz2
import csv
import gzip
import json
import tracemalloc
from collections import Counter

import fsspec
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from realm.text.corpus import CorpusError, Document
from realm.text.formats import FORMATS, format_of, read_documents, read_with_spans
from realm.text.formats.admission import SeenIds
from realm.text.formats.dpr import cells_of
from realm.text.sample import sample_path
from tests.text.formats.format_samples import A, Z, article, beir, dpr, dump, jsonl, kilt, page, write_parquet

CONTENT = {"jsonl": jsonl(), "beir": beir(), "dpr": dpr(), "kilt": kilt(), "mediawiki": dump()}
PACK = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda raw: pyarrow.compress(raw, codec="zstd", asbytes=True),
    "two zstd frames": lambda raw: b"".join(
        pyarrow.compress(part, codec="zstd", asbytes=True) for part in (raw[:50], raw[50:])
    ),
    "zstd after a skippable frame": lambda raw: (
        b"\x5a\x2a\x4d\x18\x04\0\0\0skip" + pyarrow.compress(raw, codec="zstd", asbytes=True)
    ),
    "two gzip members": lambda raw: gzip.compress(raw[:50]) + gzip.compress(raw[50:]),
    "two bzip2 streams": lambda raw: bz2.compress(raw[:50]) + bz2.compress(raw[50:]),
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", CONTENT)
def test_every_text_format_is_told_and_read_however_it_is_packed(tmp_path, kind, packing):
    path = tmp_path / "a-name-that-says-nothing"
    path.write_bytes(PACK[packing](CONTENT[kind]))
    assert format_of(path) == kind
    assert list(read_documents(path)) == list(read_documents(path, format=kind)) == [A, Z]


@pytest.mark.parametrize("kind", CONTENT)
def test_urls_are_read_as_files_are(tmp_path, kind):
    for url in (f"memory://formats/{kind}", f"file://{tmp_path}/corpus"):
        with fsspec.open(url, "wb") as file:
            file.write(gzip.compress(CONTENT[kind]))
        assert list(read_documents(url)) == [A, Z]


def test_parquet_and_a_folder_of_texts_are_read_by_url_too(tmp_path):
    write_parquet(tmp_path / "corpus.parquet", [{"id": "a", "title": "A", "text": A.text}])
    system = fsspec.filesystem("memory")
    system.pipe("/by-url/corpus.parquet", (tmp_path / "corpus.parquet").read_bytes())
    system.pipe({"/by-url/texts/b/one.md": b"One.", "/by-url/texts/.git/x.txt": b"no", "/by-url/texts/a.txt": b"Two."})
    assert list(read_documents("memory://by-url/corpus.parquet")) == [A]
    found = list(read_documents("memory://by-url/texts"))
    assert found == [Document("a.txt", "a", "Two."), Document("b/one.md", "one", "One.")]


ARROW = {
    "string_view": pyarrow.string_view(),
    "binary_view": pyarrow.binary_view(),
    "large_string": pyarrow.large_string(),
    "dictionary<values=string": pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
    "dictionary<values=binary": pyarrow.dictionary(pyarrow.int32(), pyarrow.binary()),
}


@pytest.mark.parametrize("kind", ARROW)
def test_parquet_strings_are_read_however_arrow_holds_them(tmp_path, kind):
    path, encoded = tmp_path / "corpus.parquet", "binary" in kind
    texts = [[value.encode() if encoded else value for value in (one.id, one.title, one.text)] for one in (A, Z)]
    rows = [{"id": id, "title": title, "text": text, "page": {"name": title}} for id, title, text in texts]
    types = {**dict.fromkeys(("id", "title", "text"), ARROW[kind]), "page": pyarrow.struct({"name": ARROW[kind]})}
    write_parquet(path, rows, types)
    assert str(parquet.read_schema(path).field("text").type).startswith(kind)
    assert list(read_documents(path)) == list(read_documents(path, fields={"title": "page.name"})) == [A, Z]


def test_the_sample_reads_as_its_own_json_says():
    with gzip.open(sample_path("corpus"), "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    wanted = [Document(one["id"], one["title"], one["text"], one.get("heldout", False)) for one in records]
    assert list(read_documents(sample_path("corpus"))) == wanted


def test_fields_have_other_names_inner_places_and_numbers_for_ids(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"meta": {"key": n, "name": f"N{n}"}, "a.b": f"Text {n}.", "keep": n == 1} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {"id": "meta.key", "title": "meta.name", "text": "a.b", "heldout": "keep"}
    assert list(read_documents(path, fields=fields)) == [
        Document("0", "N0", "Text 0."),
        Document("1", "N1", "Text 1.", True),
    ]
    counts = Counter()
    numbered = read_documents(path, fields={"id": "#", "text": "a.b"}, counts=counts)
    assert [one.id for one in numbered] == ["corpus.jsonl:1", "corpus.jsonl:2"] and counts == {"missing title": 2}


def test_texts_keep_every_character(tmp_path):
    text = ' "R&amp;D"\tcafe\u0301 İ 😀 日本 \u200f\u2028end '
    samples = {"c.jsonl": json.dumps({"id": "a", "title": 'T "q"', "text": text}).encode()}
    samples["c.tsv"] = "id\ttext\ttitle\r\na\t{}\t{}\r\n".format(
        *(f'"{x.replace(chr(34), chr(34) * 2)}"' for x in (text, 'T "q"'))
    ).encode()
    for name, content in samples.items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
        assert list(read_documents(tmp_path / name)) == [Document("a", 'T "q"', text)]
    write_parquet(tmp_path / "c.parquet", [{"id": 7, "title": 'T "q"', "text": text}])
    assert list(read_documents(tmp_path / "c.parquet")) == [Document("7", 'T "q"', text)]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "..a\nb.txt").write_text(".hidden")
    (tmp_path / "texts" / "é İ.md").write_bytes(text.encode())
    counts = Counter()
    assert list(read_documents(tmp_path / "texts", counts=counts)) == [Document("é İ.md", "é İ", text)]
    assert counts == {"hidden file": 1}


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_quoted_columns_come_back_exactly(cells):
    quoted = "\t".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    assert cells_of(quoted) == cells
    if not any("\t" in cell or cell.startswith('"') for cell in cells):
        assert cells_of("\t".join(cells)) == cells


def test_a_quoted_passage_goes_over_lines_and_a_stray_quote_costs_its_own_line(tmp_path):
    path, counts = tmp_path / "passages.tsv", Counter()
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerows([("id", "text", "title"), ("1", 'Two\n\n"lines"\r\nor ""three', "T"), ("2", "One.", '"U"')])
        file.write('3\t"stray\tV\r\n4\tFour.\tW\r\n5\tFive"\tX\r\n')
    assert list(read_documents(path, lenient=True, counts=counts)) == [
        Document("1", "T", 'Two\n\n"lines"\r\nor ""three'),
        Document("2", '"U"', "One."),
        Document("4", "W", "Four."),
        Document("5", "X", 'Five"'),
    ]
    assert counts == {"broken quotes": 1}
    with pytest.raises(CorpusError, match=":7: found a quote that is not closed"):
        list(read_documents(path))


def test_dpr_without_a_heading_or_with_other_names(tmp_path):
    path = tmp_path / "passages.tsv"
    path.write_text("1\tSome text.\tTitle\n")
    assert list(read_documents(path)) == [Document("1", "Title", "Some text.")]
    path.write_text("title\tpid\tbody\nTitle\t1\tSome text.\n")
    assert list(read_documents(path, fields={"id": "pid", "text": "body"})) == [Document("1", "Title", "Some text.")]


def test_kilt_loses_its_marks_and_keeps_its_anchors(tmp_path):
    paragraphs = ["Ada wrote to Babbage.", "Section::::Life.", "BULLET::::- Lord Byron was é her father.\t", "  "]
    anchors = [
        {"text": "father", "href": "Father", "paragraph_id": 3, "start": 33, "end": 39},
        {"text": "Babbage", "href": "Charles%20Babbage", "paragraph_id": 1, "start": 13, "end": 20},
        {"text": "Life", "href": "Life", "paragraph_id": 2, "start": 11, "end": 15},
    ]
    row = article("12", "Ada", *paragraphs, anchors=anchors)
    row["text"][3] = row["text"][3].replace("was é her", "was é, her")
    row["anchors"][0] |= {"start": 34, "end": 40}
    (tmp_path / "kilt.json").write_text(json.dumps(row))
    [(document, spans)] = read_with_spans(tmp_path / "kilt.json")
    assert document == Document("12", "Ada", "Ada wrote to Babbage.\nLord Byron was é, her father.")
    assert [(document.text[start:end], label) for start, end, label in spans] == [
        ("Babbage", "ANCHOR"),
        ("father", "ANCHOR"),
    ]


@pytest.mark.parametrize("kind", ["jsonl", "beir", "dpr", "kilt", "mediawiki", "parquet"])
def test_a_folder_of_pieces_is_one_corpus(tmp_path, kind):
    names = [f"part-{n}{FORMATS[kind][0]}" for n in (1, 0)]
    if kind == "parquet":
        for name, one in zip(names, (Z, A), strict=True):
            write_parquet(tmp_path / name, [{"id": one.id, "title": one.title, "text": one.text}])
    else:
        (tmp_path / names[0]).write_bytes(CONTENT[kind])
        (tmp_path / names[1]).write_bytes(CONTENT[kind])
    assert format_of(tmp_path) == kind
    if kind == "parquet":
        assert list(read_documents(tmp_path)) == [A, Z]
    else:
        counts = Counter()
        assert list(read_documents(tmp_path, lenient=True, counts=counts)) == [A, Z] and counts == {"duplicate id": 2}
        with pytest.raises(CorpusError, match="part-1.*the id 'a' once more"):
            list(read_documents(tmp_path))


def test_ids_read_before_are_known_in_the_next_call(tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(jsonl())
    seen, counts = SeenIds(), Counter()
    assert list(read_documents(tmp_path / "corpus.jsonl", seen=seen)) == [A, Z]
    assert list(read_documents(tmp_path / "corpus.jsonl", seen=seen, lenient=True, counts=counts)) == []
    assert counts == {"duplicate id": 2}


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 3000), max_size=4000))
def test_ids_are_a_set_of_strings(numbers):
    ids, known = SeenIds(), set()
    for number in numbers:
        assert ids.add(str(number)) == (number not in known)
        known.add(number)


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    def peak(copies: int) -> int:
        with gzip.open(tmp_path / "corpus", "wb", compresslevel=1) as packed:
            for n in range(copies):
                packed.write(json.dumps({"id": f"{n}", "text": "Some words of text. " * 500}).encode() + b"\n")
        with gzip.open(tmp_path / "dump", "wb", compresslevel=1) as packed:
            pages = (page(f"{n}", f"T{n}", "Some words of text. " * 500) for n in range(copies))
            packed.write(dump(b"".join(pages)))
        tracemalloc.start()
        try:
            for name in ("corpus", "dump"):
                assert sum(1 for _ in read_documents(tmp_path / name)) >= copies
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(240) < 1.3 * peak(60)
