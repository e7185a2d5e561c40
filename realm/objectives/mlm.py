"""Plain masked language modelling (Devlin et al. 2019, section 3.1): warm start of the joint encoder, and baseline.

15 % of a block's wordpieces are predicted; of these 80 % are shown as [MASK], 10 % as a random wordpiece, 10 % as
they are. No document is retrieved, so the loss is what the joint encoder knows by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.protocols import Arrays, Items, Metrics, Params
from realm.text.table import BlockTable
from realm.text.units import BlockUnit, BlockUnits


@dataclass(frozen=True)
class Mlm:
    """BERT's masking over whole blocks, `[CLS] body [SEP]` cut to the batch length."""

    items: ClassVar[Items] = "nothing"
    candidates: ClassVar[int] = 0
    joint: MaskedLmConfig = field(default_factory=MaskedLmConfig)
    rate: float = 0.15
    batch_lengths: tuple[int, ...] = (128, 288)

    def init(self, key: Any) -> Params:
        return {"joint": masked_lm(self.joint).init(key)}

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        return earlier

    def groups(self) -> dict[str, str]:
        return {"joint": "joint"}

    def units(self, corpus: BlockTable, heldout: bool | None = False) -> BlockUnits:
        return BlockUnits(corpus, heldout=heldout)

    def example(self, unit: BlockUnit, rng: np.random.Generator, length: int) -> Arrays:
        special = unit.special
        body = unit.token_T[: length - 2]
        token_T = np.full(length, special.pad, np.int32)
        token_T[0] = special.cls
        token_T[1 : 1 + len(body)] = body
        token_T[1 + len(body)] = special.sep
        most = max(1, round(self.rate * (length - 2)))
        count = min(max(1, round(self.rate * len(body))), most)
        position = np.sort(rng.choice(len(body), size=count, replace=False)) + 1
        position_M, target_M, weight_M = np.zeros(most, np.int32), np.zeros(most, np.int32), np.zeros(most, np.float32)
        position_M[:count], target_M[:count], weight_M[:count] = position, token_T[position], 1.0
        shown = rng.random(count)
        replacement = rng.integers(0, special.size, count)
        token_T[position] = np.where(shown < 0.8, special.mask, np.where(shown < 0.9, replacement, token_T[position]))
        return {
            "token_T": token_T,
            "length": np.int32(len(body) + 2),
            "position_M": position_M,
            "target_M": target_M,
            "weight_M": weight_M,
        }

    def embed_queries(self, params: Params, batch: Arrays, key: Any = None) -> Any:
        raise TypeError("masked language modelling retrieves nothing: it has no queries to embed")

    def embed_items(self, params: Params, blocks: Arrays, key: Any = None) -> Any:
        raise TypeError("masked language modelling retrieves nothing: it has no items to embed")

    def found(self, batch: Arrays, retrieved: Arrays) -> Arrays:
        return batch

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[jax.Array, Metrics]:
        """Mean over masked wordpieces of the negative log-likelihood, in nats."""
        log_prob_BM = self.log_probs(params, batch, key)
        weight_BM = batch["weight_BM"]
        weight = weight_BM.sum()
        return -(log_prob_BM * weight_BM).sum() / jnp.maximum(weight, 1e-9), {"weight": weight}

    def log_probs(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """log p(y_j | x) [B, M] of the true wordpieces."""
        token_BT = batch["token_BT"]
        mask_BT = jnp.arange(token_BT.shape[1]) < batch["length_B"][:, None]
        return masked_lm(self.joint).apply(
            params["joint"],
            "predict",
            token_BT,
            mask_BT,
            jnp.zeros_like(token_BT),
            position_BM=batch["position_BM"],
            target_BM=batch["target_BM"],
            key=key,
        )
