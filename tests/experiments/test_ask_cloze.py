"""Asking a pretrained run: it fills [MASK] by the marginal over blocks, and says so where it is asked a question."""

import io
import json
from dataclasses import replace

import pytest

from experiments.asking import AskError, open_asking
from experiments.cli import main
from experiments.config import to_json
from experiments.presets.tiny import preset
from realm.training.run_folder import write_json
from tests.training.jobs import build_table, objective, run_job, training

STATEMENT = "The Enlightenment began in [MASK]."


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A main job's folder with a realm stage of two steps."""
    out = tmp_path_factory.mktemp("job")
    table = build_table(out / "corpus")
    settings = training(steps=2, watch=replace(training().watch, blocks=0))
    run_job(table, out / "realm", training=settings)
    stage = replace(preset().realm, objective=objective(), training=settings)
    stage = replace(stage, refresh=replace(stage.refresh, block_lengths=(64,), batch_rows=16))
    write_json(out / "realm" / "config.json", {"config": to_json(stage) | {"corpus": table.fingerprint}})
    write_json(out / "preset.json", to_json(replace(preset(), realm=stage)))
    return out


@pytest.fixture(scope="module")
def asking(job):
    return open_asking(job)


def test_the_answer_is_the_marginal_over_the_blocks_shown(asking):
    found = asking.ask(STATEMENT, count=9, pieces=1)
    shown = found["evidence"]
    assert len(shown) == asking.run.stage.objective.candidates
    assert sum(one["p_block"] for one in shown) == pytest.approx(1, abs=1e-4)
    assert found["p"] == pytest.approx(sum(one["p_block"] * one["p_answer"] for one in shown), rel=1e-3)
    assert [one["title"] for one in shown].count("(null block)") == 1
    assert all(one["text"][a:b].lower() == found["answer"] for one in shown for a, b in one["spans"])


def test_the_likeliest_whole_answer_is_taken_whatever_its_number_of_wordpieces(asking):
    objective = asking.run.stage.objective
    each = [asking.ask(STATEMENT, pieces=n) for n in range(1, objective.max_predictions + 1)]
    found = asking.ask(STATEMENT)
    best = max(each, key=lambda one: one["p"])
    assert found["wordpieces"] == best["wordpieces"] and found["answer"] == best["answer"]


@pytest.mark.parametrize(
    ("statement", "pieces", "said"),
    [
        ("When did it begin?", None, "found 0 [MASK]"),
        ("[MASK] " * 6, None, "found 6 [MASK]"),
        ("[MASK] and [MASK]", 3, "found 3 wordpieces for each of 2"),
        ("long " * 60 + "[MASK]", None, "longer than the 40 wordpieces"),
    ],
)
def test_what_cannot_be_filled_says_why(asking, statement, pieces, said):
    with pytest.raises(AskError, match=said.replace("[", r"\[")):
        asking.ask(statement, pieces=pieces)


def test_on_the_command_line_a_question_gets_a_hint(job, capsys):
    assert main(["ask", str(job), STATEMENT, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["answer"] and "fills [MASK]" in said.err
    assert main(["ask", str(job), "When did it begin?"]) == 1
    assert "realm finetune" in capsys.readouterr().err


def test_questions_are_typed_until_an_empty_line_and_a_mistake_is_only_told(job, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"When?\n{STATEMENT}\n\n{STATEMENT}\n"))
    assert main(["ask", str(job), "--json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["question"] for line in said.out.splitlines()] == [STATEMENT]
    assert "found 0 [MASK]" in said.err


def test_new_text_in_the_index_is_read_without_training(asking, job, tmp_path, capsys):
    old = next(one for one in asking.ask(STATEMENT)["evidence"] if one["block"])
    file = tmp_path / "new.jsonl"
    file.write_text(json.dumps({"id": old["block"].rpartition(":")[0], "title": "", "text": "Something else is here."}))
    assert main(["hotswap", str(job), STATEMENT, "--replace", str(file), "--out", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out
    assert "1 of " in said and "nothing trained" in said and said.index("before:") < said.index("after:")
