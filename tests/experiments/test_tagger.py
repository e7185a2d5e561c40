"""`realm tagger` and `realm data tag | embed` on the command line: train, measure, tag, build, edit, embed."""

import gzip
import json
import re

import jax
import pytest

from experiments.cli import main
from experiments.config import Stage, from_json, to_json
from experiments.pipeline import start_refresher
from experiments.presets import tiny
from experiments.presets.tagger import preset
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.training.run_folder import RunFolder

SMALL = "--joint.bert.width 16 --joint.bert.layers 1 --joint.bert.feedforward 32 --joint.init random --batch-lengths 32"
QUICK = "--steps 2 --batch-size 4 --log-every 1 --checkpoint-every 2"


def conll(folder, name="train.conll", count=12):
    rows = "Ada B-PER\nSmith I-PER\ncame O\nto O\nRome B-LOC\n\n" * count
    (folder / name).write_text(rows)
    return str(folder / name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagger")
    given = ["tagger", "train", conll(folder), "--holdout", "0.25", "--out", str(folder / "run")]
    assert main([*given, *SMALL.split(), *QUICK.split()]) == 0
    return folder / "run"


def test_the_preset_goes_to_json_and_back():
    assert from_json(json.loads(json.dumps(to_json(preset()))), Stage) == preset()


def test_a_run_records_the_types_it_found_and_its_vocabulary(run):
    objective = json.loads((run / "config.json").read_text())["config"]["objective"]
    assert (objective["type"], objective["kinds"], objective["holdout"]) == ("Tagging", ["LOC", "PER"], 0.25)
    assert json.loads((run / "done.json").read_text())["step"] == 2
    assert len((run / "vocab.txt").read_text().splitlines()) == 30522


def test_evaluate_counts_spans(run, tmp_path, capsys):
    arguments = ["tagger", "evaluate", str(run), conll(tmp_path), "--json", str(tmp_path / "out.json")]
    assert main([*arguments, "--heldout", "0.25"]) == 0
    (found,) = json.loads((tmp_path / "out.json").read_text())["files"].values()
    assert found["sentences"] == 3 and found["all"]["gold"] == 6
    assert "whatever type" in capsys.readouterr().out


def test_types_of_another_tagger_are_named_anew(tmp_path, monkeypatch):
    from experiments import tagger_run

    class Names:
        name = "names"

        def tag(self, documents):
            return [[(0, 9, "PERSON"), (18, 22, "GPE")] for _ in documents]

    monkeypatch.setattr(tagger_run, "load_spacy", lambda model: Names())
    arguments = ["tagger", "evaluate", "spacy:any", conll(tmp_path, count=2), "--json", str(tmp_path / "out.json")]
    for same, right, predicted in (([], 0, 4), (["PERSON=PER", "GPE=LOC"], 4, 4), (["PERSON=PER", "GPE="], 2, 2)):
        assert main([*arguments, "--same", *same] if same else arguments) == 0
        (found,) = json.loads((tmp_path / "out.json").read_text())["files"].values()
        assert (found["all"]["right"], found["all"]["predicted"]) == (right, predicted)


def test_tag_writes_what_build_reads(run, tmp_path, capsys):
    spans = tmp_path / "spans.jsonl.gz"
    arguments = ["data", "tag", "sample:corpus", "--limit", "5", "--tagger", str(run), "--out", str(spans)]
    assert main([*arguments, "--json", str(tmp_path / "tag.json")]) == 0
    lines = [json.loads(line) for line in gzip.decompress(spans.read_bytes()).splitlines()]
    (name,) = {line["tagger"] for line in lines}
    assert len(lines) == 5 and re.fullmatch("bert:[0-9a-f]{8}", name)
    counts = json.loads((tmp_path / "tag.json").read_text())["counts"]
    assert sum(len(line["spans"]) for line in lines) == sum(
        count for kind, count in counts.items() if kind.endswith(f"by {name}")
    )
    given = [
        "sample:corpus",
        "--limit",
        "5",
        "--spans",
        str(spans),
        "--workers",
        "1",
        "--out",
        str(tmp_path / "corpus"),
    ]
    assert main(["data", "build", *given]) == 0
    capsys.readouterr()
    assert main(["data", "inspect", str(tmp_path / "corpus"), "--json", str(tmp_path / "in.json")]) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "in.json").read_text())
    by_tagger = BlockTable.open(tmp_path / "corpus").manifest["counts"]["spans_by_tagger"]
    assert {one["tagger"]: one["spans"] for one in found["taggers"]} == by_tagger and "dates" in by_tagger
    for one in found["taggers"]:
        assert sum(one["kinds"].values()) == one["spans"]
        assert f"tagger {one['tagger']}: {one['spans']} spans" in said
    assert main(arguments) == 2 and "exists" in capsys.readouterr().err
    assert main(["data", "tag", str(tmp_path / "corpus"), *arguments[3:], "--overwrite"]) == 1
    assert "found a built corpus, wanted the documents" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["tagger"], 2, "realm tagger train FILES"),
        (["tagger", "train"], 2, "realm tagger train FILES"),
        (["tagger", "evaluate", "x"], 2, "realm tagger evaluate TAGGER"),
        (["tagger", "evaluate", "anchors", "FILE"], 2, "found the tagger 'anchors', which reads no text"),
        (["tagger", "evaluate", "file:spans.jsonl", "FILE"], 2, "which reads no text, wanted a run folder"),
        (
            ["data", "tag", "sample:corpus", "--out", "x", "--tagger", "anchors"],
            2,
            "(jsonl): found a format that marks no",
        ),
        (["tagger", "evaluate", "RUN", "none.conll"], 1, "none.conll: found no readable file"),
        (["tagger", "evaluate", "nobody", "FILE"], 1, "found no tagger 'nobody', wanted a run folder"),
        (["tagger", "evaluate", "RUN", "FILE", "--same", "PER"], 2, "wanted THEIRS=OURS"),
        (["tagger", "evaluate", "RUN", "FILE", "--heldout", "0"], 2, "--heldout 0"),
        (["tagger", "evaluate", "HERE", "FILE"], 1, "found no tagger's config.json"),
        (["data", "tag", "--out", "x", "--tagger", "anchors"], 2, "wanted `realm data tag DOCUMENTS"),
        (["data", "embed"], 2, "wanted `realm data embed CORPUS"),
        (["data", "embed", "HERE", "--like", "HERE", "--out", "x"], 1, "has no config.json"),
    ],
)
def test_what_cannot_be_done_is_one_line(run, tmp_path, capsys, arguments, code, said):
    places = {"RUN": str(run), "FILE": conll(tmp_path), "HERE": str(tmp_path)}
    assert main([places.get(one, one) for one in arguments]) == code
    assert said in capsys.readouterr().err


def test_the_index_of_an_edited_corpus_embeds_only_what_changed(tmp_path, capsys):
    """A realm stage as a main job leaves it, `data edit`, `data embed`."""
    job = tmp_path / "job"
    stage = tiny.preset().realm
    table = build_corpus(CorpusConfig(str(sample_path("corpus")), limit=20, block_length=96), job / "corpus")
    RunFolder(job / "realm").write_config(to_json(stage) | {"corpus": table.fingerprint})
    refresher = start_refresher(stage, table, job / "realm", lambda line: None)
    refresher.publish(0, stage.objective.init(jax.random.key(0)))
    refresher.close()
    gone = table.document_id(0)
    assert main(["data", "edit", str(table.path), "--delete", gone, "--out", str(tmp_path / "new")]) == 0
    arguments = ["data", "embed", str(tmp_path / "new"), "--like", str(job / "realm"), "--out", str(tmp_path / "index")]
    assert main([*arguments, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    rows = BlockTable.open(tmp_path / "new").rows
    assert (found["embedded"], found["reused"], found["rows"]) == (0, rows, rows)
    assert "0 blocks embedded" in capsys.readouterr().out
