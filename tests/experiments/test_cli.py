"""The command line: help worth reading, one-line errors that say what to type, and each verb on a real tiny job."""

import dataclasses
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli import chosen_preset, main
from experiments.config import to_json
from experiments.locate import open_run, read_preset
from experiments.measure import Measurement
from experiments.pipeline import open_corpus
from experiments.presets import PRESETS
from experiments.searching import search_all
from realm.index.exact import Exact
from realm.index.scann import Scann
from realm.text.masks import RandomSpan
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
    assert [line.split()[0] for line in lines] == ["tiny", "sample", "facts", "base", "squad_open", "tiny_open"]
    assert "2 cores" in lines[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["train"], 2, "no verb 'train': wanted one of data, pretrain, evaluate, report"),
        (["pretrain", "huge"], 2, "no preset 'huge': wanted one of tiny, sample, facts, base"),
        (["data", "build"], 2, None),
        (["evaluate"], 2, "wanted `realm evaluate RUN`"),
        (["evaluate", "/nowhere"], 1, "/nowhere is no run folder"),
        (["report", "/nowhere"], 1, "/nowhere is no run folder"),
        (["pretrain", "tiny", "--resume", "--overwrite"], 2, "exclude each other"),
        (["pretrain", "tiny", "--corpus.documents", "/no/such.jsonl", "--out", "{tmp}/run"], 1, "/no/such.jsonl"),
        (["report", "/nowhere", "--examples", "0"], 2, "found --examples 0, wanted at least 1"),
        (["evaluate", "/nowhere", "--max-questions", "0"], 2, "found --max-questions 0, wanted at least 1"),
        (["evaluate", "/nowhere", "--max-questions", "-5"], 2, "found --max-questions -5, wanted at least 1"),
        (["pretrain", "tiny", "--max-questions", "0"], 2, "found --max-questions 0, wanted at least 1"),
        (["pretrain", "tiny", "--out", "/dev/null/run"], 1, "Not a directory"),
        (["pretrain", "tiny", "--json", "/dev/null/run/a.json"], 1, "/dev/null/run"),
        (["evaluate", "/nowhere", "--json", "{tmp}"], 2, "is a folder"),
        (["compare", "a", "b", "--field", "log_p_span"], 2, "found --field log_p_span, wanted em, f1, gold@K or"),
        (["compare", "a", "b", "--field", "gold@0"], 2, "found --field gold@0, wanted em"),
        (["compare", "a"], 2, "wanted `realm compare FIRST SECOND"),
        (["pretrain", "{tmp}/none.json"], 1, "none.json: no such file"),
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
    assert summary["recall_setting"].keys() == summary["recall_intervals"].keys() == summary["recall"].keys()
    corpus = {"corpus": summary["corpus"]["fingerprint"], "rows": summary["corpus"]["rows"]}
    for name, step in (("untrained", None), ("ict", 8), ("realm", 16), ("bm25", None)):
        setting, interval = summary["recall_setting"][name], summary["recall_intervals"][name]["gold@5"]
        assert setting == setting | corpus | {"dataset": "sample:questions", "split": "50 questions", "k": 100}
        assert setting["index"] == ("bm25" if name == "bm25" else "exact") and len(setting["fingerprint"]) == 64
        assert (setting["generation_step"], setting["index_age"]) == (step, None if step is None else 0)
        assert interval["low"] <= interval["mean"] <= interval["high"]
        assert interval["mean"] == pytest.approx(summary["recall"][name]["5"])
        assert 1 < interval["units"] < 50  # articles, not questions
    words = summary["masked_words_setting"]
    assert words == words | corpus | {"dataset": "corpus", "index": "exact", "generation_step": 16, "index_age": 0}
    assert words["k"] == read_preset(job / "preset.json").realm.objective.candidates - 1
    assert f"{summary['masked_words']['examples']:.0f} held-out" in words["split"]
    counts = summary["question_counts"]
    assert counts["asked"] == 50 and counts["document_not_in_corpus"] > 0
    assert summary["question_warnings"][0].startswith(f"{counts['document_not_in_corpus']:,} of 19,410 questions")
    table = json.loads((job.parent / "recall.json").read_text())
    assert [row["name"] for row in table["rows"]] == ["untrained", "ict", "realm", "bm25"]


def test_a_job_that_is_there_needs_resume_or_overwrite(job, capsys):
    assert main(["pretrain", "tiny", "--out", str(job)]) == 1
    assert "--resume" in capsys.readouterr().err
    assert main(["pretrain", "tiny", "--out", str(job), "--resume", "--realm.training.steps", "99"]) == 1
    assert "differs" in capsys.readouterr().err


