"""Intervals against theory and a plain bootstrap; comparisons against the exact test."""

from math import comb

import numpy as np
import pytest

from realm.evaluation.bootstrap import BootstrapError, compare, interval


def plain_bootstrap(value_Q, seed=1, resamples=20_000):
    rng = np.random.default_rng(seed)
    mean = value_Q[rng.integers(0, len(value_Q), (resamples, len(value_Q)))].mean(axis=1)
    return np.quantile(mean, [0.025, 0.975])


@pytest.mark.parametrize("values", [np.arange(200) % 3 == 0, np.random.default_rng(0).random(120)])
def test_the_interval_is_that_of_a_plain_bootstrap(values):
    found = interval(values)
    assert found.mean == values.mean() and (found.questions, found.units) == (len(values), len(values))
    np.testing.assert_allclose([found.low, found.high], plain_bootstrap(values.astype(float)), atol=0.006)


def test_it_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(3)
    inside = [
        found.low <= 0.3 <= found.high
        for found in (interval(rng.random(200) < 0.3, resamples=400, seed=n) for n in range(300))
    ]
    assert 0.90 <= np.mean(inside) <= 0.98


def test_groups_that_stand_and_fall_together_widen_it():
    value_Q = np.repeat(np.random.default_rng(5).random(40) < 0.5, 25)
    group_Q = np.repeat([f"article {n}" for n in range(40)], 25)
    alone, grouped = interval(value_Q), interval(value_Q, group_Q=group_Q)
    assert grouped.units == 40 and grouped.mean == alone.mean
    # 40 units instead of 1,000: the square root of 25 times as wide
    assert 4.5 < (grouped.high - grouped.low) / (alone.high - alone.low) < 5.5


def test_groups_of_unequal_size_are_resampled_whole():
    value_Q, group_Q = [1, 1, 1, 0], ["a", "a", "a", "b"]
    found = interval(value_Q, group_Q=group_Q, resamples=2000)
    # two draws of two groups: aa is 1, ab is 3/4, bb is 0
    assert (found.low, found.high, found.mean) == (0.0, 1.0, 0.75)
    assert interval(value_Q, group_Q=group_Q, level=0.4, resamples=2000).low == 0.75


def test_the_same_seed_gives_the_same_numbers():
    values = np.random.default_rng(2).random(50)
    assert interval(values, seed=4) == interval(values, seed=4) != interval(values, seed=5)
    assert compare(values, values**2, seed=4) == compare(values, values**2, seed=4)


def test_a_sure_thing_has_no_width():
    found = interval([1] * 30)
    assert (found.mean, found.low, found.high) == (1, 1, 1) and str(found) == "100.0 [100.0, 100.0]"
    assert found.to_json()["level"] == 0.95


@pytest.mark.parametrize(("better", "worse"), [(14, 4), (9, 8), (30, 8)])
def test_the_p_value_is_mcnemars(better, worse):
    """For right and wrong answers flipping signs is a fair coin for each question that changed."""
    first_Q = np.r_[np.zeros(better), np.ones(worse), np.ones(50)]
    second_Q = np.r_[np.ones(better), np.zeros(worse), np.ones(50)]
    changed = better + worse
    exact = min(1.0, 2 * sum(comb(changed, n) for n in range(worse + 1)) / 2**changed)
    found = compare(first_Q, second_Q, resamples=40_000)
    assert found.p_value == pytest.approx(exact, abs=0.008)
    assert (found.better, found.worse, found.equal) == (better, worse, 50)
    assert found.difference.mean == pytest.approx((better - worse) / len(first_Q))


def test_pairing_sees_what_two_intervals_do_not():
    rng = np.random.default_rng(0)
    first_Q = rng.random(2000)
    second_Q = first_Q + 0.01 + 0.02 * rng.standard_normal(2000)
    assert interval(second_Q).low < interval(first_Q).high
    found = compare(first_Q, second_Q)
    assert found.difference.low > 0 and found.p_value == 1 / 10_001


def test_equal_runs_do_not_differ():
    found = compare([1, 0, 1], [1, 0, 1])
    assert (found.p_value, found.difference.low, found.difference.high, found.equal) == (1.0, 0.0, 0.0, 3)


def test_whole_groups_are_flipped():
    first_Q, second_Q = np.zeros(40), np.ones(40)
    assert compare(first_Q, second_Q).p_value < 0.001
    # two groups: four ways to flip, two of them as far from zero as what was seen
    assert compare(first_Q, second_Q, group_Q=[0] * 20 + [1] * 20).p_value == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: interval([]), r"shape \(0,\)"),
        (lambda: interval([[1.0]]), r"shape \(1, 1\)"),
        (lambda: interval([1.0, float("nan")]), "finite"),
        (lambda: interval(["x"]), "are not numbers"),
        (lambda: interval([1.0, 2.0], group_Q=["a"]), "1 groups for 2 values"),
        (lambda: interval([1.0], level=1.0), "level 1.0"),
        (lambda: interval([1.0], resamples=0), "0 resamples"),
        (lambda: compare([1.0], [1.0, 2.0]), "1 and 2 values"),
    ],
)
def test_errors_say_what_was_wanted(call, message):
    with pytest.raises(BootstrapError, match=message):
        call()
