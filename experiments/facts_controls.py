"""The sweep `facts-controls`: does the retriever learn from masked words, and from nothing else?

Every control takes one thing away from REALM on the facts corpus, with the same number of updates. Numbers are of
held-out statements, with blocks embedded afresh (no index age, no approximation) by the towers at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.clozes import ClozeSet, summary
from experiments.config import Preset, Stage
from experiments.measure import FACTS_ASKED
from experiments.presets import facts
from experiments.searching import exact_searcher
from experiments.sweep import Sweep, Variant
from realm.index.random_rows import RandomRows
from realm.text.blocks import BlockTable
from realm.text.masks import RandomSpan, RandomToken
from realm.training.checkpoint import restore_params
from realm.training.metrics import read_metrics
from realm.training.run_folder import read_json

READ = ("mlm", "ict", "read")
START = ("mlm", "ict")


def _both(preset: Preset, change: Callable[[Stage], Stage]) -> Preset:
    """Both joint stages changed alike."""
    return replace(preset, read=change(preset.read), realm=change(preset.realm))


def _joint(preset: Preset, **changes: Any) -> Preset:
    """Both joint stages with other fields of the objective."""
    return _both(preset, lambda stage: replace(stage, objective=replace(stage.objective, **changes)))


def _realm(preset: Preset, *, refresh: dict[str, Any] | None = None, **training: Any) -> Preset:
    """The realm stage with other fields of its training or refresh."""
    stage = preset.realm
    stage = replace(stage, training=replace(stage.training, **training))
    return replace(preset, realm=replace(stage, refresh=replace(stage.refresh, **(refresh or {}))))


def _frozen(preset: Preset) -> Preset:
    """The retriever never starts."""
    optimizer = preset.realm.training.optimizer
    rate = replace(optimizer.retriever, start=preset.realm.training.steps)
    return _realm(preset, refresh={"schedule": "never"}, optimizer=replace(optimizer, retriever=rate))


def _cold(preset: Preset) -> Preset:
    """Both from random weights at once, for as many updates as read and realm have together."""
    stage = preset.realm
    steps = preset.read.training.steps + stage.training.steps
    training = replace(stage.training, steps=steps)
    return replace(preset, mlm=None, ict=None, read=None, realm=replace(stage, training=training, warm_start={}))


def _random_rows(preset: Preset) -> Preset:
    return _both(preset, lambda stage: replace(stage, refresh=replace(stage.refresh, index=RandomRows())))


def _refreshed_every(steps: int) -> Any:
    return lambda preset: _realm(preset, refresh={"schedule": f"every {steps}"})


EVERY = facts.EVERY
VARIANTS = {
    "realm": Variant("REALM: masked objects teach reader and retriever", lambda preset: preset),
    "gradient stopped": Variant("the retriever gets no gradient from the joint loss", _frozen, READ),
    "ict continued": Variant(
        "ICT trained on for the seconds of both joint stages", lambda preset: preset, START, continues="ict"
    ),
    "no warm start": Variant("no ICT, no masked LM, no frozen phase: all from scratch", _cold),
    "random retrieval": Variant("blocks drawn at random, in both joint stages", _random_rows, START),
    "no retrieval": Variant("the null block alone", lambda preset: _joint(preset, candidates=1), START),
    "uniform token masks": Variant(
        "15 % of the wordpieces hidden instead of the object",
        lambda preset: _joint(preset, masking=RandomToken(salient_sentences=True)),
        START,
    ),
    "random span masks": Variant(
        "a random span hidden instead of the object",
        lambda preset: _joint(preset, masking=RandomSpan(salient_sentences=True)),
        START,
    ),
    "never refreshed": Variant(
        "the index of step 0 to the end", lambda p: _realm(p, refresh={"schedule": "never"}), READ
    ),
    "30 times staler": Variant(
        f"a refresh every {30 * EVERY} steps instead of {EVERY}", _refreshed_every(30 * EVERY), READ
    ),
    "query tower of the index": Variant(
        "queries are embedded by the towers that made the index", lambda p: _realm(p, query_tower="generation"), READ
    ),
    "30 times staler, re-ranked": Variant(
        "as 30 times staler, and the fresh towers choose among 20 found",
        lambda p: _realm(p, refresh={"schedule": f"every {30 * EVERY}"}, rerank=20),
        READ,
    ),
}
COLUMNS = {
    "recall@1": "facts@1",
    "recall@5": "facts@5",
    "held-out places @1": "subjects@1",
    "held-out relation @1": "relations@1",
    "objects right": "accuracy_with",
    "by null block": "accuracy_without",
    "utility, nats": "utility",
}


def sweep() -> Sweep:
    """What `realm sweep facts-controls` runs."""
    return Sweep(facts.preset(), VARIANTS, measure, COLUMNS)


def measure(preset: Preset, out: Path, finished: dict[str, Path]) -> dict[str, Any]:
    """Percent of held-out statements by split, nats, and the curve over the kept checkpoints of the last stage."""
    table = BlockTable.open(out / "corpus")
    clozes = ClozeSet(out / "facts", table, preset.realm.objective, FACTS_ASKED)
    name, folder = list(finished.items())[-1]  # the stage trained last
    stage: Stage = preset.realm if name == "realm" else preset.ict
    params, _ = restore_params(folder / "checkpoints")
    found = {}
    if "joint" in params:
        scores = clozes.scores(params, exact_searcher(preset.realm, params, table))
        rank_Q = scores.rank_Q
        numbers = summary(clozes, rank_Q, scores)
        found = {key: 100 * numbers[key] for key in ("accuracy_with", "accuracy_without")}
        found["utility"] = numbers["utility"]
    else:
        rank_Q = clozes.ranks(params, exact_searcher(stage, params, table))
    recall = {k: clozes.by_split(rank_Q < k) for k in (1, 5, 20)}
    found |= {f"{split}@{k}": 100 * value for k, by_split in recall.items() for split, value in by_split.items()}
    found["steps"] = read_json(folder / "done.json")["step"]
    found["curve"] = curve(preset, clozes, table, folder) if name == "realm" else []
    return found


def curve(preset: Preset, clozes: ClozeSet, table: BlockTable, folder: Path) -> list[dict[str, float]]:
    """Recall@1 on held-out facts at every kept checkpoint, with utility and index age as logged there."""
    logged = {r["step"]: r for r in read_metrics(folder / "metrics.jsonl") if "event" not in r}
    points = []
    for step in sorted(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdecimal()):
        params, _ = restore_params(folder / "checkpoints", step)
        rank_Q = clozes.ranks(params, exact_searcher(preset.realm, params, table))
        near = logged.get(step, {})
        points.append(
            {
                "step": step,
                "recall1": 100 * clozes.by_split(rank_Q < 1)["facts"],
                "utility": near.get("utility"),
                "index_age": near.get("document_age"),
            }
        )
    return points