def test_evaluate_puts_bm25_beside_the_run_and_repeats_the_numbers_of_the_summary(job, capsys):
    out = job.parent / "evaluate.json"
    assert main(["evaluate", str(job), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    names = [row["name"] for row in found["recall"]["rows"]]
    assert names == ["realm", "bm25"]
    setting = found["recall"]["rows"][0]["setting"]
    assert setting["index"] == "exact" and setting["generation_step"] == 16 and setting["index_age"] == 0
    assert setting["split"] == "50 questions"  # the preset's own sample, as in the summary
    summary = json.loads((job / "summary.json").read_text())["recall"]
    for row in found["recall"]["rows"]:
        expected = {f"gold@{k}": value for k, value in summary[row["name"]].items()}
        assert {name: row["values"][name]["value"] for name in expected} == expected
    assert found["masked_words"]["loss"] > 0
    assert "with retrieval" in capsys.readouterr().out


def test_recall_of_two_stages_and_of_two_runs_is_compared_question_by_question(job, tmp_path, capsys):
    summary, out = json.loads((job / "summary.json").read_text())["recall"], tmp_path / "found.json"
    assert main(["compare", str(job / "ict"), str(job / "realm"), "--field", "gold@5", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["difference"]["mean"] == pytest.approx(summary["realm"]["5"] - summary["ict"]["5"])
    assert found["better"] + found["worse"] + found["equal"] == 50 and found["difference"]["units"] < 50
    assert (found["field"], found["mode"], found["dataset"]) == ("gold@5", "recall", "sample:questions")
    assert (found["first"]["row"], found["second"]["row"]) == ("ict", "realm") and len(found["fingerprint"]) == 64
    assert found["second"]["step"] == 16 and found["second"]["index"] == "exact" and found["second"]["retrieved"] == 100
    dumps = tmp_path / "dumps"
    assert main(["evaluate", str(job), "--dumps", str(dumps)]) == 0
    assert sorted(path.name for path in dumps.iterdir()) == ["recall-bm25.jsonl", "recall-realm.jsonl"]
    for field in ("gold@20", "answer@1"):
        assert main(["compare", str(job), str(dumps), "--field", field, "--json", str(out)]) == 0
        assert json.loads(out.read_text())["equal"] == 50
    capsys.readouterr()
    assert main(["compare", str(job), str(job)]) == 2
    assert "found no dump with em, wanted a dump of answers" in capsys.readouterr().err
    shutil.copytree(job, tmp_path / "older", ignore=shutil.ignore_patterns("recall-*", "corpus", "generations"))
    assert main(["compare", str(job), str(tmp_path / "older"), "--field", "gold@5"]) == 2
    assert "`realm evaluate RUN --dumps DIR` writes them" in capsys.readouterr().err


def test_evaluate_refuses_what_would_change_nothing_before_any_work(job, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.show.block_vectors", lambda *_: pytest.fail("embedded"))
    dumps = tmp_path / "dumps"
    assert main(["evaluate", str(job), "--mode", "squad", "--dumps", str(dumps)]) == 2
    assert "found --mode, but stage realm of" in capsys.readouterr().err and not dumps.exists()
    assert main(["evaluate", str(job / "mlm"), "--dumps", str(dumps)]) == 2
    assert "is asked nothing" in capsys.readouterr().err and not dumps.exists()


@pytest.mark.parametrize("help_asked", ["-h", "--help"])
def test_compare_tells_of_itself(help_asked, capsys):
    with pytest.raises(SystemExit) as left:
        main(["compare", help_asked])
    said = capsys.readouterr().out
    assert left.value.code == 0 and "realm compare FIRST SECOND" in said and "gold@K" in said


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


def test_a_rate_out_of_range_names_the_field_and_what_was_wanted(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "tiny", "--realm.training.optimizer.retriever.peak", "-1"])
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "realm.training.optimizer.retriever: found peak -1.0, wanted a finite number above 0" in said


def test_help_says_the_keys_of_the_table(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "tiny", "--help"])
    said = capsys.readouterr().out
    assert "measure.py" not in said and all(f"`{key}`" in said for key in ("title", "rows", "values", "hits"))


def test_a_reader_that_leaves_early_is_no_error():
    code = "import sys; from experiments.cli import main; sys.exit(main(['pretrain', 'tiny', '--help']))"
    command = f'{sys.executable} -c "{code}" | head -n 1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert "usage" in done.stdout and done.stderr == ""


def written(folder, change):
    """A preset file: tiny's with a change, or a text in its place."""
    record, path = to_json(PRESETS["tiny"]()), folder / "mine.json"
    if callable(change):
        change(record)
    path.write_text(json.dumps(record) if callable(change) else change)
    return str(path)


def test_a_preset_file_changes_index_masking_and_stages_and_its_fields_are_options(tmp_path, monkeypatch):
    def change(record):
        record["realm"]["refresh"]["index"] = {"type": "Scann", "leaves": 7}
        record["realm"]["objective"]["masking"] = {"type": "RandomSpan"}
        record["mlm"], record["realm"]["warm_start"] = None, {"retriever": "ict"}

    path, ran = written(tmp_path, change), []
    assert "mine.json" in chosen_preset(path)[2]
    monkeypatch.setattr("experiments.pipeline.pretrain", lambda *given: ran.append(given))
    assert main(["pretrain", path, "--realm.training.steps", "3", "--realm.objective.masking.max-tokens", "4"]) == 0
    preset, out, existing, _ = ran[0]
    assert str(out) == "runs/mine" and existing == "refuse" and list(preset.stages()) == ["ict", "realm"]
    assert preset.realm.refresh.index == Scann(leaves=7) and preset.realm.objective.masking == RandomSpan(max_tokens=4)
    assert preset.realm.training.steps == 3 and preset.corpus == PRESETS["tiny"]().corpus


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["realm"]["training"].update(step=3), "extra fields found (step) @ $.realm.training"),
        (lambda r: r["realm"]["refresh"].update(index={"type": "Scan"}), "unknown type 'Scan' @ $.realm.refresh.index"),
        (lambda r: r["realm"]["refresh"].update(schedule="often"), "found refresh schedule 'often'"),
        (lambda r: r.pop("corpus"), "missing field or unknown type 'corpus'"),
        (lambda r: r["ict"]["training"]["optimizer"].update(clip=0), "found clip 0"),
        ('{"corpus": ', "is no JSON"),
        ("[1]", "found list, wanted an object"),
    ],
)
def test_a_preset_file_with_a_mistake_names_the_field(tmp_path, capsys, change, said):
    path = written(tmp_path, change)
    assert main(["pretrain", path]) == 1
    error = capsys.readouterr().err
    assert path in error and said in error and len(error.splitlines()) == 1


