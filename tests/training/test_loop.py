"""The loop on a real objective: resume, devices, generations and their age, signals, non-finite steps, the watch."""

import dataclasses
import json
import os
import shutil
import signal
import time

import jax
import numpy as np
import pytest

from realm.objectives.mlm import Mlm
from realm.protocols import Hits
from realm.retrieve import Retrieval, choose_candidates
from realm.training.diagnosis import TrainingDiverged
from realm.training.feed import collate
from realm.training.lookup import IndexTooOld, Lookup
from realm.training.metrics import read_metrics
from realm.training.optimizer import Optimizer, Rate
from realm.training.run_folder import RunFolderError
from realm.training.watch import RetrieverCollapse, Watch
from tests.training.jobs import build_table, flip_one_bit, objective, run_job, same_bits, training


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


@pytest.fixture(scope="module")
def whole(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run_job(table, folder)


def steps_of(folder):
    return [r for r in read_metrics(folder / "metrics.jsonl") if "event" not in r]


class StopAt(list):
    """A report that asks the process to stop, as a scheduler would, when it hears a text."""

    def __init__(self, text, number=signal.SIGTERM):
        super().__init__()
        self.text, self.number = text, number

    def append(self, said):
        super().append(said)
        if self.text in said:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("text", ["step 2/", "step 6/"])
def test_stopped_by_a_signal_and_resumed_is_bit_identical(table, tmp_path, ahead, text):
    # step 2 is no checkpoint step, and between steps 2 and 6 a generation changes
    settings = training(retrieve_ahead=ahead)
    straight = run_job(table, tmp_path / "straight", training=settings)
    said = StopAt(text)
    first = run_job(table, tmp_path / "cut", training=settings, report=said)
    assert first.stopped == signal.SIGTERM and first.step < 8 and "--resume" in said[-1]
    second = run_job(table, tmp_path / "cut", training=settings, existing="resume")
    assert second.step == 8 and same_bits(straight.params, second.params)
    assert [r["step"] for r in steps_of(tmp_path / "cut")] == sorted({2, 4, 6, 8, first.step})
    generations = [
        [(r["event"], r.get("generation"), r.get("step")) for r in read_metrics(tmp_path / run / "generations.jsonl")]
        for run in ("straight", "cut")
    ]
    assert generations[0] == generations[1]


def test_the_steps_before_a_stop_are_logged_with_their_weights_and_seconds(table, tmp_path):
    settings = training(steps=12, log_every=4, checkpoint_every=5)
    run_job(table, tmp_path / "straight", training=settings)
    # The checkpoint of step 5 is told of with step 6 still to come: the signal is heard at the boundary after it.
    first = run_job(table, tmp_path / "cut", training=settings, report=StopAt("checkpoint at step 5"))
    assert first.step == 6 and steps_of(tmp_path / "cut")[-1]["step"] == 6
    before = steps_of(tmp_path / "cut")
    run_job(table, tmp_path / "cut", training=settings, existing="resume")
    cut, straight = steps_of(tmp_path / "cut"), steps_of(tmp_path / "straight")
    assert [r["step"] for r in cut] == [4, 6, 8, 12] and cut[:2] == before
    assert all(early["seconds"] < late["seconds"] for early, late in zip(cut, cut[1:], strict=False))
    assert cut[1]["weight"] + cut[2]["weight"] == pytest.approx(2 * straight[1]["weight"])
    weighed = [sum(r["loss"] * r["weight"] for r in part) for part in (cut[1:3], straight[1:2] * 2)]
    assert weighed[0] == pytest.approx(weighed[1], rel=1e-6)
    assert cut[3]["loss"] == straight[2]["loss"]


def test_an_index_too_old_ends_the_run_with_all_its_steps_logged(table, tmp_path, monkeypatch):
    refresh = Lookup.refresh

    def too_old(self, step, params, kept):
        if step == 6:
            raise IndexTooOld("too old")
        refresh(self, step, params, kept)

    monkeypatch.setattr(Lookup, "refresh", too_old)
    with pytest.raises(IndexTooOld):
        run_job(table, tmp_path / "run", training=training(log_every=4))
    assert [r["step"] for r in steps_of(tmp_path / "run")] == [4, 6]


def test_the_comparison_would_notice_one_bit_and_the_run_really_moves(table, whole):
    folder, outcome = whole
    assert not same_bits(outcome.params, flip_one_bit(outcome.params))
    start = objective().init(jax.random.key(0))
    assert not same_bits(start["retriever"], outcome.params["retriever"])
    assert not same_bits(start["joint"], outcome.params["joint"])
    manifests = [json.loads(p.read_text()) for p in sorted(folder.glob("generations/*/manifest.json"))]
    # generation 1 (step 3) comes before the retriever starts (step 4), generation 2 (step 6) after
    fingerprints = [m["encoder_fingerprint"] for m in manifests]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]


