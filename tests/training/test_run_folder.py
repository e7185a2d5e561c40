"""Run folders: nothing is overwritten by accident, checkpoints come back whole, metrics keep one line a step."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.training.checkpoint import CheckpointMissing, Checkpoints, restore_params
from realm.training.metrics import MetricsLog, read_metrics
from realm.training.optimizer import Optimizer
from realm.training.run_folder import (
    RunFolder,
    RunFolderError,
    changed_fields,
    differences,
    empty_folder,
    read_json,
    write_json,
)
from realm.training.step import init_state
from tests.training.fakes import Linear


def started(path):
    run = RunFolder(path)
    run.write_config({"a": {"b": 1}})
    return run


def test_an_existing_run_needs_resume_or_overwrite(tmp_path):
    started(tmp_path / "run")
    (tmp_path / "run" / "kept").write_text("x")
    with pytest.raises(RunFolderError, match="--resume.*--overwrite"):
        RunFolder(tmp_path / "run")
    assert (RunFolder(tmp_path / "run", "resume").path / "kept").exists()
    assert not (RunFolder(tmp_path / "run", "overwrite").path / "kept").exists()


@pytest.mark.parametrize("existing", ["refuse", "resume", "overwrite"])
def test_a_folder_that_is_no_run_is_left_alone(tmp_path, existing):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunFolderError):
        RunFolder(tmp_path, existing)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_resuming_with_another_config_names_the_field(tmp_path):
    started(tmp_path / "run")
    with pytest.raises(RunFolderError, match="a.b"):
        RunFolder(tmp_path / "run", "resume").write_config({"a": {"b": 2}})
    RunFolder(tmp_path / "run", "resume").write_config({"a": {"b": 1}})
    assert differences({"a": 1, "b": [1]}, {"a": 1, "b": [2], "c": 0}) == {"b", "c"}


def test_config_records_what_bit_identity_depends_on(tmp_path):
    environment = json.loads((started(tmp_path / "run").path / "config.json").read_text())["environment"]
    assert {"commit", "versions", "processor", "cpus", "devices"} <= environment.keys()


def state(step):
    objective, optimizer = Linear(), Optimizer()
    made = init_state(objective, optimizer, objective.init(jax.random.key(step)), 10)
    return made | {"step": jnp.asarray(step, jnp.int32)}


def test_checkpoint_brings_back_state_generation_and_pending_candidates(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c", keep=2)
    pending = {
        "id_BK": np.array([[-1, 3]], np.int32),
        "valid_BK": np.array([[True, False]]),
        "own_hit_B": np.array([True]),
    }
    for step in (2, 4, 6):
        checkpoints.save(state(step), step // 2, pending if step == 6 else None)
    assert checkpoints.steps() == [4, 6] and checkpoints.generations() == {2, 3}
    checkpoints.close()
    restored = Checkpoints(tmp_path / "c").restore(state(0))
    jax.tree.map(np.testing.assert_array_equal, restored.state, state(6))
    assert restored.generation == 3
    for name, value in pending.items():
        np.testing.assert_array_equal(restored.pending[name], value)
        assert restored.pending[name].dtype == value.dtype
    params, step = restore_params(tmp_path / "c")
    assert step == 6
    jax.tree.map(np.testing.assert_array_equal, params, state(6)["params"])


def test_a_missing_checkpoint_says_what_there_is(tmp_path):
    with pytest.raises(CheckpointMissing, match="found steps none"):
        restore_params(tmp_path / "nothing")
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save(state(2), None, None)
    with pytest.raises(CheckpointMissing, match=r"step 3, found steps \[2\]"):
        checkpoints.restore(state(0), 3)


def log_steps(folder, start, stop, torn=False):
    said = []
    log = MetricsLog(folder, start=start, every=2, stop=stop, report=said.append)
    for step in range(start + 1, stop + 1):
        log.add(
            step, {"loss": np.float32(step), "weight": np.float32(1 + step % 2), "finite": True}, {"generation": None}
        )
    log.close()
    if torn:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"step": 7, "lo')
    return said


def test_metrics_average_by_weight_and_lose_what_a_resume_repeats(tmp_path):
    said = log_steps(tmp_path, 0, 6, torn=True)
    assert len(said) == 3 and "step 2/6" in said[0]
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl")] == [2, 4, 6]
    log_steps(tmp_path, 4, 8)
    records = read_metrics(tmp_path / "metrics.jsonl")
    assert [r["step"] for r in records] == [2, 4, 6, 8]
    assert records[0]["loss"] == pytest.approx((1 * 2 + 2 * 1) / 3)
    assert records[-1]["seconds"] >= records[1]["seconds"]
    assert list(tmp_path.glob("tensorboard/events*"))


def test_a_run_that_stops_between_logged_steps_loses_neither_their_metrics_nor_their_seconds(tmp_path):
    def log_on(start, last):
        log = MetricsLog(tmp_path, start=start, every=4, stop=12, report=len)
        for step in range(start + 1, last + 1):
            log.add(step, {"loss": np.float32(step), "weight": np.float32(1 + step % 2)}, {"rate": step})
            if step == last:
                log.stopped()
                log.stopped()  # what is written is not written again
        log.close()
        return [r for r in read_metrics(tmp_path / "metrics.jsonl") if "event" not in r]

    _, cut = log_on(0, 6)
    assert (cut["step"], cut["rate"], cut["weight"]) == (6, 6, 1.5)
    assert cut["loss"] == pytest.approx((5 * 2 + 6 * 1) / 3)
    records = log_on(6, 12)
    assert [r["step"] for r in records] == [4, 6, 8, 12]  # 8 and 12 are logged steps
    assert records[1] == cut
    seconds = [r["seconds"] for r in records]
    assert seconds == sorted(seconds)
    spans = np.diff([0] + [r["step"] for r in records])
    assert sum(r["weight"] * n for r, n in zip(records, spans, strict=True)) == 6 * 1 + 6 * 2  # each step once
    assert [r["step"] for r in log_on(5, 6)] == [4, 6]  # from before the stop: what comes after it is dropped


def test_what_is_written_whole_is_on_the_disk_before_it_takes_the_place_of_the_old(tmp_path, monkeypatch):
    log_steps(tmp_path, 0, 4)
    earlier = (tmp_path / "metrics.jsonl").read_text()
    order, replace = [], os.replace

    def killed(aside, path):
        order.append("rename")
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", lambda number: order.append("flush"))
    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        MetricsLog(tmp_path, start=2, every=2, stop=8, report=print)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "a.json", {"a": 1})
    assert order == ["flush", "rename"] * 2
    assert (tmp_path / "metrics.jsonl").read_text() == earlier and not (tmp_path / "a.json").exists()
    monkeypatch.setattr("os.replace", replace)
    write_json(tmp_path / "a.json", {"a": 1})
    assert read_json(tmp_path / "a.json") == {"a": 1} and len(order) == 5


def test_emptying_a_folder_keeps_the_lock_file_and_takes_the_name_card_last(tmp_path, monkeypatch):
    run = started(tmp_path / "run").path
    for name in ("a", "z", ".lock"):
        (run / name).write_text(name)
    moved, rename = [], os.rename
    monkeypatch.setattr("os.rename", lambda old, new: moved.append(old.name) or rename(old, new))
    held = (run / ".lock").stat().st_ino
    empty_folder(run, keep=".lock", last="config.json")
    assert moved == ["a", "z", "config.json"]
    assert [p.name for p in run.iterdir()] == [".lock"] and (run / ".lock").stat().st_ino == held


def test_changed_fields_are_sorted_and_spare_the_free_ones_at_any_depth():
    old = {"training": {"steps": 1, "threads": 1}, "b": 1, "watch": {"stop": True}}
    new = {"training": {"steps": 2, "threads": 4}, "b": 2, "watch": {"stop": False}}
    assert changed_fields(old, new) == ["b", "training.steps"]
    assert changed_fields(old, new, ("steps", "b")) == ["training.threads", "watch.stop"]
