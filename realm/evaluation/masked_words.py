"""Masked-word loss with and without retrieval, on sentences the model was not trained on.

"Without" is the same network given the null block alone, so the difference is what documents are worth to it
(retrieval utility, in nats a masked wordpiece), not what another training run would have reached.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from realm.protocols import Objective, Params, Searcher, Units
from realm.retrieve import Retrieval, queries_of
from realm.text.plan import BatchPlan, batches, example_rng


class NothingHeldOut(ValueError):
    """No held-out sentence can be measured on."""


def require_heldout(units: Units) -> None:
    """Raises NothingHeldOut where `units` is empty, with the counts that tell why."""
    if len(units):
        return
    left_out = ", ".join(f"{n} {reason}" for reason, n in getattr(units, "counts", {}).items() if n)
    raise NothingHeldOut(
        "no held-out sentence to measure on: wanted a corpus built with --corpus.holdout above 0, and large enough"
        + (f" (units left out: {left_out})" if left_out else "")
    )


def masked_word_loss(
    objective: Objective,
    params: Params,
    units: Units,
    *,
    collate: Any,
    retrieval: Retrieval | None = None,
    searcher: Searcher | None = None,
    batch_size: int = 16,
    limit: int = 512,
    seed: int = 0,
) -> dict[str, float]:
    """{"loss", "masked", "examples"} in nats a masked wordpiece, and for objectives that retrieve also "loss_null",
    "utility", "null_probability" and "entropy". At most `limit` units, the same ones for the same seed.

    Raises NothingHeldOut where there is no unit.
    """
    require_heldout(units)
    size = min(batch_size, len(units))
    plan = BatchPlan(units.length_N, batch_size=size, lengths=objective.batch_lengths, seed=seed)

    def make(planned, row_B):
        return collate(
            [
                objective.example(units[int(i)], example_rng(seed, planned.epoch, int(i)), planned.length)
                for i in planned.index_B[row_B]
            ]
        )

    embed = jax.jit(objective.embed_queries)
    loss = jax.jit(lambda p, b: objective.loss(p, b, None))
    stop = max(1, min(limit // size, plan.batches_per_epoch))
    totals: dict[str, float] = {}
    masked = 0.0
    for batch in batches(plan, make, start=0, stop=stop):
        if retrieval is not None:
            q_BE = np.asarray(embed({"retriever": params["retriever"]}, queries_of(batch)))
            candidates = retrieval.search(searcher, q_BE, batch["own_B"])
            batch = objective.found(batch, retrieval.retrieved(candidates))
        value, metrics = jax.device_get(loss(params, batch))
        weight = float(metrics["weight"])
        for name, number in {"loss": value, **metrics}.items():
            totals[name] = totals.get(name, 0.0) + weight * float(number)
        masked += weight
    names = ("loss", "loss_null", "utility", "null_probability", "entropy")
    return {n: totals[n] / masked for n in names if n in totals} | {"masked": masked, "examples": float(stop * size)}
