"""Sweeps: shared stages are trained once, differences are paired by seed, and each control takes one thing away."""

import json
from dataclasses import replace

import numpy as np
import pytest

from experiments.config import to_json
from experiments.facts_controls import COLUMNS, VARIANTS, measure
from experiments.facts_controls import sweep as facts_controls
from experiments.figure import draw
from experiments.pipeline import pretrain
from experiments.presets import facts
from experiments.sweep import RESULTS, Sweep, SweepError, rows_of, run_sweep, run_variant, seeded, table_of
from experiments.sweeps import SWEEPS
from realm.training.run_folder import differences

SMALL = {"mlm": 2, "ict": 2, "read": 2, "realm": 4}


def small_preset():
    """The facts preset with 300 blocks and a few steps."""
    preset = facts.preset()
    stages = {
        name: replace(
            stage,
            training=replace(
                stage.training, steps=SMALL[name], batch_size=16, checkpoint_every=2, log_every=1, devices=1
            ),
        )
        for name, stage in preset.stages().items()
    }
    corpus = replace(preset.corpus, vocabulary=None)
    wide = {name: _with_whole_vocabulary(stage) for name, stage in stages.items()}
    return replace(preset, corpus=corpus, facts=replace(preset.facts, blocks=300), **wide)


def _with_whole_vocabulary(stage):
    changed = {
        part: replace(
            getattr(stage.objective, part), bert=replace(getattr(stage.objective, part).bert, vocabulary=30522)
        )
        for part in ("retriever", "joint")
        if hasattr(stage.objective, part)
    }
    return replace(stage, objective=replace(stage.objective, **changed))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Two variants with one seed, run in this process."""
    chosen = {name: VARIANTS[name] for name in ("realm", "gradient stopped")}
    sweep = Sweep(small_preset(), chosen, measure, COLUMNS)
    out = tmp_path_factory.mktemp("sweep")
    for variant in chosen:
        run_variant(sweep, out, variant, 0)
    return sweep, out


def test_stages_that_a_variant_shares_are_trained_once(small):
    _, out = small
    assert {path.name for path in (out / "seed-0" / "realm").iterdir() if path.is_dir()} == set(SMALL)
    assert {path.name for path in (out / "seed-0" / "gradient stopped").iterdir() if path.is_dir()} == {"realm"}


def test_a_finished_run_is_left_alone_and_numbers_come_with_their_curve(small):
    sweep, out = small
    path = out / "seed-0" / "realm" / RESULTS
    before = path.stat().st_mtime_ns
    run_variant(sweep, out, "realm", 0)
    assert path.stat().st_mtime_ns == before
    found = json.loads(path.read_text())
    assert set(COLUMNS.values()) <= found.keys()
    assert [point["step"] for point in found["curve"]] == [2, 4]
    assert all(0 <= found[name] <= 100 for name in COLUMNS.values() if name != "utility")


def test_without_a_gradient_the_retriever_stays_what_it_was(small):
    _, out = small
    found = {name: json.loads((out / "seed-0" / name / RESULTS).read_text()) for name in ("realm", "gradient stopped")}
    stopped = [point["recall1"] for point in found["gradient stopped"]["curve"]]
    assert len(set(stopped)) == 1


def test_a_sweep_is_drawn_even_where_no_query_got_better(small, tmp_path, monkeypatch):
    sweep, out = small
    monkeypatch.setitem(SWEEPS, "small", lambda: sweep)
    draw("small", out, ("realm", "gradient stopped"), tmp_path / "small.png")
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SweepError, match="no results of 'ict continued'"):
        draw("small", out, ("ict continued",), tmp_path / "none.png")


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "realm"])
def test_each_control_changes_only_what_it_says(name):
    preset = facts.preset()
    changed = {path.partition(".")[0] for path in differences(to_json(preset), to_json(VARIANTS[name].change(preset)))}
    shared = set(VARIANTS[name].shares)
    assert not changed & shared, "a stage that is taken over must not be changed"
    assert changed or VARIANTS[name].continues
    assert changed <= {"mlm", "ict", "read", "realm"}


def test_means_errors_and_paired_differences_by_hand():
    sweep = Sweep(facts.preset(), {n: VARIANTS[n] for n in ("realm", "ict continued")}, measure, {"recall@1": "r"})
    runs = {"realm": [{"r": 80.0}, {"r": 90.0}, {"r": 85.0}], "ict continued": [{"r": 70.0}, {"r": 81.0}, {"r": 76.0}]}
    first, second = (row["values"]["r"] for row in rows_of(sweep, runs))
    assert first["mean"] == 85.0 and first["error"] == pytest.approx(5 / np.sqrt(3))
    assert second["difference_mean"] == pytest.approx(-28 / 3)
    assert second["difference_error"] == pytest.approx(np.std([-10, -9, -9], ddof=1) / np.sqrt(3))
    # a run without the number leaves its seed out of the difference, and one seed has no error
    runs["ict continued"] = [{"r": None}, {"r": 81.0}, {}]
    value = rows_of(sweep, runs)[1]["values"]["r"]
    assert value["mean"] == 81.0 and value["error"] is None and value["difference_mean"] == -9.0
    table = table_of(sweep, {"sweep": "x", "seeds": 3, "rows": rows_of(sweep, runs)})
    assert [column.header for column in table.columns] == ["variant", "recall@1", "recall@1, paired difference"]


def test_seeds_reach_every_stage():
    assert {stage.training.seed for stage in seeded(facts.preset(), 7).stages().values()} == {7}


def test_what_cannot_be_run_is_named(tmp_path):
    sweep = facts_controls()
    with pytest.raises(SweepError, match="'everything'.*wanted some of"):
        run_sweep(sweep, "facts-controls", tmp_path / "a", 1, 1, ("everything",))
    with pytest.raises(SweepError, match="0 seeds"):
        run_sweep(sweep, "facts-controls", tmp_path / "b", 0, 1)


def test_a_job_of_facts_alone_has_their_numbers_at_the_top(tmp_path, capsys):
    summary = pretrain(small_preset(), tmp_path / "facts", "refuse")
    assert json.loads((tmp_path / "facts" / "summary.json").read_text()) == summary
    names = {"recall1_before", "recall1_after", "accuracy_with", "accuracy_without", "utility"}
    assert all(summary[name] == summary["facts"][name] == summary["by_split"][name]["facts"] for name in names)
    assert [point["step"] for point in summary["utility_by_step"]] == [1, 2, 3, 4]
    assert "recall" not in summary and summary["masked_words"]["masked"] > 0 and summary["minutes"] > 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("bm25", "untrained", "ict", "realm", "facts@1"))
