"""REALM: masked-word prediction marginalised over retrieved blocks (Guu et al. 2020).

x is a sentence with one salient span hidden; z ranges over the null block and the blocks that search found. Scores
are recomputed here on both sides, inside the gradient: the index only decides who is a candidate. The reader sees
[CLS] masked sentence [SEP] block body [SEP], without the title, as the released code does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.objectives.marginal import entropy, log_prior, sequence_marginal, token_marginal
from realm.protocols import Arrays, Items, Metrics, Params
from realm.retrieve import Retrieved
from realm.text.masks import RandomSpan, RandomToken, SalientSpan
from realm.text.table import BlockTable
from realm.text.units import SentenceUnit, SentenceUnits


class ObjectiveError(ValueError):
    """An objective whose parts do not fit together."""


@dataclass(frozen=True)
class Realm:
    """Joint pretraining of retriever and knowledge-augmented encoder.

    candidates: K, the null block included (the paper uses 8). marginal: `token` as in the released code, `sequence`
    as in the paper. batch_lengths: padded query lengths; block_lengths: padded lengths of retrieved blocks.
    """

    items: ClassVar[Items] = "blocks"
    retriever: DualEncoderConfig = field(default_factory=DualEncoderConfig)
    joint: MaskedLmConfig = field(default_factory=MaskedLmConfig)
    masking: SalientSpan | RandomSpan | RandomToken = field(default_factory=SalientSpan)
    marginal: Literal["token", "sequence"] = "token"
    candidates: int = 8
    max_predictions: int = 10
    batch_lengths: tuple[int, ...] = (96,)
    block_lengths: tuple[int, ...] = (288,)

    def __post_init__(self) -> None:
        places = max(self.batch_lengths) + max(self.block_lengths) - 2
        if places > self.joint.bert.positions:
            raise ObjectiveError(
                f"found a query of {max(self.batch_lengths)} and a block of {max(self.block_lengths)} wordpieces, "
                f"{places} places together, and joint.bert.positions={self.joint.bert.positions}: shorten one of them"
            )

    def init(self, key: Any) -> Params:
        retriever_key, joint_key = jax.random.split(key)
        return {
            "retriever": dual_encoder(self.retriever).init(retriever_key),
            "joint": masked_lm(self.joint).init(joint_key),
        }

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        return earlier

    def groups(self) -> dict[str, str]:
        return {"retriever": "retriever", "joint": "joint"}

    def units(self, corpus: BlockTable, heldout: bool | None = False) -> SentenceUnits:
        return SentenceUnits(
            corpus,
            self.masking,
            heldout=heldout,
            max_tokens=self.batch_lengths[-1],
            max_predictions=self.max_predictions,
        )

    def example(self, unit: SentenceUnit, rng: np.random.Generator, length: int) -> Arrays:
        return self.hidden(unit, self.masking.choose(unit, rng, self.max_predictions), length)

    def hidden(self, unit: SentenceUnit, position: np.ndarray, length: int) -> Arrays:
        """The example that hides and predicts the wordpieces at these positions of the sentence."""
        special = unit.special
        token_T = np.full(length, special.pad, np.int32)
        token_T[0] = special.cls
        token_T[1 : 1 + len(unit.token_T)] = unit.token_T
        token_T[1 + len(unit.token_T)] = special.sep
        position_M = np.zeros(self.max_predictions, np.int32)
        target_M = np.zeros(self.max_predictions, np.int32)
        weight_M = np.zeros(self.max_predictions, np.float32)
        position_M[: len(position)] = position + 1
        target_M[: len(position)] = unit.token_T[position]
        weight_M[: len(position)] = 1.0
        token_T[position + 1] = special.mask
        return {
            "query_token_T": token_T,
            "query_length": np.int32(len(unit.token_T) + 2),
            "position_M": position_M,
            "target_M": target_M,
            "weight_M": weight_M,
            "own": np.int32(unit.row),
        }

    def embed_queries(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """q_BE float32 of the masked sentences; needs `params["retriever"]` only."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_queries", batch["query_token_BT"], batch["query_length_B"], key=key
        )

    def embed_items(self, params: Params, blocks: Arrays, key: Any = None) -> jax.Array:
        """v_NE float32 of packed blocks (token_NT, length_N, body_N); needs `params["retriever"]` only."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_blocks", blocks["token_NT"], blocks["length_N"], blocks["body_N"], key=key
        )

    def found(self, batch: Arrays, retrieved: Retrieved) -> Arrays:
        return batch | retrieved.pack()

    def scores(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """score_BK: inner products of current query and current block vectors, without temperature."""
        query_key, block_key = (None, None) if key is None else jax.random.split(key)
        q_BE = self.embed_queries(params, batch, query_key)
        v_UE = self.embed_items(params, block_arrays(batch), block_key)
        # As precise as the exact index: scores near 128 lose whole units in TF32 or bf16 passes.
        return jnp.einsum("be,bke->bk", q_BE, v_UE[batch["slot_BK"]], precision=jax.lax.Precision.HIGHEST)

    def log_probs(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """log p(y_j | z, x) [B, K, M] of the true wordpieces by the joint encoder."""
        B, K = batch["slot_BK"].shape
        return (
            masked_lm(self.joint)
            .apply(
                params["joint"],
                "predict",
                **reader_inputs(batch, self.joint.bert.positions),
                position_BM=jnp.repeat(batch["position_BM"], K, axis=0),
                target_BM=jnp.repeat(batch["target_BM"], K, axis=0),
                key=key,
            )
            .reshape(B, K, -1)
        )

    def guesses(self, params: Params, batch: Arrays) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """(token_BM, null_token_BM, log_prob_B, null_log_prob_B), by the marginal sum_z p(z|x) p(y_j|z,x) and by the
        null block alone: the likeliest wordpiece at each masked place, and the mean log p of the true ones in nats."""
        B, K = batch["slot_BK"].shape
        log_prob_FMV = masked_lm(self.joint).apply(
            params["joint"],
            "distribution",
            **reader_inputs(batch, self.joint.bert.positions),
            position_BM=jnp.repeat(batch["position_BM"], K, axis=0),
        )
        log_prob_BKMV = log_prob_FMV.reshape(B, K, *log_prob_FMV.shape[1:])
        log_prior_BK = log_prior(self.scores(params, batch), batch["valid_BK"])
        both = jax.nn.logsumexp(log_prior_BK[:, :, None, None] + log_prob_BKMV, axis=1), log_prob_BKMV[:, 0]
        share_BM = batch["weight_BM"] / jnp.maximum(batch["weight_BM"].sum(axis=1, keepdims=True), 1e-9)

        def true_log_prob(log_BMV):
            log_BM = jnp.take_along_axis(log_BMV, batch["target_BM"][..., None], axis=-1)[..., 0]
            return (log_BM * share_BM).sum(axis=1)

        return *(log_BMV.argmax(axis=-1) for log_BMV in both), *map(true_log_prob, both)

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[jax.Array, Metrics]:
        """Mean over masked wordpieces of the negative marginal log-likelihood, in nats."""
        score_key, reader_key = (None, None) if key is None else jax.random.split(key)
        log_prior_BK = log_prior(self.scores(params, batch, score_key), batch["valid_BK"])
        log_prob_BKM = self.log_probs(params, batch, reader_key)
        weight_BM = batch["weight_BM"]
        marginal = {"token": token_marginal, "sequence": sequence_marginal}[self.marginal]
        total = marginal(log_prior_BK, log_prob_BKM, weight_BM)
        weight = jnp.maximum(weight_BM.sum(), 1e-9)
        loss = -total.log_prob / weight
        posterior_BK = total.posterior_BK
        return loss, {
            "weight": weight_BM.sum(),
            "loss_null": -total.log_prob_null / weight,
            "utility": (total.log_prob - total.log_prob_null) / weight,
            "null_probability": jnp.exp(log_prior_BK[:, 0]).mean(),
            "entropy": entropy(log_prior_BK).mean(),
            "posterior_shift": jnp.abs(posterior_BK - jnp.exp(log_prior_BK)).sum(axis=-1).mean() / 2,
            "own_block_hits": batch["own_hit_B"].astype(jnp.float32).mean(),
            "candidates": batch["valid_BK"].sum(axis=-1).astype(jnp.float32).mean(),
        }


def block_arrays(batch: Arrays) -> Arrays:
    """The distinct blocks of a batch in the form that `embed_items` takes."""
    return {
        "token_NT": batch["block_token_UT"],
        "length_N": batch["block_length_U"],
        "body_N": batch["block_body_U"],
    }


def reader_inputs(batch: Arrays, positions: int) -> Arrays:
    """[CLS] query [SEP] body [SEP] for every query and candidate, F = B*K rows, as keyword arrays of the reader.

    Query and body keep their own padded columns; explicit positions number the real tokens without a gap, so padding
    in the middle changes nothing. positions: rows of the position table; padding beyond it is told the last one.
    """
    query_BT, query_length_B = batch["query_token_BT"], batch["query_length_B"]
    block_UT, slot_BK = batch["block_token_UT"], batch["slot_BK"]
    B, K = slot_BK.shape
    Tq, Tb = query_BT.shape[1], block_UT.shape[1] - 2
    body_length_U = batch["block_length_U"] - batch["block_body_U"]
    column_UT = jnp.minimum(batch["block_body_U"][:, None] + jnp.arange(Tb), block_UT.shape[1] - 1)
    body_UT = jnp.take_along_axis(block_UT, column_UT, axis=1)
    body_BKT, body_length_BK = body_UT[slot_BK], body_length_U[slot_BK]
    body_mask_BKT = jnp.arange(Tb) < body_length_BK[..., None]
    query_mask_BKT = jnp.broadcast_to((jnp.arange(Tq) < query_length_B[:, None])[:, None, :], (B, K, Tq))
    query_BKT = jnp.broadcast_to(query_BT[:, None, :], (B, K, Tq))
    query_at_BKT = jnp.broadcast_to(jnp.arange(Tq), (B, K, Tq))
    body_at_BKT = jnp.broadcast_to(query_length_B[:, None, None] + jnp.arange(Tb), (B, K, Tb))
    body_at_BKT = jnp.minimum(body_at_BKT, positions - 1)

    def flat(left, right):
        return jnp.concatenate([left, right], axis=-1).reshape(B * K, Tq + Tb)

    return {
        "token_BT": flat(query_BKT, body_BKT),
        "mask_BT": flat(query_mask_BKT, body_mask_BKT),
        "segment_BT": flat(jnp.zeros_like(query_BKT), jnp.ones_like(body_BKT)),
        "position_BT": flat(query_at_BKT, body_at_BKT),
    }
