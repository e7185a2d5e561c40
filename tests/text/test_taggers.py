"""Taggers by one interface: kinds and provenance, dates by our finder alone, and the file that a build reads."""

import gzip
import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.corpus import Document
from realm.text.formats.read import documents_with_spans
from realm.text.spacy_tagger import SpacyTagger, load_spacy
from realm.text.spans import SpansError, read_spans
from realm.text.taggers import Anchors, File, TaggerError, tagged, word_spans, words_of, write_spans

TEXT = "Ada Smith came to Paris in May 1969."
PLACES = {"Ada Smith": (0, 9), "Paris": (18, 23), "May 1969": (27, 35)}


class FakeNlp:
    """As much of a spaCy pipeline as the tagger uses: finds names from a list, and calls the year a DATE."""

    pipe_names = ["ner"]
    max_length = 10

    def pipe(self, texts):
        labels = {"Ada Smith": "PERSON", "Paris": "GPE", "May 1969": "DATE", "two": "CARDINAL"}
        for text in texts:
            assert len(text) <= self.max_length
            found = [(text.find(name), name, label) for name, label in labels.items() if name in text]
            ents = [SimpleNamespace(start_char=at, end_char=at + len(name), label_=label) for at, name, label in found]
            yield SimpleNamespace(ents=sorted(ents, key=lambda one: one.start_char))


def documents(*texts):
    return [(Document(f"d{number}", "", text), []) for number, text in enumerate(texts)]


def test_dates_are_the_finders_and_entities_the_taggers():
    tagger, counts = SpacyTagger(FakeNlp(), "tiny"), Counter()
    ((_, spans),) = tagged(documents(TEXT), tagger, counts)
    assert [(*span[:2], span.kind, span.tagger) for span in spans] == [
        (*PLACES["Ada Smith"], "PERSON", "spacy:tiny"),
        (*PLACES["Paris"], "GPE", "spacy:tiny"),
        (*PLACES["May 1969"], "DATE", "dates"),
    ]
    assert not counts, "spaCy's own dates are numbers, left out before"


def test_a_date_of_any_other_tagger_is_left_out_and_counted(tmp_path):
    spans = [[0, 9, "PER"], [27, 35, "DATE"], [18, 99, "LOC"], [18, 23, "LOC", "hand"]]
    (tmp_path / "s.jsonl").write_text(json.dumps({"id": "d0", "spans": spans}) + "\n")
    counts = Counter()
    ((_, found),) = tagged(documents(TEXT), File([tmp_path / "s.jsonl"]), counts)
    assert [span.tagger for span in found] == ["file", "hand", "dates"]
    assert counts == {"date of the tagger": 1, "outside the text": 1}


def test_spans_of_no_document_are_counted_at_the_end(tmp_path):
    lines = [{"id": name, "spans": [[0, 3, "PER"]] * 2} for name in ("before", "d0", "after")]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    tagger = File([tmp_path / "s.jsonl"])
    ((_, found),) = tagged(documents(TEXT), tagger)
    assert [span.kind for span in found] == ["PER", "PER", "DATE"] and tagger.left() == 4


def test_anchors_are_the_links_of_a_dump(tmp_path):
    article = {"_id": "7", "wikipedia_id": "7", "wikipedia_title": "A", "text": ["A\n", f"{TEXT}\n"]}
    anchor = {"paragraph_id": 1, "start": 18, "end": 23, "text": "Paris", "href": "Paris"}
    (tmp_path / "kilt.jsonl").write_text(json.dumps(article | {"anchors": [anchor]}) + "\n")
    ((document, spans),) = tagged(documents_with_spans(tmp_path / "kilt.jsonl"), Anchors())
    assert [(document.text[one.start : one.end], one.tagger) for one in spans] == [
        ("Paris", "anchors"),
        ("May 1969", "dates"),
    ]


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_the_written_file_is_what_a_build_reads(tmp_path, name):
    found = list(tagged(documents(TEXT, "Nothing here."), SpacyTagger(FakeNlp(), "tiny")))
    counts = write_spans(found, tmp_path / name, "spacy:tiny")
    assert counts == {"documents": 2, "PERSON by spacy:tiny": 1, "GPE by spacy:tiny": 1, "DATE by dates": 1}
    assert dict(read_spans(tmp_path / name)) == {
        "d0": [(0, 9, "PERSON", "spacy:tiny"), (18, 23, "GPE", "spacy:tiny")],
        "d1": [],
    }
    if name.endswith(".gz"):
        once = (tmp_path / name).read_bytes()
        write_spans(found, tmp_path / name, "spacy:tiny")
        assert (tmp_path / name).read_bytes() == once and gzip.decompress(once)
    lines = [json.dumps(document._asdict()) + "\n" for document, _ in found]
    (tmp_path / "d.jsonl").write_text("".join(lines))
    table = build_corpus(CorpusConfig(str(tmp_path / "d.jsonl"), str(tmp_path / name)), tmp_path / "corpus")
    row = table.row_of("d0:0")
    kinds = [table.kinds[kind] for kind in table.spans(row)[:, 5]]
    assert list(zip(kinds, table.found_by(row), strict=True)) == [
        ("PERSON", "spacy:tiny"),
        ("GPE", "spacy:tiny"),
        ("DATE", "dates"),
    ]


def test_a_failed_write_leaves_nothing(tmp_path):
    def broken():
        yield from tagged(documents(TEXT), Anchors())
        raise SpansError("no more")

    with pytest.raises(SpansError):
        write_spans(broken(), tmp_path / "s.jsonl.gz", "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tagger", [7, "", ["x"]])
def test_a_tagger_that_is_no_name_is_an_error_or_counted(tmp_path, tagger):
    path, counts = tmp_path / "s.jsonl", Counter()
    path.write_text(json.dumps({"id": "d", "tagger": tagger, "spans": [[0, 1, "X"]]}) + "\n")
    with pytest.raises(SpansError, match="s.jsonl:1: found the tagger"):
        list(read_spans(path))
    assert dict(read_spans(path, lenient=True, counts=counts)) == {"d": [(0, 1, "X")]}
    assert counts == {"malformed tagger": 1}


def test_words_are_cut_about_as_conll_files_are():
    text = "Mr. O'Neill's U.S. firm (AT&T) paid $3,394.50, didn't it?"
    wanted = "Mr . O'Neill 's U.S . firm ( AT&T ) paid $ 3,394.50 , didn't it ?".split()
    assert [text[start:end] for start, end in words_of(text)] == wanted


def test_spans_of_characters_become_spans_of_words():
    words = "Ada Smith-Jones came to Paris in May 1969".split()
    assert word_spans(words, SpacyTagger(FakeNlp(), "tiny")) == [(0, 2, "PERSON"), (4, 5, "GPE")]


def test_without_spacy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(TaggerError, match=r"install the extra `spacy` .*realm-pretraining\[spacy\]"):
        load_spacy("en_core_web_sm")


def test_a_pipeline_that_is_not_there_or_knows_no_entities_is_named(monkeypatch):
    def load(model, exclude):
        if model == "none":
            raise OSError("[E050] Can't find model 'none'")
        return SimpleNamespace(pipe_names=["tok2vec"] if model == "parser" else ["ner"], max_length=1)

    monkeypatch.setitem(sys.modules, "spacy", SimpleNamespace(load=load))
    with pytest.raises(TaggerError, match="found no spaCy pipeline 'none'.*python -m spacy download none"):
        load_spacy("none")
    with pytest.raises(TaggerError, match="wanted one with `ner`"):
        load_spacy("parser")
    assert load_spacy("good").name == "spacy:good"
