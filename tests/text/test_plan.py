"""Batch n as a function of (seed, n): coverage, lengths, independence, resume, and the share of each process."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.plan import BatchPlan, PlanError, batches, example_rng

LENGTHS = (8, 16, 32)


@st.composite
def plans(draw):
    batch_size = draw(st.integers(1, 7))
    length_N = draw(st.lists(st.integers(1, 32), min_size=batch_size, max_size=60))
    return np.array(length_N), BatchPlan(
        np.array(length_N), batch_size=batch_size, lengths=LENGTHS, seed=draw(st.integers(0, 99))
    )


def epoch_of(plan, epoch):
    return [plan.batch(n) for n in range(epoch * plan.batches_per_epoch, (epoch + 1) * plan.batches_per_epoch)]


@settings(deadline=None, max_examples=50)
@given(plans(), st.integers(0, 3))
def test_epoch_uses_every_example_at_most_once(case, epoch):
    length_N, plan = case
    planned = epoch_of(plan, epoch)
    used = np.concatenate([batch.index_B for batch in planned])
    assert len(np.unique(used)) == len(used) > len(length_N) - plan.batch_size
    for batch in planned:
        assert batch.epoch == epoch and batch.index_B.dtype == np.int64 and len(batch.index_B) == plan.batch_size
        # the padded length is the smallest of the plan's that holds the whole batch
        assert batch.length == min(length for length in LENGTHS if length >= length_N[batch.index_B].max())


@settings(deadline=None, max_examples=50)
@given(plans(), st.lists(st.integers(0, 200), min_size=1, max_size=10))
def test_batch_does_not_depend_on_call_order(case, numbers):
    length_N, plan = case
    asked = {n: plan.batch(n) for n in numbers}
    fresh = BatchPlan(length_N, batch_size=plan.batch_size, lengths=LENGTHS, seed=plan.seed)
    for n in sorted(numbers):
        again = fresh.batch(n)
        np.testing.assert_array_equal(asked[n].index_B, again.index_B)
        assert asked[n][1:] == again[1:]


def test_remainders_move_up_and_padding_stays_low():
    length_N = np.array([5] * 10 + [12] * 10 + [30] * 10)
    planned = epoch_of(BatchPlan(length_N, batch_size=4, lengths=LENGTHS, seed=3), 0)
    # 10 = 2 batches of 4 and 2 that move up; 12 = 3 batches and none; 10 = 2 batches and 2 left out
    assert sorted(batch.length for batch in planned) == [8, 8, 16, 16, 16, 32, 32]


def test_seeds_and_epochs_differ_and_left_out_examples_get_their_turn():
    length_N = np.full(41, 5)
    orders = {}
    for seed in (0, 1):
        plan = BatchPlan(length_N, batch_size=4, lengths=LENGTHS, seed=seed)
        for epoch in range(30):
            orders[seed, epoch] = tuple(np.concatenate([batch.index_B for batch in epoch_of(plan, epoch)]))
    assert len(set(orders.values())) == 60
    left_out = {next(iter(set(range(41)) - set(order))) for order in orders.values()}
    assert len(left_out) > 20  # each of the 41 is left out of 1 epoch in 41


def test_batches_of_all_lengths_are_mixed():
    plan = BatchPlan(np.repeat([5, 12, 30], 400), batch_size=4, lengths=LENGTHS, seed=0)
    third = plan.batches_per_epoch // 3
    for part in range(3):
        assert {plan.batch(n).length for n in range(part * third, (part + 1) * third)} == set(LENGTHS)


@pytest.mark.parametrize(
    ("length_N", "asked", "says"),
    [
        ([1, 2, 3], dict(batch_size=4, lengths=LENGTHS, seed=0), "found 3 examples, wanted at least one batch of 4"),
        ([], dict(batch_size=1, lengths=LENGTHS, seed=0), "found 0 examples"),
        ([4, 33], dict(batch_size=1, lengths=LENGTHS, seed=0), "example 1 of length 33, wanted at most 32"),
        ([4], dict(batch_size=0, lengths=LENGTHS, seed=0), "batch_size 0"),
        ([4], dict(batch_size=1, lengths=LENGTHS, seed=-1), "seed -1"),
        ([4], dict(batch_size=1, lengths=(), seed=0), "ascending"),
        ([4], dict(batch_size=1, lengths=(16, 8), seed=0), "ascending"),
    ],
)
def test_errors_name_what_was_found(length_N, asked, says):
    with pytest.raises(PlanError, match=says):
        BatchPlan(np.array(length_N, int), **asked)


def test_negative_batch_number():
    with pytest.raises(PlanError, match="-1"):
        BatchPlan(np.array([4]), batch_size=1, lengths=LENGTHS, seed=0).batch(-1)


def a_plan(batch_size=6):
    return BatchPlan(np.arange(50) % 30 + 1, batch_size=batch_size, lengths=LENGTHS, seed=7)


def make(batch, row):
    return {"index_B": batch.index_B[row], "length": batch.length, "epoch": batch.epoch}


def same(left, right):
    return all(np.array_equal(left[key], right[key]) for key in left.keys() | right.keys())


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_stream_is_the_plan_and_resumes_exactly(threads):
    plan, stop = a_plan(), 30
    whole = list(batches(plan, make, start=0, stop=stop, threads=threads))
    assert len(whole) == stop
    for n, batch in enumerate(whole):
        assert same(batch, make(plan.batch(n), np.arange(6)))
    for start in (1, 7, 8, 9, 29, 30):  # an epoch has 8 batches
        rest = list(batches(a_plan(), make, start=start, stop=stop, threads=threads))
        assert len(rest) == stop - start and all(map(same, rest, whole[start:]))


def test_processes_share_the_global_batch():
    plan, shares = (
        a_plan(),
        [
            list(batches(a_plan(), make, start=3, stop=20, process_index=process, process_count=3))
            for process in range(3)
        ],
    )
    for n, parts in enumerate(zip(*shares, strict=True), start=3):
        np.testing.assert_array_equal(np.concatenate([part["index_B"] for part in parts]), plan.batch(n).index_B)
        assert {part["length"] for part in parts} == {plan.batch(n).length}


def grain_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("grain")]


def test_prints_nothing_and_leaves_no_thread(capfd):
    stream = batches(a_plan(), make, start=0, stop=1000, threads=2)
    for _ in range(3):
        next(stream)
    stream.close()  # stopping early
    list(batches(a_plan(), make, start=0, stop=5, threads=2))  # to the end
    for thread in grain_threads():
        thread.join(timeout=10)
    assert grain_threads() == []
    assert capfd.readouterr() == ("", "")


def test_error_in_make_comes_out():
    def broken(batch, row):
        raise KeyError("the seventh thing")

    with pytest.raises(KeyError, match="the seventh thing"):
        list(batches(a_plan(), broken, start=0, stop=5))


@pytest.mark.parametrize(
    "asked",
    [
        dict(start=-1, stop=3),
        dict(start=4, stop=3),
        dict(start=0, stop=3, threads=-1),
        dict(start=0, stop=3, process_count=4),
        dict(start=0, stop=3, process_index=2, process_count=2),
    ],
)
def test_impossible_streams_are_refused_at_once(asked):
    with pytest.raises(PlanError):
        batches(a_plan(), make, **asked)


def test_example_rng_is_a_function_of_seed_epoch_and_index():
    keys = [(seed, epoch, index) for seed in range(3) for epoch in range(3) for index in range(5)]
    draws = {key: tuple(example_rng(*key).integers(0, 2**32, 4)) for key in keys}
    assert len(set(draws.values())) == len(keys)
    assert draws[1, 2, 3] == tuple(example_rng(1, 2, 3).integers(0, 2**32, 4))
