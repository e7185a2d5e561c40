"""Plain masked language modelling (Devlin et al. 2019, section 3.1): warm start of the joint encoder, and baseline.

15 % of a block's wordpieces are predicted; of these 80 % are shown as [MASK], 10 % as a random wordpiece, 10 % as
they are. Or, with `masking`, a salient span of one sentence is hidden (REALM §3.4) and the rest of its block stands
behind it where a retrieved block will stand, so that the joint encoder learns to read before anything is retrieved.
No document is retrieved, so the loss is what the joint encoder knows by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.protocols import Arrays, Items, Metrics, Params
from realm.text.masks import SalientSpan
from realm.text.table import BlockTable
from realm.text.units import BlockUnit, BlockUnits, Hiding

SPECIAL = 3  # [CLS] sentence [SEP] rest [SEP]


@dataclass(frozen=True)
class Mlm:
    """BERT's masking over whole blocks, `[CLS] body [SEP]` cut to the batch length.

    masking: hides one salient span of at most max_predictions wordpieces in place of `rate` of all, and shows
    `[CLS] its sentence [SEP] the rest of the block [SEP]` in two segments, the rest cut to the batch length.
    """

    items: ClassVar[Items] = "nothing"
    candidates: ClassVar[int] = 0
    joint: MaskedLmConfig = field(default_factory=MaskedLmConfig)
    rate: float = 0.15
    masking: SalientSpan | None = None
    max_predictions: int = 10
    batch_lengths: tuple[int, ...] = (128, 288)

    def init(self, key: Any) -> Params:
        return {"joint": masked_lm(self.joint).init(key)}

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        return earlier

    def groups(self) -> dict[str, str]:
        return {"joint": "joint"}

    def units(self, corpus: BlockTable, heldout: bool | None = False) -> BlockUnits:
        longest = self.batch_lengths[-1] - SPECIAL
        hiding = None if self.masking is None else Hiding(self.masking, self.max_predictions, longest)
        return BlockUnits(corpus, heldout=heldout, hiding=hiding)

    def example(self, unit: BlockUnit, rng: np.random.Generator, length: int) -> Arrays:
        return (self._scattered if self.masking is None else self._span)(unit, rng, length)

    def _scattered(self, unit: BlockUnit, rng: np.random.Generator, length: int) -> Arrays:
        """`rate` of the wordpieces of the whole block."""
        special = unit.special
        body = unit.token_T[: length - 2]
        most = max(1, round(self.rate * (length - 2)))
        count = min(max(1, round(self.rate * len(body))), most)
        position = np.sort(rng.choice(len(body), size=count, replace=False)) + 1
        shown = rng.random(count)
        replacement = rng.integers(0, special.size, count)
        told = np.where(shown < 0.8, special.mask, np.where(shown < 0.9, replacement, body[position - 1]))
        return _example([special.cls, *body, special.sep], len(body) + 2, position, told, most, length, special.pad)

    def _span(self, unit: BlockUnit, rng: np.random.Generator, length: int) -> Arrays:
        """One salient span, its sentence in front of the rest of the block."""
        special = unit.special
        start_P, end_P = unit.sentence_at(unit.span_P2[:, 0]).T
        fits_P = end_P - start_P <= length - SPECIAL
        within = unit._replace(span_P2=unit.span_P2[fits_P], support_P=unit.support_P[fits_P])
        position = self.masking.choose(within, rng, self.max_predictions)
        start, end = unit.sentence_at(position[0])
        rest = np.concatenate([unit.token_T[:start], unit.token_T[end:]])[: length - SPECIAL - (end - start)]
        token = [special.cls, *unit.token_T[start:end], special.sep, *rest, special.sep]
        place = position - start + 1
        return _example(token, end - start + 2, place, special.mask, self.max_predictions, length, special.pad)

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
            (jnp.arange(token_BT.shape[1]) >= batch["first_B"][:, None]).astype(jnp.int32),
            position_BM=batch["position_BM"],
            target_BM=batch["target_BM"],
            key=key,
        )


def _example(token: list[int], first: int, position: np.ndarray, told: Any, most: int, length: int, pad: int) -> Arrays:
    """`token` padded to `length`, with `told` shown at the places `position`, and the true wordpieces there as targets.

    first: wordpieces of the first segment, special ones included. most: predictions of an example.
    """
    token_T = np.full(length, pad, np.int32)
    token_T[: len(token)] = token
    count = len(position)
    position_M, target_M, weight_M = np.zeros(most, np.int32), np.zeros(most, np.int32), np.zeros(most, np.float32)
    position_M[:count], target_M[:count], weight_M[:count] = position, token_T[position], 1.0
    token_T[position] = told
    return {
        "token_T": token_T,
        "length": np.int32(len(token)),
        "first": np.int32(first),
        "position_M": position_M,
        "target_M": target_M,
        "weight_M": weight_M,
    }
