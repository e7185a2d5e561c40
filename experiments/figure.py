"""The picture of a sweep: recall, utility and index age against the step; what three queries found before and after.
And that of one run's index ages.

Lines are means over seeds, bands one standard error. The only place where matplotlib is imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.ages import Ages
from experiments.clozes import ClozeSet
from experiments.searching import exact_searcher
from experiments.sweep import RESULTS, SweepError
from experiments.sweeps import SWEEPS
from realm.evaluation.clozes import ranks
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.run_folder import read_json

PANELS = (
    ("recall1", "recall@1 on held-out facts, %"),
    ("utility", "utility, nats a wordpiece"),
    ("index_age", "index age, steps"),
)
SHOWN = 3  # queries
FOUND = 3  # blocks a query


def draw(name: str, out: Path, variants: tuple[str, ...], png: Path) -> None:
    """Writes `png`. Raises SweepError where a variant has no results."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = {variant: _curves(out, variant) for variant in variants}
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 8), height_ratios=(1, 0.9), layout="constrained")
    for axis, (key, title) in zip(axes[0], PANELS, strict=True):
        for variant, runs in curves.items():
            step, value_RS = _aligned(runs, key)
            if not len(step):
                continue
            mean, error = value_RS.mean(axis=0), value_RS.std(axis=0, ddof=min(1, len(value_RS) - 1))
            error = error / np.sqrt(len(value_RS))
            (line,) = axis.plot(step, mean, marker="o", markersize=3, label=variant)
            axis.fill_between(step, mean - error, mean + error, color=line.get_color(), alpha=0.2)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step of the realm stage")
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=9)
    queries = found_before_and_after(name, out)
    for axis in axes[1]:
        axis.axis("off")
    for axis, query in zip(axes[1], queries, strict=False):  # a retriever that learned little has fewer to show
        axis.text(0, 1, _panel(query), va="top", fontsize=8, family="monospace", transform=axis.transAxes)
    figure.savefig(png, dpi=110)
    pyplot.close(figure)


def draw_ages(ages: Ages, png: Path) -> None:
    """Writes `png`: age in steps and in seconds against the step, adoptions marked, blocked seconds stated."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (steps, seconds) = pyplot.subplots(2, 1, figsize=(10, 6), sharex=True, layout="constrained")
    for axis in (steps, seconds):
        for step, _, _ in ages.adopted:
            axis.axvline(step, color="tab:gray", linewidth=0.7, alpha=0.5)
        axis.grid(alpha=0.3)
    steps.plot(ages.step_S, ages.age_S, drawstyle="steps-post", label="newest documents")
    if not np.array_equal(ages.age_S, ages.oldest_S):
        steps.plot(ages.step_S, ages.mean_S, drawstyle="steps-post", label="mean")
        steps.plot(ages.step_S, ages.oldest_S, drawstyle="steps-post", label="oldest documents")
        steps.legend(fontsize=9)
    seconds.plot(ages.logged_L, ages.seconds_L, marker=".")
    steps.set_ylabel("index age, steps")
    seconds.set_ylabel("index age, seconds")
    seconds.set_xlabel("step (lines: a generation is adopted)")
    steps.set_title(ages.line(), fontsize=8)
    figure.savefig(png, dpi=110)
    pyplot.close(figure)


def _curves(out: Path, variant: str) -> list[list[dict[str, Any]]]:
    found = [read_json(path) for path in sorted(out.glob(f"seed-*/{variant}/{RESULTS}"))]
    if not found:
        raise SweepError(f"{out}: no results of {variant!r}; run `realm sweep` first")
    return [one["curve"] for one in found]


def _aligned(runs: list[list[dict[str, Any]]], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(step [S], value [runs, S]) at the steps where every run has a value."""
    values = [{point["step"]: point[key] for point in run if point.get(key) is not None} for run in runs]
    steps = sorted(set.intersection(*(set(one) for one in values))) if values else []
    return np.array(steps), np.array([[one[step] for step in steps] for one in values], float)


def found_before_and_after(name: str, out: Path) -> list[dict[str, Any]]:
    """Three held-out statements with the blocks found first before and after joint training of both, seed 0.

    The first ones whose block was not found first before and is after; each of another relation.
    """
    sweep = SWEEPS[name]()
    table = BlockTable.open(out / "corpus")
    clozes = ClozeSet(out / "facts", table, sweep.preset.realm.objective, 300)
    base = out / "seed-0" / sweep.first
    hits = {}
    for when, stage in (("before", "read"), ("after", "realm")):
        params, _ = restore_params(base / stage / "checkpoints")
        searcher = exact_searcher(sweep.preset.realm, params, table)
        row_QK = clozes.rows_found(params, searcher, FOUND)
        hits[when] = ranks(row_QK, row_QK >= 0, clozes.gold), row_QK
    chosen, relations = [], set()
    better = np.flatnonzero((hits["before"][0] > 0) & (hits["after"][0] == 0) & (clozes.split_Q == "facts"))
    for number in better:
        cloze = clozes.clozes[number]
        if cloze.relation in relations:
            continue
        relations.add(cloze.relation)
        text = table.text(clozes.rows[number])
        found = {
            when: [{"text": table.text(int(row)), "gold": row in clozes.gold[number]} for row in rows_QK[number]]
            for when, (_, rows_QK) in hits.items()
        }
        chosen.append({"query": f"{text[: cloze.start]}[MASK]{text[cloze.end :]}", "object": cloze.object} | found)
        if len(chosen) == SHOWN:
            break
    return chosen


def _panel(query: dict[str, Any]) -> str:
    lines = [query["query"], f"hidden: {query['object']}"]
    for when in ("before", "after"):
        lines += ["", f"{when}:"]
        for number, block in enumerate(query[when], 1):
            text = block["text"] if len(block["text"]) <= 92 else block["text"][:91] + "…"
            half = text.rfind(" ", 0, 47) if len(text) > 47 else len(text)
            lines.append(f"{number}{'*' if block['gold'] else ' '} {text[:half]}")
            if text[half:].strip():
                lines.append(f"   {text[half:].strip()}")
    return "\n".join([*lines, "", "* holds the fact"])
