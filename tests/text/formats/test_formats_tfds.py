"""Datasets of TensorFlow Datasets, written and read without TensorFlow: texts, spans in bytes, a builder of ours."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.corpus import CorpusError, Document
from realm.text.formats import read_documents, read_with_spans, tfds_builder
from realm.text.formats.tfds import tensorflow_datasets
from realm.text.formats.tfds_builder import prepare
from realm.text.question_sets import read_question_set
from realm.text.questions import QuestionsError
from tests.text.formats.format_samples import dump, page, write_tfds

TEXT = tensorflow_datasets().features.Text
SPANS = tensorflow_datasets().features.Sequence({"start": np.int32, "limit": np.int32, "type": TEXT()})
SALIENT = {"title": TEXT(), "text": TEXT(), "spans": SPANS}


def row(title: str | bytes, text: str | bytes, *spans: tuple[int, int, str]) -> dict:
    names = ("start", "limit", "type")
    return {"title": title, "text": text, "spans": {name: [one[n] for one in spans] for n, name in enumerate(names)}}


@pytest.fixture(scope="module")
def salient(tmp_path_factory):
    """A small dataset in the layout of salient_span_wikipedia, with what can be wrong in one."""
    rows = [
        row("Café", "The Café in İzmir, 1990.", (4, 9, "ORG"), (13, 19, "GPE"), (21, 25, "DATE")),
        row("B", "Plain words.", (0, 5, "X")),
        row("C", " "),
        row("D", b"caf\xe9"),
        row("E", "Né là.", (1, 2, "X"), (0, 99, "X"), (4, 3, "X"), (-1, 3, "X"), (0, 3, ""), (0, 3, "OK")),
    ]
    return write_tfds(tmp_path_factory.mktemp("tfds"), {"train": rows}, SALIENT, name="salient")


def test_spans_in_bytes_become_spans_in_characters(salient):
    counts = Counter()
    found = list(read_with_spans(salient, lenient=True, counts=counts))
    cut = [[(one.text[start:end], label) for start, end, label in spans] for one, spans in found]
    assert [one.id for one, _ in found] == ["train:0", "train:1", "train:4"]
    assert cut == [[("Café", "ORG"), ("İzmir", "GPE"), ("1990", "DATE")], [("Plain", "X")], [("Né", "OK")]]
    assert counts == {"blank text": 1, "not UTF-8": 1, "malformed span": 5}
    assert list(read_documents(salient, lenient=True)) == [one for one, _ in found]


def test_a_bad_example_is_named_by_its_row(salient):
    with pytest.raises(CorpusError, match="row 2 of train: found a text of 1 characters, none visible, wanted"):
        list(read_documents(salient))


def test_features_of_other_names_and_splits(tmp_path):
    columns = {"key": np.int64, "page": {"body": TEXT()}}
    splits = {name: [{"key": n, "page": {"body": f"{name} {n}."}} for n in range(2)] for name in ("train", "test")}
    folder = write_tfds(tmp_path, splits, columns)
    fields = {"id": "key", "text": "page.body", "split": "test"}
    found = list(read_documents(folder, fields=fields))
    assert found == [Document("0", "", "test 0."), Document("1", "", "test 1.")]
    for wrong, said in (
        ({"split": "dev"}, r"splits \['test', 'train'\] and no 'dev', wanted one of them"),
        ({"split": ""}, "wanted one of them"),
        ({"text": "body"}, r"no feature 'body' \(features: \['key', 'page', 'page.body'\]\).*--fields text NAME"),
        ({"title": "name"}, "no feature 'name' .*--fields title NAME"),
        ({"id": "number"}, "no feature 'number'"),
        ({"text": "key"}, "row 0 of test: found a text that is a int"),
    ):
        with pytest.raises(CorpusError, match=said):
            list(read_documents(folder, fields=fields | wrong))
    assert len(list(read_documents(folder, fields=fields | {"title": "name"}, lenient=True))) == 2
    with pytest.raises(CorpusError, match="wanted one of them as the field split: --fields split NAME"):
        list(read_documents(folder, fields={"text": "page.body"}))


def damage(folder: Path, kind: str) -> None:
    info = folder / "dataset_info.json"
    record = next(folder.glob("*.array_record*"))
    match kind:
        case "tfrecord":
            info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
        case "no info":
            info.unlink()
        case "broken info":
            info.write_text("{")
        case "no features":
            (folder / "features.json").unlink()
        case "no shard":
            record.unlink()
        case "short shard":
            record.write_bytes(record.read_bytes()[:1000])
        case "zeroed shard":
            raw = record.read_bytes()
            record.write_bytes(raw[:64] + bytes(len(raw) - 64))
        case "fewer rows than promised":
            promised = json.loads(info.read_text())
            promised["splits"][0]["shardLengths"] = ["9"]
            info.write_text(json.dumps(promised))


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    "kind, said",
    [
        ("tfrecord", "prepared as tfrecord, wanted array_record.*tfds convert_format"),
        ("no info", "no dataset_info.json, wanted .* TensorFlow or Apache Beam.*tfds build"),
        ("broken info", "cannot be read"),
        ("no features", "cannot be read"),
        ("no shard", "found a (split that cannot be opened|damaged example)"),
        ("short shard", "found a (split that cannot be opened|damaged example)"),
        ("zeroed shard", "found a (split that cannot be opened|damaged example)"),
        ("fewer rows than promised", "found a (split that cannot be opened|damaged example)"),
    ],
)
def test_a_dataset_that_is_not_whole_is_an_error_always(tmp_path, kind, said, lenient):
    folder = Path(write_tfds(tmp_path, {"train": [row("A", f"Text {n}.") for n in range(3)]}, SALIENT))
    damage(folder, kind)
    with pytest.raises(CorpusError, match=said):
        list(read_documents(folder, format="tfds", lenient=lenient))


CORPUS = """{"id": "a", "title": "A", "text": "Ada née Byron."}
{"id": "b", "title": "", "text": "Bob.", "heldout": true}
"""


def test_our_dataset_comes_back_as_it_went_in_and_needs_no_tensorflow(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(CORPUS)
    (tmp_path / "spans.jsonl").write_text('{"id": "a", "spans": [[8, 13, "PERSON"], [0, 3, "PERSON", "spacy:x"]]}\n')
    questions = '{"id": "q", "question": "Who?", "answers": ["Ada", "Ada B."], "doc": "a"}\n'
    (tmp_path / "test.jsonl").write_text(questions + '{"id": "r", "question": "Where?", "answers": ["é"]}\n')
    code = f"""
