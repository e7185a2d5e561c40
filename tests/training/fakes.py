"""A two-group linear objective, small enough to check by hand."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Linear:
    """Predicts y from x by w (group `retriever`) plus b (group `joint`); weights make microbatches unequal."""

    items: ClassVar[str] = "nothing"
    candidates: ClassVar[int] = 0
    batch_lengths: tuple[int, ...] = (4,)

    def init(self, key):
        return {"retriever": {"kernel": jax.random.normal(key, (3,))}, "joint": {"bias": jnp.zeros(())}}

    def groups(self):
        return {"retriever": "retriever", "joint": "joint"}

    def embed_queries(self, params, batch):
        raise TypeError

    def loss(self, params, batch, key):
        found_B = batch["x_BD"] @ params["retriever"]["kernel"] + params["joint"]["bias"]
        weight_B = batch["weight_B"]
        error_B = (found_B - batch["y_B"]) ** 2 * weight_B
        return error_B.sum() / weight_B.sum(), {
            "weight": weight_B.sum(),
            "mean": (found_B * weight_B).sum() / weight_B.sum(),
        }


def linear_batch(rows=8, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x_BD": rng.normal(size=(rows, 3)).astype(np.float32),
        "y_B": rng.normal(size=rows).astype(np.float32),
        "weight_B": rng.integers(1, 5, rows).astype(np.float32),
    }
