"""Masked-word loss of a realm stage on the held-out sentences of its corpus, blocks embedded afresh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from experiments.config import Stage
from realm.evaluation.masked_words import NothingHeldOut, masked_word_loss, require_heldout
from realm.evaluation.table import Setting
from realm.protocols import Params, Searcher
from realm.retrieve import Retrieval
from realm.text.table import BlockTable
from realm.training.feed import collate

SEED = 0  # of the sentences and of what is masked in them


def heldout_loss(
    stage: Stage, params: Params, table: BlockTable, searcher: Callable[[], Searcher], limit: int = 512
) -> dict[str, Any]:
    """Masked-word loss on held-out sentences with and without retrieval, or NothingHeldOut. `searcher` is asked for
    only where there is something to measure on. Statements of a facts corpus are measured as clozes, not here."""
    objective = stage.objective
    units = objective.units(table, heldout=True)
    if table.indexed < table.rows:
        own = np.flatnonzero(units.row_N < table.indexed)
        units = units.only(own) if len(own) else units
    require_heldout(units)  # before the whole corpus is embedded for nothing
    retrieval = Retrieval(table, candidates=objective.candidates, block_lengths=objective.block_lengths)
    return masked_word_loss(
        objective, params, units, collate=collate, retrieval=retrieval, searcher=searcher(), limit=limit, seed=SEED
    )


def masked_words(
    stage: Stage, params: Params, step: int, table: BlockTable, searcher: Callable[[], Searcher]
) -> dict[str, Any]:
    """{"masked_words": `heldout_loss`, "masked_words_setting": the fields of a `Setting`}, or null with a
    "masked_words_reason" where nothing is held out. step: of the parameters, by which blocks and queries are embedded.
    """
    try:
        found = heldout_loss(stage, params, table, searcher)
    except NothingHeldOut as error:
        return {"masked_words": None, "masked_words_reason": str(error)}
    setting = Setting(
        dataset="corpus",
        split=f"{found['examples']:.0f} held-out sentences, a sample of seed {SEED}",
        rows=table.indexed,
        corpus=table.fingerprint,
        k=stage.objective.candidates - 1,  # one of them is the null block
        index="exact",
        generation_step=step,
        index_age=0,
    )
    return {"masked_words": found, "masked_words_setting": asdict(setting)}


def masked_words_line(found: dict[str, Any]) -> str:
    """What `masked_words` found, in one line."""
    words = found["masked_words"]
    if words is None:
        return f"held-out masked words: not measured, {found['masked_words_reason']}"
    return (
        f"held-out masked words: {words['loss']:.3f} nats with retrieval, {words['loss_null']:.3f} without (utility "
        f"{words['utility']:.3f}, null probability {words['null_probability']:.3f}, {words['masked']:.0f} wordpieces)"
    )