import json, sys
from pathlib import Path
from realm.text.formats import read_with_spans
from realm.text.formats.tfds_builder import prepare
here = Path({str(tmp_path)!r})
sets = {{"test": here / "test.jsonl"}}
folders = prepare(here / "corpus.jsonl", here / "out", spans=here / "spans.jsonl", questions=sets)
import tensorflow_datasets as tfds
source = tfds.builder_from_directory(str(folders["questions"])).as_data_source(split="test")
said = lambda row: [row[name].decode() for name in ("id", "question", "document")]
rows = [said(row) + [one.decode() for one in row["answers"]] for row in source]
print(json.dumps([list(read_with_spans(folders["documents"])), rows, "tensorflow" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    documents, rows, tensorflow = json.loads(done.stdout)
    read = [(Document(*document), [tuple(span) for span in spans]) for document, spans in documents]
    assert read == [
        (Document("a", "A", "Ada née Byron."), [(8, 13, "PERSON", "file"), (0, 3, "PERSON", "spacy:x")]),
        (Document("b", "", "Bob.", True), []),
    ]
    asked = read_question_set(tmp_path / "test.jsonl").questions
    wanted = [[q.id, q.question, q.document or "", *q.answers] for q in asked]
    assert rows == wanted and not tensorflow
    with pytest.raises(CorpusError, match="found a dataset, wanted an empty place"):
        prepare(tmp_path / "corpus.jsonl", tmp_path / "out")


def test_a_corpus_that_cannot_be_read_leaves_no_dataset(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(CORPUS + "broken\n")
    with pytest.raises(CorpusError, match=":3: found broken JSON"):
        prepare(tmp_path / "corpus.jsonl", tmp_path / "out")
    assert not list((tmp_path / "out").rglob("dataset_info.json"))
    folder = prepare(tmp_path / "corpus.jsonl", tmp_path / "out", lenient=True)["documents"]
    assert [one.id for one in read_documents(folder)] == ["a", "b"]


def test_a_corpus_built_from_the_dataset_has_the_taggers_of_its_source(tmp_path):
    text = ["A\n", "Ada came to Brenn.\n"]
    anchor = {"text": "Brenn", "href": "B", "paragraph_id": 1, "start": 12, "end": 17}
    article = {"wikipedia_id": "a", "wikipedia_title": "A", "text": text, "anchors": [anchor]}
    (tmp_path / "kilt.json").write_text(json.dumps(article) + "\n")
    folder = prepare(tmp_path / "kilt.json", tmp_path / "links")["documents"]
    assert [spans for _, spans in read_with_spans(folder)] == [[(12, 17, "ANCHOR", "anchors")]]
    (tmp_path / "spans.jsonl").write_text('{"id": "a", "tagger": "bert:1", "spans": [[0, 3, "PER"]]}\n')
    folder = prepare(folder, tmp_path / "again", spans=tmp_path / "spans.jsonl")["documents"]
    table = build_corpus(CorpusConfig(str(folder)), tmp_path / "corpus")
    assert table.manifest["counts"]["spans_by_tagger"] == {"bert:1": 1}


def test_spans_of_a_dataset_that_knows_no_taggers_come_without(tmp_path):
    spans = tensorflow_datasets().features.Sequence({"start": np.int64, "end": np.int64, "label": TEXT()})
    rows = [{"text": "Ada came.", "spans": {"start": [0], "end": [3], "label": ["PERSON"]}}]
    folder = write_tfds(tmp_path, {"train": rows}, {"text": TEXT(), "spans": spans})
    assert [spans for _, spans in read_with_spans(folder)] == [[(0, 3, "PERSON")]]


QUESTION = '{"id": "q", "question": "Who?", "answers": ["Ada"]}\n'


@pytest.mark.parametrize("name", ["../x", "a b", "", "all", "train/x", "é", "a[0]", "-a"])
def test_a_name_that_no_split_can_have_is_refused_before_anything_is_written(tmp_path, name):
    (tmp_path / "c.jsonl").write_text(CORPUS)
    (tmp_path / "q.jsonl").write_text(QUESTION)
    with pytest.raises(QuestionsError, match=f"found the split {re.escape(repr(name))} for questions, wanted a name"):
        prepare(tmp_path / "c.jsonl", tmp_path / "out", questions={name: tmp_path / "q.jsonl"})
    assert not (tmp_path / "out").exists()


def test_every_name_that_is_accepted_can_be_read_back(tmp_path):
    (tmp_path / "c.jsonl").write_text(CORPUS)
    (tmp_path / "q.jsonl").write_text(QUESTION)
    names = ["test", "nq-dev_1", "2019"]
    folders = prepare(tmp_path / "c.jsonl", tmp_path / "out", questions=dict.fromkeys(names, tmp_path / "q.jsonl"))
    for name in names:
        (question,) = read_question_set(f"tfds:{folders['questions']}:{name}").questions
        assert question.id == "q"


def test_what_fails_on_its_way_leaves_nothing_in_the_way(tmp_path, monkeypatch):
    (tmp_path / "c.jsonl").write_text(CORPUS)
    (tmp_path / "q.jsonl").write_text(QUESTION)
    sets = {"test": tmp_path / "q.jsonl"}
    with monkeypatch.context() as patch:
        patch.setattr(tfds_builder, "_question", lambda question: {"id": 7})
        with pytest.raises(RuntimeError, match="encode example"):  # the second of two configs, when the first is whole
            prepare(tmp_path / "c.jsonl", tmp_path / "out", questions=sets)
    assert not list((tmp_path / "out").rglob("dataset_info.json"))
    assert set(prepare(tmp_path / "c.jsonl", tmp_path / "out", questions=sets)) == {"documents", "questions"}
    (folder,) = (tmp_path / "out").glob("*/documents/*")
    shutil.rmtree(folder)
    with pytest.raises(CorpusError, match="found a dataset, wanted an empty place"):
        prepare(tmp_path / "c.jsonl", tmp_path / "out", questions=sets)
    assert not folder.exists()


def test_pages_of_a_dump_that_are_kept_can_be_exported(tmp_path):
    kept = page("l", "List of towns", "Brenn is a town.")
    (tmp_path / "dump.xml").write_bytes(dump(kept))
    for keep, ids in (((), ["a", "z"]), (("list",), ["a", "l", "z"])):
        folder = prepare(tmp_path / "dump.xml", tmp_path / f"out{len(keep)}", keep=keep)["documents"]
        assert [one.id for one in read_documents(folder)] == ids
