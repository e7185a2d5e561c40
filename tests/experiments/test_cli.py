"""The command line: help worth reading, one-line errors that say what to type, and each verb on a real tiny job."""

import json
import subprocess
import sys

import pytest

from experiments.cli import main
from realm.text.sample import sample_path


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    out = tmp_path_factory.mktemp("job") / "tiny"
    table = out.parent / "recall.json"
    assert main(["pretrain", "tiny", "--out", str(out), "--max-questions", "50", "--json", str(table)]) == 0
    return out


def test_help_names_every_verb_and_does_not_load_jax():
    code = "import sys; from experiments.cli import main; main(['--help']); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    for verb in ("data build", "pretrain PRESET", "evaluate RUN", "report RUN", "--list"):
        assert verb in done.stdout


def test_list_shows_presets_with_their_cost(capsys):
    assert main(["pretrain", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["tiny", "sample", "base"]
    assert "2 cores" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train"], 2, "no verb 'train': wanted one of data, pretrain, evaluate, report"),
        (["pretrain", "huge"], 2, "no preset 'huge': wanted one of tiny, sample, base"),
        (["data", "build"], 2, None),
        (["evaluate"], 2, "wanted `realm evaluate RUN`"),
        (["evaluate", "/nowhere"], 1, "/nowhere is no run folder"),
        (["report", "/nowhere"], 1, "/nowhere is no run folder"),
        (["pretrain", "tiny", "--resume", "--overwrite"], 2, "exclude each other"),
        (["pretrain", "tiny", "--corpus.documents", "/no/such.jsonl", "--out", "{tmp}/run"], 1, "/no/such.jsonl"),
        (["pretrain", "tiny", "--realm.refresh.schedule", "often", "--out", "{tmp}/run"], 2, None),
        (["pretrain", "tiny", "--realm.training.optimiser", "1"], 2, None),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_type(arguments, code, said, capsys, tmp_path):
    try:
        found = main([a.replace("{tmp}", str(tmp_path)) for a in arguments])
    except SystemExit as exit:
        found = exit.code
    captured = capsys.readouterr()
    assert found == code
    assert "Traceback" not in captured.err
    if said:
        assert said in captured.err and len(captured.err.splitlines()) == 1


def test_summary_and_table_have_the_documented_keys(job):
    summary = json.loads((job / "summary.json").read_text())
    assert summary["recall"].keys() == {"untrained", "ict", "realm", "bm25"}
    for row in summary["recall"].values():
        assert row.keys() == {"1", "5", "20"} and 0 <= row["1"] <= row["5"] <= row["20"] <= 1
    assert [p["step"] for p in summary["utility"]] == list(range(2, 17, 2))
    assert [(g["step"], g["age_when_replaced"]) for g in summary["generations"]] == [(0, 6), (6, 6), (12, 4)]
    assert summary["minutes"] > 0 and summary["masked_words"]["masked"] > 0
    table = json.loads((job.parent / "recall.json").read_text())
    assert [row["name"] for row in table["rows"]] == ["untrained", "ict", "realm", "bm25"]


def test_a_job_that_is_there_needs_resume_or_overwrite(job, capsys):
    assert main(["pretrain", "tiny", "--out", str(job)]) == 1
    assert "--resume" in capsys.readouterr().err
    assert main(["pretrain", "tiny", "--out", str(job), "--resume", "--realm.training.steps", "99"]) == 1
    assert "differs" in capsys.readouterr().err


def test_evaluate_puts_bm25_beside_the_run_and_says_what_it_measured(job, capsys):
    out = job.parent / "evaluate.json"
    assert main(["evaluate", str(job), "--max-questions", "40", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    names = [row["name"] for row in found["recall"]["rows"]]
    assert names == ["realm", "bm25"]
    setting = found["recall"]["rows"][0]["setting"]
    assert setting["index"] == "exact" and setting["generation_step"] == 16 and setting["index_age"] == 0
    assert found["masked_words"]["loss"] > 0
    assert "with retrieval" in capsys.readouterr().out


def test_report_shows_masked_sentences_with_their_candidates(job, capsys):
    out = job.parent / "report.json"
    assert main(["report", str(job / "realm"), "--examples", "3", "--json", str(out)]) == 0
    examples = json.loads(out.read_text())["examples"]
    assert len(examples) == 3
    for example in examples:
        assert all(0 <= a < b <= len(example["sentence"]) for a, b in example["masked"])
        assert sum(c["probability"] for c in example["candidates"]) == pytest.approx(1.0, abs=1e-4)
        null = [c for c in example["candidates"] if c["block"] is None]
        assert len(null) == 1 and null[0]["utility"] == 0.0
        assert example["block"] not in [c["block"] for c in example["candidates"]]
    assert "hidden:" in capsys.readouterr().out


def test_report_of_a_stage_that_retrieves_nothing_says_so(job, capsys):
    assert main(["report", str(job / "mlm")]) == 1
    assert "give a realm stage" in capsys.readouterr().err


def test_data_build_prints_counts_and_writes_the_manifest(tmp_path, capsys):
    out = tmp_path / "manifest.json"
    arguments = ["data", "build", str(sample_path("corpus")), "--limit", "5", "--out", str(tmp_path / "corpus")]
    assert main([*arguments, "--json", str(out)]) == 0
    assert json.loads(out.read_text())["counts"]["documents"] == 5
    assert "blocks" in capsys.readouterr().out
