"""How old the index was at every step of a run, from what it wrote down: metrics.jsonl and generations.jsonl.

Age in steps is exact between logged steps too, because the log of generations says what was adopted when; age in
seconds is what was logged. Of a rolling index there are three ages: of the youngest, the mean and the oldest document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from index_refresh.generation import ages_of
from index_refresh.log import NAME as LOG
from realm.training.metrics import read_metrics
from realm.training.run_folder import read_json

METRICS = "metrics.jsonl"


class AgesError(ValueError):
    """A folder that does not tell the ages of an index."""


class Ages(NamedTuple):
    """step_S: every step. age_S: of the index's newest documents, in steps; mean_S, oldest_S: of all documents and of
    the oldest. logged_L, seconds_L: logged steps and the age in seconds there. adopted: (step, generation, step it was
    made of). blocked: seconds that steps waited for embedding, building or opening; boundary: seconds at step
    boundaries, copies and probes included; first: until there was an index."""

    step_S: np.ndarray
    age_S: np.ndarray
    mean_S: np.ndarray
    oldest_S: np.ndarray
    logged_L: np.ndarray
    seconds_L: np.ndarray
    adopted: list[tuple[int, int, int]]
    blocked: float
    boundary: float
    first: float

    def summary(self) -> dict[str, Any]:
        """The numbers that a figure states: ages, generations and lost seconds."""
        return {
            "steps": len(self.step_S),
            "generations": len({number for _, number, _ in self.adopted}),
            "age_mean": float(self.age_S.mean()),
            "age_max": int(self.age_S.max()),
            "oldest_max": float(self.oldest_S.max()),
            "age_seconds_max": float(self.seconds_L.max()),
            "blocked_seconds": self.blocked,
            "boundary_seconds": self.boundary,
            "first_index_seconds": self.first,
        }

    def line(self) -> str:
        """The summary in words."""
        told = self.summary()
        rolling = not np.array_equal(self.age_S, self.oldest_S)
        oldest = f", oldest document at most {told['oldest_max']:.0f} steps" if rolling else ""
        return (
            f"{told['generations']} generations, age {told['age_mean']:.1f} steps on average, at most "
            f"{told['age_max']} steps and {told['age_seconds_max']:.1f} s{oldest}; training blocked for "
            f"{told['blocked_seconds']:.3f} s, {told['boundary_seconds']:.2f} s at step boundaries in all"
        )


def read_ages(folder: Path) -> Ages:
    """The ages of the stage in `folder`. Raises AgesError where there is no index, or nothing was logged yet."""
    records = [r for r in read_metrics(folder / METRICS) if "event" not in r and "document_age" in r]
    events = read_metrics(folder / LOG)
    adopted = [(e["step"], e["generation"], e["generation_step"]) for e in events if e["event"] == "adopted"]
    if not records or not adopted:
        raise AgesError(
            f"{folder}: found {len(records)} logged steps with an index and {len(adopted)} adoptions, wanted the "
            "folder of a stage that retrieves and has trained, such as runs/sample/realm"
        )
    documents = {e["generation"]: e["documents"] for e in events if e["event"] == "published" and "documents" in e}
    step_S = np.arange(records[-1]["step"])
    # Searched ahead, the batch of the step that adopts was still found by the index before.
    ahead = read_json(folder / "config.json")["config"]["training"]["retrieve_ahead"]
    starts = np.array([step + ahead if number else step for number, (step, _, _) in enumerate(adopted)])
    place_S = np.searchsorted(starts, step_S, side="right") - 1
    ages = []
    for step, place in zip(step_S, place_S, strict=True):
        _, number, made = adopted[max(place, 0)]
        one = ages_of(documents.get(number, [[1, made]]), int(step))
        ages.append([one[f"document_age_{which}"] for which in ("min", "mean", "max")])
    last = records[-1]
    return Ages(
        step_S,
        *np.array(ages, float).T,
        # A record counts the updates done; the age is that of the update before.
        np.array([r["step"] - 1 for r in records]),
        np.array([r["document_age_seconds"] for r in records], float),
        adopted,
        last["refresh_blocked_seconds"],
        last["refresh_boundary_seconds"],
        last["first_index_seconds"],
    )