def test_the_last_stage_with_a_checkpoint_is_taken(job, tmp_path, capsys):
    copy = tmp_path / "tiny"
    shutil.copytree(job, copy)
    assert open_run(copy).name == "realm"
    for whole in (copy / "realm" / "checkpoints").glob("*"):
        whole.rename(whole.with_name(whole.name + ".orbax-checkpoint-tmp"))
    assert open_run(copy).name == "ict"
    assert main(["report", str(copy / "realm")]) == 1
    assert "realm has no checkpoint yet" in capsys.readouterr().err
    for stage in ("ict", "mlm"):
        shutil.rmtree(copy / stage / "checkpoints")
    assert main(["evaluate", str(copy)]) == 1
    assert "no stage with a checkpoint" in capsys.readouterr().err


def test_a_corpus_that_holds_nothing_out_gives_a_reason_instead_of_a_loss(job, tmp_path, capsys):
    copy, out = tmp_path / "tiny", tmp_path / "found.json"
    shutil.copytree(job, copy, ignore=shutil.ignore_patterns("corpus", "generations"))
    preset = read_preset(copy / "preset.json")
    preset = dataclasses.replace(preset, corpus=dataclasses.replace(preset.corpus, holdout=0.0))
    table = open_corpus(preset, copy)
    assert main(["evaluate", str(copy), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["masked_words"] is None and "holdout" in found["masked_words_reason"] and found["recall"]["rows"]
    assert "not measured" in capsys.readouterr().out
    preset = dataclasses.replace(preset, questions=None)
    measurement = Measurement(preset, table, copy, {"realm": copy / "realm"})
    summary = measurement.summary()
    assert summary["masked_words"] is None and "holdout" in summary["masked_words_reason"]
    measurement.show(summary | {"minutes": 1.0})
    assert "not measured" in capsys.readouterr().out


def test_questions_are_searched_in_batches_with_the_same_hits():
    vectors = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    exact, sizes = Exact().build([vectors]), []
    counting = SimpleNamespace(search=lambda q_BE, k: sizes.append(len(q_BE)) or exact.search(q_BE, k))
    found = search_all(counting, vectors[:25], 3, size=10)
    assert sizes == [10, 10, 5]
    np.testing.assert_array_equal(found.id_BK, exact.search(vectors[:25], 3).id_BK)
