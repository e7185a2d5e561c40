"""Asking a fine-tuned run, and what is refused before it is loaded; a swap shows that nothing was trained."""

import io
import json
import mmap
from dataclasses import replace

import numpy as np
import pytest

from experiments.ask_command import Ask, Hotswap, parted
from experiments.asking import open_asking
from experiments.cli import main
from experiments.config import to_json
from experiments.presets import PRESETS
from experiments.recipe_of import recipe_of
from index_refresh.build import make_generation
from index_refresh.store import GenerationStore
from realm.models.tree_hash import tree_hash
from realm.text.edit import CorpusEdit
from realm.training.run_folder import write_json
from tests.experiments.run_folders import job
from tests.training.jobs import build_table

LONG = "who " * 60


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    table = build_table(folder / "built")
    made, stage, params = job(folder / "run", table, PRESETS["tiny_open"](), "open_qa", "mean")
    make_generation(GenerationStore(made / "open_qa", recipe_of(stage, table)), 4, params, lambda *_: None)
    return made


@pytest.fixture
def unloadable(monkeypatch):
    def refuse(*_):
        raise AssertionError("loaded")

    monkeypatch.setattr("experiments.asking.open_asking", refuse)


@pytest.mark.parametrize(
    ("arguments", "said", "options"),
    [
        (["RUN", "Who?", "--count", "2"], ["RUN", "Who?"], ["--count", "2"]),
        (["RUN", "--count", "2", "Who?", "--json", "When?"], ["RUN", "Who?", "When?"], ["--count", "2", "--json"]),
        (["--json", "RUN", "--count=2", "Who?"], ["RUN", "Who?"], ["--json", "--count=2"]),
        (["RUN", "--pieces", "1", "--", "--why?", "-h"], ["RUN", "--why?", "-h"], ["--pieces", "1"]),
        (["RUN", "Who?", "--other", "x"], ["RUN", "Who?", "x"], ["--other"]),
    ],
)
def test_questions_stand_before_or_behind_options(arguments, said, options):
    assert parted(arguments, Ask) == (said, options)


def test_options_of_many_values_end_at_the_next_option():
    arguments = ["RUN", "--json", "Who?", "--add", "a", "b", "--lenient", "When?", "--fields", "id", "_id", "--", "--x"]
    said, options = parted(arguments, Hotswap, CorpusEdit)
    assert said == ["RUN", "Who?", "When?", "--x"]
    assert options == ["--json", "--add", "a", "b", "--lenient", "--fields", "id", "_id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ask", "RUN", " "], "found an empty question"),
        (["ask", "RUN", "Who?", "--pieces", "2"], "found pieces=2, but a fine-tuned run fills no [MASK]"),
        (["ask", "RUN", "Who\udcff?"], "found bytes that are not UTF-8 at 3"),
        (["hotswap", "RUN", "", "--delete", "x"], "found an empty question"),
        (["hotswap", "RUN", "Who?", "--delete", "nobody"], "found no document 'nobody'"),
        (["hotswap", "RUN", "Who?", "--add", "no-such-file.jsonl"], "no-such-file.jsonl"),
    ],
)
def test_what_cannot_be_asked_or_edited_is_refused_before_the_run_is_loaded(run, unloadable, arguments, said, capsys):
    assert main([str(run) if one == "RUN" else one for one in arguments]) == 1
    assert said in capsys.readouterr().err


def test_pieces_are_refused_for_typed_questions_too(run, capsys):
    assert main(["ask", str(run), "--pieces", "2"]) == 1 and "found pieces=2" in capsys.readouterr().err


def test_a_line_that_is_no_text_costs_only_itself(run, capsys, monkeypatch):
    typed = b"Who?\n\xff\xfe when?\n" + "Wér?\n\n".encode()
    stdin = io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["ask", "--json", str(run)]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["question"] for line in said.out.splitlines()] == ["Who?", "Wér?"]
    assert "found bytes that are not UTF-8 at 0" in said.err


def test_what_of_a_question_is_not_read_is_said(run, capsys):
    assert main(["ask", str(run), "--", LONG, "--Who?"]) == 0
    said = capsys.readouterr().out
    assert said.count("WARNING the last 14 of 60 wordpieces were not read: a question here has 46") == 1
    assert "--Who?" in said


def test_table_and_vectors_of_a_run_that_is_asked_are_memory_maps(run):
    asking = open_asking(run)
    asking.ask("Who?")
    table = asking.table
    shards = list(asking.vectors)
    assert sum(map(len, shards)) == table.indexed
    for array in (table.token_flat, table.token_offset_N1, table.length_N, table.title_flat, table.span_P6, *shards):
        assert _root(array) is mmap.mmap and not array.flags.writeable


def _root(array):
    """The type of what holds an array's bytes."""
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array)


def test_a_swap_shows_by_hash_that_nothing_was_trained_and_says_why_all_was_embedded(run, tmp_path, capsys):
    asking = open_asking(run)
    document = asking.table.block_id(0).rpartition(":")[0]
    arguments = ["hotswap", str(run), "Who?", "--delete", document, "--out"]
    assert main([*arguments, str(tmp_path / "one"), "--json"]) == 0
    swap = json.loads(capsys.readouterr().out)["swap"]
    assert swap["embedded"] == 0 and swap["parameters"]["before"] == swap["parameters"]["after"]
    hashes = {part: tree_hash(asking.params[part]) for part in ("retriever", "joint")}
    assert swap["parameters"]["after"] == hashes | {"index": hashes["retriever"]}
    stage = asking.run.stage
    other = replace(stage, refresh=replace(stage.refresh, batch_rows=16))
    write_json(run / "open_qa" / "config.json", {"config": to_json(other)})
    assert main([*arguments, str(tmp_path / "two")]) == 0
    said = capsys.readouterr().out
    assert f"{swap['blocks']} of {swap['blocks']} blocks embedded (another batch_rows: found 32, wanted 16" in said
    assert ", nothing trained (" in said
    write_json(run / "open_qa" / "config.json", {"config": to_json(stage)})


def test_the_help_of_a_swap_tells_of_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["hotswap", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--replace" in said and "DOCUMENTS whose ids the corpus has, in place of those." in said
    assert "DOCUMENTS whose ids the corpus has not." in said and "Ids of documents; @FILE holds ids" in said
    assert "Format of all documents that name none" in said