def test_ages_and_generations_are_logged_as_they_are(whole):
    folder, _ = whole
    ages = {r["step"]: (r["generation"], r["document_age"]) for r in steps_of(folder)}
    # batch 3 was asked for before the refresh at step 3
    assert ages == {2: (0, 1), 4: (0, 3), 6: (1, 2), 8: (2, 1)}
    assert all(r["query_age"] == 1 for r in steps_of(folder))  # asked one step ahead
    rates = [r["rate/retriever"] for r in steps_of(folder)]
    assert rates[:2] == [0.0, 0.0] and rates[2] > 0


def test_searching_with_the_generations_own_tower_makes_queries_as_old_as_documents(table, tmp_path):
    run_job(table, tmp_path / "run", training=training(query_tower="generation", retrieve_ahead=0))
    assert all(r["query_age"] == r["document_age"] for r in steps_of(tmp_path / "run"))


SAME = ("loss", "loss_null", "utility", "null_probability", "entropy", "weight", "own_block_hits", "grad_norm")


def test_the_first_index_counts_for_no_step(table, tmp_path, monkeypatch):
    refresh = Lookup.refresh

    def slow(self, step, params, kept):
        refresh(self, step, params, kept)
        if step == 0:
            time.sleep(1.5)

    monkeypatch.setattr(Lookup, "refresh", slow)
    run_job(table, tmp_path / "run", training=training(steps=2, log_every=2))
    (logged,) = steps_of(tmp_path / "run")
    assert logged["seconds"] - 2 * logged["seconds_per_step"] >= 1.5


def assert_same_metrics(one, other):
    for name in SAME:
        # The utility is what is left of two float32 losses, and keeps their rounding however small it is itself.
        spacing = 1e-6 * max(1.0, one["loss_null"]) if name == "utility" else 1e-6
        assert other[name] == pytest.approx(one[name], rel=1e-6, abs=spacing), name


@pytest.mark.parametrize("step", [0, 2, 5])
def test_a_step_on_eight_devices_has_the_metrics_of_one(table, tmp_path, step):
    # From one and the same state, at the start, before and after the retriever has moved; the restored checkpoint was
    # written by one device.
    every = training(checkpoint_every=1, keep_checkpoints=20, log_every=1, batch_size=16)
    if step:
        run_job(table, tmp_path / "1", training=every, report=StopAt(f"step {step}/"))
    reached = len(steps_of(tmp_path / "1"))
    records = {}
    for devices in (8, 1):
        folder = tmp_path / f"{devices}-on"
        if step:
            shutil.copytree(tmp_path / "1", folder)
        run_job(table, folder, existing="resume", training=dataclasses.replace(every, devices=devices))
        records[devices] = steps_of(folder)[reached]
    assert records[1]["step"] == records[8]["step"] > step
    assert_same_metrics(records[1], records[8])


def test_eight_devices_train_as_one_does(table, tmp_path):
    # A large eps keeps AdamW close to linear: with BERT's 1e-6 the retriever's gradient, rounding noise in so small a
    # job, becomes full-sized steps, and one and eight devices part ways at the first of them.
    optimizer = Optimizer(retriever=Rate(1e-3), joint=Rate(1e-3), eps=1.0)
    for n in (1, 8):
        settings = training(devices=n, steps=6, batch_size=16, optimizer=optimizer)
        run_job(table, tmp_path / str(n), training=settings)
    for one, eight in zip(steps_of(tmp_path / "1"), steps_of(tmp_path / "8"), strict=True):
        assert_same_metrics(one, eight)


