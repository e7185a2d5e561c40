"""A corpus from any format: found out or named, with its own spans, in any role, with the same rows every time."""

import gzip
import json
from pathlib import Path

import fsspec
import numpy as np
import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_inputs import digest_of, entry_of
from realm.text.corpus import CorpusError

TEXTS = {"a": "Ada Smith was born in Brenn.", "b": "Brenn lies by the sea. It has a port."}


def as_jsonl(folder: Path, **names: str) -> str:
    rows = [{names.get("id", "id"): n, "title": n.upper(), names.get("text", "text"): t} for n, t in TEXTS.items()]
    path = folder / f"{'-'.join(names) or 'plain'}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def as_dpr(folder: Path) -> str:
    path = folder / "passages.tsv"
    path.write_text("id\ttext\ttitle\n" + "".join(f"{n}\t{t}\t{n.upper()}\n" for n, t in TEXTS.items()))
    return str(path)


def as_folder(folder: Path) -> str:
    (folder / "texts").mkdir()
    for name, text in TEXTS.items():
        (folder / "texts" / name.upper()).with_suffix(".txt").write_text(text)
    return str(folder / "texts")


def as_kilt(folder: Path) -> str:
    path = folder / "kilt.json"
    rows = [
        {"wikipedia_id": n, "wikipedia_title": n.upper(), "text": [f"{n.upper()}\n", f"{t}\n"], "anchors": []}
        for n, t in TEXTS.items()
    ]
    rows[0]["anchors"] = [{"text": "Brenn", "href": "B", "paragraph_id": 1, "start": 22, "end": 27}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def as_dump(folder: Path) -> str:
    linked = {**TEXTS, "a": TEXTS["a"].replace("Brenn", "[[Brenn]]"), "r": "#REDIRECT [[A]]"}
    pages = "".join(
        f"<page><title>{n.upper()}</title><ns>0</ns><id>{n}</id><revision><id>1</id><text>{t}</text></revision></page>"
        for n, t in linked.items()
    )
    (folder / "dump.xml").write_text(f"<mediawiki>{pages}</mediawiki>")
    return str(folder / "dump.xml")


WRITE = {"jsonl": as_jsonl, "dpr": as_dpr, "folder": as_folder, "kilt": as_kilt, "mediawiki": as_dump}
BEIR = "beir"


@pytest.mark.parametrize("format", [*WRITE, BEIR])
@pytest.mark.parametrize("named", [False, True])
def test_every_format_gives_the_same_blocks(tmp_path, format, named):
    path = as_jsonl(tmp_path, id="_id") if format == BEIR else WRITE[format](tmp_path)
    config = CorpusConfig(f"{format}:{path}" if named else path)
    table = build_corpus(config, tmp_path / "out")
    assert [table.text(row) for row in range(table.rows)] == list(TEXTS.values())
    assert [table.title(row) for row in range(table.rows)] == ["A", "B"]
    spans = [[TEXTS["a"][s:e], table.kinds[k]] for s, e, k in table.spans(0)[:, 3:].tolist()]
    assert spans == ([["Brenn", "ANCHOR"]] if format in ("kilt", "mediawiki") else [])
    assert table.manifest["warnings"] == []  # a redirect is left out by design, which is no loss
    assert table.manifest["skips"] == ({"document: redirect": 1} if format == "mediawiki" else {})


def test_spans_of_a_format_and_of_a_file_are_joined(tmp_path):
    spans = tmp_path / "spans.jsonl"
    spans.write_text(json.dumps({"id": "a", "spans": [[0, 9, "PERSON"], [22, 27, "GPE"]]}))
    table = build_corpus(CorpusConfig(as_kilt(tmp_path), str(spans)), tmp_path / "out")
    found = [(TEXTS["a"][s:e], table.kinds[k]) for s, e, k in table.spans(0)[:, 3:].tolist()]
    assert found == [("Ada Smith", "PERSON"), ("Brenn", "ANCHOR")]
    assert table.manifest["skips"] == {"span: overlaps a longer span": 1}


def test_fields_name_what_a_file_calls_otherwise_and_entries_may_differ(tmp_path):
    odd, plain = as_jsonl(tmp_path, id="key", text="body"), as_jsonl(tmp_path)
    config = CorpusConfig(odd, only_masked=f"beir:{as_jsonl(tmp_path, id='_id')}", fields={"id": "key", "text": "body"})
    with pytest.raises(CorpusError, match="the id 'a' once more"):
        build_corpus(config, tmp_path / "out")
    table = build_corpus(
        CorpusConfig(odd, fields={"id": "#", "text": "body"}, only_retrieved=()), tmp_path / "numbered"
    )
    assert [table.document_id(row) for row in range(2)] == ["id-text.jsonl:1", "id-text.jsonl:2"]
    with pytest.raises(CorpusError, match='found no "body"'):
        build_corpus(CorpusConfig(plain, fields={"text": "body"}), tmp_path / "wrong")
    with pytest.raises(CorpusError, match="found fields"):
        build_corpus(CorpusConfig(as_folder(tmp_path), fields={"text": "body"}), tmp_path / "wrong")


def test_how_it_is_read_is_part_of_what_was_built(tmp_path):
    path = as_jsonl(tmp_path)
    first = build_corpus(CorpusConfig(path), tmp_path / "out")
    assert not any(name.startswith("read ") for name in first.manifest["source"])
    with pytest.raises(CorpusError, match="read fields: found None, wanted {'title': 'id'}"):
        build_corpus(CorpusConfig(path, fields={"title": "id"}), tmp_path / "out")
    again = CorpusConfig(path, fields={"title": "id"}, format="jsonl")
    assert build_corpus(again, tmp_path / "again").fingerprint == build_corpus(again, tmp_path / "again").fingerprint
    kept = build_corpus(CorpusConfig(as_dump(tmp_path), keep="list"), tmp_path / "kept")
    assert kept.manifest["source"]["read keep"] == ["list"]
    with pytest.raises(CorpusError, match=r"found keep=\('list',\) for jsonl, wanted a dump \(mediawiki\) among"):
        build_corpus(CorpusConfig(path, keep="list"), tmp_path / "none")
    (tmp_path / "more.jsonl").write_text('{"id": "m", "text": "More."}\n')
    mixed = CorpusConfig((str(tmp_path / "more.jsonl"), as_dump(tmp_path)), keep="list")
    assert build_corpus(mixed, tmp_path / "mixed").manifest["counts"]["documents"] == 3


@pytest.mark.parametrize("wrong", [{"format": "docx"}, {"keep": "redirects"}])
def test_what_cannot_be_read_is_refused_at_once(wrong):
    with pytest.raises(CorpusError, match=f"found {next(iter(wrong))}="):
        CorpusConfig("corpus.jsonl", **wrong)


def test_a_folder_has_a_digest_of_names_and_contents(tmp_path):
    folder = Path(as_folder(tmp_path))
    first = digest_of(str(folder))
    assert digest_of(folder.as_uri()) == digest_of(folder.as_uri())
    (folder / "A.txt").rename(folder / "C.txt")
    assert digest_of(str(folder)) != first
    (folder / "C.txt").rename(folder / "A.txt")
    assert digest_of(str(folder)) == first
    (folder / "A.txt").write_text("Other.")
    assert digest_of(str(folder)) != first
    assert entry_of("kilt:a.json") == ("kilt", "a.json") and entry_of("gs://a/b") == (None, "gs://a/b")


def test_a_prepared_dataset_brings_its_spans(tmp_path):
    from realm.text.formats.tfds_builder import prepare

    spans = tmp_path / "spans.jsonl"
    spans.write_text(json.dumps({"id": "a", "spans": [[0, 9, "PERSON"]]}))
    folders = prepare(as_jsonl(tmp_path), tmp_path / "tfds", spans=spans)
    table = build_corpus(CorpusConfig(str(folders["documents"])), tmp_path / "out")
    assert table.kinds == ["PERSON"] and np.array_equal(table.spans(0)[:, 3:5], [[0, 9]])


def arrays_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


@pytest.mark.parametrize("format", ["jsonl", "dpr", "kilt", "mediawiki"])
def test_a_corpus_by_url_is_the_corpus_of_its_files(tmp_path, format):
    path, spans = WRITE[format](tmp_path), tmp_path / "spans.jsonl"
    spans.write_text(json.dumps({"id": "b", "spans": [[0, 5, "GPE"]]}))
    local = build_corpus(CorpusConfig(path, str(spans)), tmp_path / "local")
    urls = [f"memory://built/{Path(one).name}" for one in (path, spans)]
    for url, one in zip(urls, (path, spans), strict=True):
        with fsspec.open(url, "wb") as file:
            file.write(gzip.compress(Path(one).read_bytes()))
    for n, given in enumerate((urls, [Path(path).as_uri(), spans.as_uri()])):
        table = build_corpus(CorpusConfig(*given), tmp_path / f"url-{n}", workers=1 + n)
        assert arrays_of(table.path) == arrays_of(local.path)


@pytest.mark.parametrize("entry, format", [("tfds:salient_span_wikipedia/documents", None), ("wiki40b/en", "tfds")])
def test_a_corpus_name_that_is_not_prepared_says_what_to_type(tmp_path, monkeypatch, entry, format):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    name = entry.removeprefix("tfds:")
    with pytest.raises(CorpusError, match=f"{name}: found no dataset_info.json.*need TensorFlow.*tfds build {name} "):
        build_corpus(CorpusConfig(entry, format=format), tmp_path / "out")


def test_a_prepared_name_is_a_corpus_wherever_tfds_keeps_it(tmp_path, monkeypatch):
    from realm.text.formats.tfds_builder import prepare

    folder = prepare(as_jsonl(tmp_path), tmp_path / "tfds")["documents"]
    wanted = arrays_of(build_corpus(CorpusConfig(str(folder)), tmp_path / "by-folder").path)
    by_url = build_corpus(CorpusConfig(folder.as_uri()), tmp_path / "by-url")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    by_name = build_corpus(CorpusConfig("tfds:realm_corpus/documents"), tmp_path / "by-name")
    assert wanted == arrays_of(by_url.path) == arrays_of(by_name.path)
