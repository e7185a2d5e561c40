"""Files that are cut short, damaged, bombs, or of no known format: a named error, in lenient reading too.

What is missing from such a file is unknown, so nothing of it can be counted as dropped.
"""

import bz2
import gzip
import json
import os
import re
import sys
import tracemalloc
from collections import Counter

import fsspec
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from realm.text.corpus import CorpusError
from realm.text.formats import read_documents, read_with_spans
from tests.text.formats.format_samples import WRITERS, A, Z, dump, jsonl, page, write_parquet


def _truncated(packed: bytes) -> bytes:
    return packed[: len(packed) // 2]


def _corrupt(packed: bytes) -> bytes:
    return packed[:10] + b"\xff" * 64 + packed[74:]


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "zst": lambda raw: pyarrow.compress(raw, codec="zstd", asbytes=True)}
NOISE = b"".join(json.dumps({"id": f"n{n}", "text": f"Text {n * 7919}."}).encode() + b"\n" for n in range(9000))
BOMB = '<!DOCTYPE m [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>\n<mediawiki>'
# name -> (bytes, what the error says): errors in strict and lenient reading alike.
FILES = {
    **{f"short.jsonl.{end}": (_truncated(pack(NOISE)), "ends early, after byte") for end, pack in PACK.items()},
    **{f"broken.jsonl.{end}": (_corrupt(pack(NOISE)), "corrupt|ends early") for end, pack in PACK.items()},
    **{f"tail.jsonl.{end}": (PACK[end](NOISE) + b"tail", "corrupt|ends early") for end in ("gz", "zst")},
    "notes.docx": (b"PK\x03\x04\x14\x00", "a format that can be told"),
    "nothing": (b"", "a format that can be told"),
    "unended.xml": (dump(end=""), "the end of the file at byte .*, wanted </mediawiki>"),
    "cut.xml": (dump()[:-200], "the end of the file at byte .*, wanted </mediawiki>"),
    "short.xml.bz2": (_truncated(bz2.compress(dump(page("b", "B", str(NOISE))))), "ends early, after byte"),
    "bomb.xml": (dump(header=BOMB), "found a DTD"),
    "feed.xml": (b"<rss><channel/></rss>", "no <page> in the first"),
    "other.xml": (dump(header="<rss>", end="</rss></mediawiki>"), "does not begin with <mediawiki>"),
    "torn.xml": (dump(header="<mediawiki><siteinfo>"), "a broken header"),
    "words.parquet": (b"words", "damaged Parquet after row 0"),
    "magic.parquet": (b"PAR1" + b"\0" * 64 + b"PAR1", "damaged Parquet after row 0"),
}


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_to_its_end_is_an_error_always(tmp_path, name, lenient):
    content, said = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=": found .*, wanted ") as caught:
        list(read_documents(tmp_path / name, lenient=lenient))
    assert re.search(said, str(caught.value))


def test_parquet_without_a_column_or_of_another_type_or_cut_short_is_an_error(tmp_path):
    path = tmp_path / "corpus.parquet"
    write_parquet(path, [{"number": "a", "text": "T."}])
    with pytest.raises(CorpusError, match="no column 'id' .columns: number, text.*fields"):
        list(read_documents(path))
    write_parquet(path, [{"id": "a", "text": 3}])
    with pytest.raises(CorpusError, match="column 'text' of int64, wanted one of strings"):
        list(read_documents(path))
    write_parquet(path, [{"id": str(n), "text": f"Text {n}."} for n in range(5000)])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CorpusError, match="damaged Parquet after row 0"):
        list(read_documents(path, lenient=True))
    write_parquet(path, [{"id": str(n), "text": f"Text {n * 7919}."} for n in range(50_000)], row_group_size=10_000)
    raw = bytearray(path.read_bytes())
    raw[len(raw) * 5 // 8 : len(raw) * 6 // 8] = b"\xff" * (len(raw) * 6 // 8 - len(raw) * 5 // 8)
    path.write_bytes(raw)
    with pytest.raises(CorpusError, match="damaged Parquet after row [1-9]"):
        list(read_documents(path, lenient=True))


WRONG_CALLS = [
    ("missing.jsonl", {}, "no readable file"),
    ("missing.jsonl", {"format": "dpr"}, "no readable file"),
    ("nul\0.jsonl", {}, "found no path"),
    ("there.jsonl", {"format": "docx"}, "wanted one of"),
    ("there.jsonl", {"fields": {"body": "text"}}, "for the format jsonl, wanted"),
    ("there.jsonl", {"format": "kilt", "fields": {"id": "id"}}, "wanted none"),
    ("there.jsonl", {"keep": ("redirects",)}, "found keep"),
    ("there.jsonl", {"format": "tfds"}, "no dataset_info.json"),
    ("there.jsonl", {"format": "folder"}, "a folder that cannot be listed"),
    ("empty", {}, "no text file"),
    ("empty", {"format": "parquet"}, "no file of parquet"),
    ("pipe", {}, "no regular file"),
    ("nowhere://there.jsonl", {}, "no way to open it"),
    ("memory://missing.jsonl", {}, "no readable file .No such file or directory., wanted a file to read$"),
]


@pytest.mark.parametrize("name, options, said", WRONG_CALLS)
def test_a_wrong_path_or_option_is_an_error_that_says_what_to_type(tmp_path, name, options, said):
    (tmp_path / "there.jsonl").write_bytes(jsonl())
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match=said):
        list(read_documents(name if "://" in name else tmp_path / name, lenient=True, **options))