def test_batches_padded_further_give_the_same_loss(table):
    chosen = objective()
    params = chosen.init(jax.random.key(1))
    unit = chosen.units(table)[3]
    losses = []
    for length, block in ((40, 64), (80, 128)):
        longer = dataclasses.replace(chosen, batch_lengths=(length,), block_lengths=(block,))
        batch = collate([longer.example(unit, np.random.default_rng(0), length)])
        retrieval = Retrieval(table, candidates=4, block_lengths=(block,))
        ids = np.array([[5, 6, 7, 8, 9]], np.int32)
        hits = Hits(np.zeros(ids.shape, np.float32), ids, np.ones(ids.shape, bool))
        packed = retrieval.pack(choose_candidates(hits, batch["own_B"], table.duplicate_N, 4))
        assert packed["block_token_UT"].shape[1] == block
        losses.append(float(longer.loss(params, batch | packed, None)[0]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_non_finite_loss_names_gradient_and_blocks_and_saves_nothing(table, tmp_path):
    chosen = objective()

    def poisoned():
        params = chosen.init(jax.random.key(0))
        params["joint"]["head"]["bias"] = params["joint"]["head"]["bias"].at[0].set(np.inf)
        return params

    with pytest.raises(TrainingDiverged, match=r"step 1: loss nan.*joint/.*squad-.*last good checkpoint is of step 0"):
        run_job(table, tmp_path / "run", init=poisoned)
    assert not list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))


def test_the_watch_warns_and_stops_when_it_is_told_to(table, tmp_path):
    loud = Watch(blocks=8, max_drop=-1.0)  # any recall is a fall below best + 1: the warning must come
    said = []
    run_job(table, tmp_path / "warned", training=training(watch=loud), report=said)
    warnings = [r for r in read_metrics(tmp_path / "warned" / "metrics.jsonl") if r.get("event") == "warning"]
    assert warnings and "optimizer.retriever" in warnings[0]["text"]
    assert any(s.startswith("WARNING") for s in said)
    with pytest.raises(RetrieverCollapse, match="recall@5"):
        run_job(table, tmp_path / "stopped", training=training(watch=dataclasses.replace(loud, stop=True)))


def test_an_objective_without_items_trains_without_an_index(table, tmp_path):
    mlm = Mlm(joint=objective().joint, batch_lengths=(64,))
    outcome = run_job(table, tmp_path / "mlm", objective=mlm, training=training(steps=2))
    assert outcome.step == 2 and not (tmp_path / "mlm" / "generations").exists()
    assert "generation" not in steps_of(tmp_path / "mlm")[-1]


def test_a_run_that_is_there_is_not_trained_over(table, whole):
    with pytest.raises(RunFolderError, match="--resume"):
        run_job(table, whole[0])


def test_a_finished_run_resumed_is_left_as_it_is(table, whole):
    folder, outcome = whole
    again = run_job(table, folder, existing="resume")
    assert again.step == 8 and not again.stopped and same_bits(again.params, outcome.params)


def test_re_ranking_gives_a_stale_index_the_candidates_of_the_fresh_towers(table, tmp_path):
    """With every block searched for, the current towers choose: what was found no longer depends on the index."""
    optimizer = Optimizer(retriever=Rate(3e-3, warmup=1), joint=Rate(1e-3))
    settings = training(steps=6, retrieve_ahead=0, log_every=1, optimizer=optimizer)

    def entropies(name, schedule, **changes):
        run_job(table, tmp_path / name, training=dataclasses.replace(settings, **changes), schedule=schedule)
        return [r["entropy"] for r in steps_of(tmp_path / name)]

    fresh = entropies("fresh", "every 1")
    np.testing.assert_allclose(entropies("re-ranked", "never", rerank=table.indexed), fresh, rtol=1e-4)
    assert not np.allclose(entropies("stale", "never"), fresh, rtol=1e-3)
