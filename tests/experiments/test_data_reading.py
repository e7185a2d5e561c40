"""Every `realm data` verb reads documents with the same options, all of them told in its help, and passes none over."""

import json
import re

import pytest

from experiments.arguments import told
from experiments.cli import main
from realm.text.blocks import CorpusConfig
from realm.text.edit import CorpusEdit
from realm.text.formats import read_documents
from realm.text.formats.read import FORMATS
from realm.text.formats.tfds import tensorflow_datasets
from realm.text.spans import read_spans
from tests.text.formats.format_samples import dump, page, write_tfds

TEXT = tensorflow_datasets().features.Text
READING = {"--format", "--fields", "--keep", "--lenient"}
VERBS = ["build", "inspect", "edit", "tag", "embed", "dates", "tfds"]


def helped(verb: list[str], capsys) -> tuple[str, dict[str, str]]:
    """The whole help of a verb, and each option with its sentence (without its type and its default)."""
    with pytest.raises(SystemExit) as left:
        main([*verb, "--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    options: dict[str, str] = {}
    name = ""
    for line in said.replace("│", " ").splitlines():
        indent = len(line) - len(line.lstrip())
        if indent < 4 and line.lstrip().startswith("-") and "---" not in line:
            call, _, line = line.strip().partition("  ")
            name = next((part for part in call.replace(",", " ").split() if part.startswith("--")), "")
        options[name] = f"{options.get(name, '')} {line.strip()}".strip()
    del options[""], options["--help"]
    return said, {name: re.sub(r"\((default: ?[^)]*|required)\).*", "", text) for name, text in options.items()}


@pytest.mark.parametrize("verb", [["data", verb] for verb in VERBS] + [["tagger", "evaluate"]])
def test_every_option_of_a_verb_has_its_sentence(verb, capsys):
    said, options = helped(verb, capsys)
    without = [name for name, text in options.items() if len(text.split()) < 3]
    assert len(options) > 2 and not without
    if verb[1] in ("build", "edit", "tag", "dates", "tfds"):
        assert READING <= options.keys()
        assert all(format in options["--format"] for format in FORMATS)
        assert "FORMAT:PATH names it" in said and "tfds:NAME" in said
        assert "--fields id _id" in options["--fields"] and "disambiguation" in options["--keep"]


def test_a_docstring_that_tells_of_fields_is_their_help():
    found = told(CorpusConfig)
    assert found.keys() == set(CorpusConfig.__dataclass_fields__)
    assert found["holdout"] == "Share of documents, chosen by their ids, that training never sees as examples."
    assert found["only_retrieved"] == found["only_masked"]
    assert told(CorpusEdit).keys() == set(CorpusEdit.__dataclass_fields__)


@pytest.fixture
def files(tmp_path):
    """Documents under other names, labels for them, and a dump with a list page."""
    rows = [{"key": f"d{n}", "said": f"Ada came in {1960 + n}."} for n in range(2)]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "spans.jsonl").write_text('{"id": "d0", "spans": [[12, 16, "DATE"], [0, 3, "PER"]]}\n')
    (tmp_path / "dump.xml").write_bytes(dump(page("l", "List of towns", "[[Brenn]] is a town.")))
    return tmp_path


FIELDS = ["--fields", "id", "key", "text", "said"]


def test_what_was_built_with_fields_and_kept_pages_is_tagged_with_them(files):
    tag = ["data", "tag", "--overwrite", "--out", str(files / "tagged.jsonl")]
    by_file = ["--tagger", f"file:{files / 'spans.jsonl'}"]
    assert main([*tag[:2], str(files / "odd.jsonl"), *tag[2:], *FIELDS, *by_file]) == 0
    assert dict(read_spans(files / "tagged.jsonl")) == {"d0": [(0, 3, "PER", "file")], "d1": []}
    assert main([*tag[:2], str(files / "dump.xml"), *tag[2:], "--keep", "list", "--tagger", "anchors"]) == 0
    assert dict(read_spans(files / "tagged.jsonl"))["l"] == [(0, 5, "ANCHOR", "anchors")]


def test_a_split_of_a_dataset_is_tagged(files):
    splits = {name: [{"text": f"Ada came to {name}."}] for name in ("train", "test")}
    folder = write_tfds(files / "made", splits, {"text": TEXT()})
    (files / "named.jsonl").write_text('{"id": "test:0", "spans": [[0, 3, "PER"]]}\n')
    given = ["--fields", "split", "test", "--tagger", f"file:{files / 'named.jsonl'}"]
    assert main(["data", "tag", f"tfds:{folder}", *given, "--out", str(files / "out.jsonl")]) == 0
    assert dict(read_spans(files / "out.jsonl")) == {"test:0": [(0, 3, "PER", "file")]}


def test_dates_and_datasets_are_made_of_documents_under_other_names(files, capsys):
    given = [str(files / "odd.jsonl"), *FIELDS, "--spans", str(files / "spans.jsonl")]
    assert main(["data", "dates", *given]) == 0
    assert "2 documents: 2 dates found, 1 labelled DATE" in capsys.readouterr().out
    given = [str(files / "dump.xml"), "--keep", "list", "--out", str(files / "data"), "--json", str(files / "t.json")]
    assert main(["data", "tfds", *given]) == 0
    folder = json.loads((files / "t.json").read_text())["folders"]["documents"]
    assert [one.id for one in read_documents(folder)] == ["a", "l", "z"]


@pytest.mark.parametrize("verb", [["tag", "--tagger", "anchors"], ["dates", "--spans", "SPANS"], ["tfds"]])
def test_a_title_that_is_never_met_stops_a_verb_or_is_a_warning(files, capsys, verb):
    folder = write_tfds(files / "made", {"train": [{"text": "Ada.", "title": ""}]}, {"text": TEXT(), "title": TEXT()})
    verb = [str(files / "spans.jsonl") if one == "SPANS" else one for one in verb]
    given = ["data", verb[0], f"tfds:{folder}", *verb[1:], "--fields", "title", "title"]
    given += [] if verb[0] == "dates" else ["--out", str(files / "out")]
    assert main(given) == 1
    assert "found 1 documents and none with a title under the name 'title'" in capsys.readouterr().err
    assert main([*given, "--lenient"]) == 0
    assert "WARNING no document with a title under the name 'title'" in capsys.readouterr().out


def test_a_tagger_that_finds_nothing_at_all_is_a_warning(files, capsys):
    (files / "plain.xml").write_bytes(dump())
    given = ["--tagger", "anchors", "--out", str(files / "out.jsonl"), "--json", str(files / "out.json")]
    assert main(["data", "tag", str(files / "plain.xml"), *given]) == 0
    said = "anchors found no span in any of the 2 documents"
    assert f"WARNING {said}" in capsys.readouterr().out
    assert json.loads((files / "out.json").read_text())["warnings"] == [said]