@pytest.mark.parametrize("protocol, package", [("s3", "s3fs"), ("gs", "gcsfs"), ("https", "aiohttp")])
def test_a_url_whose_package_is_missing_is_one_sentence_that_names_it(monkeypatch, protocol, package):
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    url = f"{protocol}://bucket/corpus.jsonl"
    for options in ({}, {"format": "jsonl"}, {"format": "folder"}):
        with pytest.raises(CorpusError) as caught:
            list(read_documents(url, **options))
        said = str(caught.value)
        assert said.startswith(f"{url}: found no way to open such a URL (") and said.endswith(f"pip install {package}")
        assert said.count("found") == said.count("wanted") == 1


class Locked(fsspec.AbstractFileSystem):
    """A file system that its library refuses, with an error of its own."""

    protocol = "locked"

    def info(self, path, **_):
        raise KeyError("no credentials")

    def _open(self, path, *_, **__):
        return self.info(path)

    def ls(self, path, *_, **__):
        return self.info(path)


def test_whatever_opening_a_url_raises_is_one_sentence():
    fsspec.register_implementation("locked", Locked, clobber=True)
    for format in (None, "jsonl", "folder"):
        with pytest.raises(
            CorpusError, match="^locked://a: found no readable file .KeyError 'no cred.*., wanted a file"
        ):
            list(read_documents("locked://a", format=format))


def test_a_name_that_is_no_file_may_be_that_of_a_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("salient_span_wikipedia", "wikipedia/20190301.en", "wiki40b/en/1.3.0"):
        with pytest.raises(CorpusError, match=f"No such file or directory.*, or tfds:{name} for a dataset"):
            list(read_documents(name))
    for name in ("missing.jsonl", "data/missing.jsonl", str(tmp_path / "missing"), "../missing", "memory://missing"):
        with pytest.raises(CorpusError, match="wanted a file to read$"):
            list(read_documents(name))


def test_spans_of_a_format_without_any_are_an_error(tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(jsonl())
    with pytest.raises(CorpusError, match="the format jsonl, which has no spans"):
        read_with_spans(tmp_path / "corpus.jsonl")


@pytest.mark.parametrize("kind", ["jsonl", "mediawiki"])
def test_a_bomb_is_dropped_in_bounded_memory(tmp_path, kind):
    path, counts = tmp_path / "corpus.gz", Counter()
    size = 1 << 27
    bad = {"jsonl": b'{"id": "b", "text": "%s"}\n', "mediawiki": page("b", "B", "%s")}[kind].split(b"%s")
    whole = WRITERS[kind](b"|".join((bad[0], bad[1])))
    front, back = whole.split(b"|")
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(front)
        for _ in range(size >> 20):
            packed.write(b"x" * (1 << 20))
        packed.write(back)
    tracemalloc.start()
    try:
        assert list(read_documents(path, format=kind, lenient=True, counts=counts)) == [A, Z]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts.keys() <= {"line too long", "page too long"} and sum(counts.values()) == 1
    assert peak < size // 3


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 20),
        st.sampled_from(
            [b"", b"<page>", b"</page>", b'"', b"\t", b"\n", b"{{", b"\xff", b"\0", b"&x;", b"null", b"[-1]"]
        ),
    ),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(WRITERS)), packing=st.sampled_from(sorted(PACK)), before=st.booleans(), edits=EDITS)
def test_any_damage_gives_documents_with_ids_of_their_own_or_a_named_error(tmp_path, kind, packing, before, edits):
    raw = bytearray(WRITERS[kind]() if before else PACK[packing](WRITERS[kind]()))
    for place, size, new in edits:
        start = int(place * len(raw))
        raw[start : start + size] = new
    (tmp_path / "corpus").write_bytes(PACK[packing](bytes(raw)) if before else raw)
    for lenient in (False, True):
        try:
            found = list(read_documents(tmp_path / "corpus", format=kind, lenient=lenient))
        except CorpusError as error:
            assert "found" in str(error) and "wanted" in str(error)
        else:
            assert len({one.id for one in found}) == len(found) and all(one.text.strip() for one in found)
