"""Confidence intervals of a mean over questions, and the paired comparison of two runs (Efron and Tibshirani 1993).

The questions are a sample; had others been asked, the score would differ. The percentile bootstrap draws as many
questions with replacement and looks at the spread of their mean. Questions about one article stand and fall together,
so where `group_Q` names such groups, groups are drawn and not questions: intervals become as wide as they should be.

Two runs over the same questions are compared question by question: the interval of the difference, and a two-sided
sign-flip test (for right and wrong answers this is McNemar's test, simulated), which flips whole groups too.

Where few kinds of unit (group sum, group size) exist, they are drawn together as one multinomial count, which is the
same distribution at a fraction of the work: right and wrong answers are two kinds, however many questions there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

_CELLS = 2**22  # numbers drawn at once, so that memory stays bounded


class BootstrapError(ValueError):
    """Values that no interval can be given for."""


@dataclass(frozen=True)
class Interval:
    """A mean and where `level` of the resampled means lie. `units` were drawn: questions, or groups of them."""

    mean: float
    low: float
    high: float
    level: float
    questions: int
    units: int
    resamples: int
    seed: int

    def __str__(self) -> str:
        """In percent: "41.3 [39.7, 42.9]"."""
        return f"{100 * self.mean:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """The second run minus the first. p_value: two-sided sign-flip test; never below 1 / (resamples + 1)."""

    difference: Interval
    p_value: float
    better: int
    worse: int
    equal: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def interval(
    value_Q: Any,
    *,
    group_Q: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """The mean of value_Q (bool or numbers, one a question) with its percentile bootstrap interval.

    group_Q: what each question belongs to (its article, say). The same seed gives the same interval.
    Raises BootstrapError on no questions, values that are not finite numbers, groups of another length, a level
    outside (0, 1) or resamples < 1.
    """
    value_Q = _values(value_Q, "values")
    if not 0 < level < 1 or resamples < 1:
        raise BootstrapError(f"found level {level} and {resamples} resamples, wanted 0 < level < 1 and 1 or more")
    total_G, size_G = _units(value_Q, group_Q)
    mean_R = _resampled(total_G, size_G, resamples, np.random.default_rng(seed))
    low, high = np.quantile(mean_R, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value_Q.mean()), float(low), float(high), level, len(value_Q), len(total_G), resamples, seed)


def compare(
    first_Q: Any,
    second_Q: Any,
    *,
    group_Q: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """The second run against the first over the same questions in the same order; arguments as of `interval`.

    Raises BootstrapError as `interval` does, and when the runs differ in length.
    """
    first_Q, second_Q = _values(first_Q, "first values"), _values(second_Q, "second values")
    if len(first_Q) != len(second_Q):
        raise BootstrapError(f"found {len(first_Q)} and {len(second_Q)} values, wanted the same questions in both runs")
    change_Q = second_Q - first_Q
    difference = interval(change_Q, group_Q=group_Q, level=level, resamples=resamples, seed=seed)
    total_G, _ = _units(change_Q, group_Q)
    size_U, often_U = np.unique(np.abs(total_G[total_G != 0]), return_counts=True)
    reached = 0
    rng = np.random.default_rng(seed)
    # A hair below, or sums that are equal in theory are told apart by rounding.
    bar = abs(total_G.sum()) * (1 - 1e-12)
    for n in _chunks(resamples, len(size_U)):
        plus_RU = rng.binomial(often_U, 0.5, (n, len(size_U)))
        reached += int((np.abs((2 * plus_RU - often_U) @ size_U) >= bar).sum())
    return Comparison(
        difference,
        (reached + 1) / (resamples + 1),
        int((change_Q > 0).sum()),
        int((change_Q < 0).sum()),
        int((change_Q == 0).sum()),
    )


def _resampled(total_G: np.ndarray, size_G: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The mean of each resample: as many units as there are, drawn with replacement."""
    units = len(total_G)
    kind_UC, often_U = np.unique(np.stack([total_G, size_G], axis=1), axis=0, return_counts=True)
    mean = []
    if 8 * len(kind_UC) < units:
        for n in _chunks(resamples, len(kind_UC)):
            drawn_RU = rng.multinomial(units, often_U / units, n)
            mean.append((drawn_RU @ kind_UC[:, 0]) / (drawn_RU @ kind_UC[:, 1]))
    else:
        for n in _chunks(resamples, units):
            drawn_RG = rng.integers(0, units, (n, units))
            mean.append(total_G[drawn_RG].sum(axis=1) / size_G[drawn_RG].sum(axis=1))
    return np.concatenate(mean)


def _values(value_Q: Any, name: str) -> np.ndarray:
    try:
        value_Q = np.asarray(value_Q, np.float64)
    except (TypeError, ValueError) as problem:
        raise BootstrapError(
            f"found {name} that are not numbers ({problem}), wanted one number a question"
        ) from problem
    if value_Q.ndim != 1 or not len(value_Q) or not np.isfinite(value_Q).all():
        raise BootstrapError(
            f"found {name} of shape {value_Q.shape}, wanted one finite number for each of 1+ questions"
        )
    return value_Q


def _units(value_Q: np.ndarray, group_Q: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """(sum, number of questions) of every unit that is drawn."""
    if group_Q is None:
        return value_Q, np.ones(len(value_Q))
    if len(group_Q) != len(value_Q):
        raise BootstrapError(f"found {len(group_Q)} groups for {len(value_Q)} values, wanted one for each question")
    number_of: dict[Any, int] = {}
    group = np.array([number_of.setdefault(one, len(number_of)) for one in group_Q])
    return np.bincount(group, value_Q), np.bincount(group).astype(float)


def _chunks(resamples: int, cells: int) -> list[int]:
    size = max(1, _CELLS // max(1, cells))
    return [min(size, resamples - done) for done in range(0, resamples, size)]
