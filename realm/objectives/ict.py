"""Inverse cloze task: a sentence must find the block that it was taken from (Lee et al. 2019, section 4).

The pseudo-question is a sentence chosen uniformly; with probability 0.9 it is cut out of its block, so that most of
the time words alone do not give the answer away. The other blocks of the global batch are the negatives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.protocols import Arrays, Items, Metrics, Params
from realm.text.table import BlockTable
from realm.text.units import BlockUnit, BlockUnits


@dataclass(frozen=True)
class Ict:
    """Warm start of the retriever. batch_lengths: padded block lengths; query_length: padded sentence length.

    Blocks of one sentence are no example: uncut they are their own query, cut they are empty.
    """

    items: ClassVar[Items] = "blocks"
    candidates: ClassVar[int] = 0
    retriever: DualEncoderConfig = field(default_factory=DualEncoderConfig)
    removal_probability: float = 0.9
    query_length: int = 64
    batch_lengths: tuple[int, ...] = (288,)

    def init(self, key: Any) -> Params:
        return {"retriever": dual_encoder(self.retriever).init(key)}

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        return earlier

    def groups(self) -> dict[str, str]:
        return {"retriever": "retriever"}

    def units(self, corpus: BlockTable, heldout: bool | None = False) -> BlockUnits:
        return BlockUnits(corpus, heldout=heldout, min_sentences=2, indexed=True)

    def example(self, unit: BlockUnit, rng: np.random.Generator, length: int) -> Arrays:
        start, end = unit.sentence_S2[rng.integers(len(unit.sentence_S2))]
        cut = rng.random() < self.removal_probability
        body = np.concatenate([unit.token_T[:start], unit.token_T[end:]]) if cut else unit.token_T
        special = unit.special
        query_T, query_length = _framed([unit.token_T[start:end]], self.query_length, special)
        title_T = unit.title_T[: length - 3]  # as pack_blocks: a title may take all but the special tokens
        block_T, block_length = _framed([title_T, body], length, special)
        return {
            "query_token_T": query_T,
            "query_length": query_length,
            "block_token_T": block_T,
            "block_length": block_length,
            "block_body": np.int32(2 + len(title_T)),
            "cut": np.bool_(cut),
        }

    def embed_queries(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """q_BE float32 of sentences."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_queries", batch["query_token_BT"], batch["query_length_B"], key=key
        )

    def embed_items(self, params: Params, blocks: Arrays, key: Any = None) -> jax.Array:
        """v_NE float32 of packed blocks."""
        return dual_encoder(self.retriever).apply(
            params["retriever"], "embed_blocks", blocks["token_NT"], blocks["length_N"], blocks["body_N"], key=key
        )

    def found(self, batch: Arrays, retrieved: Arrays) -> Arrays:
        return batch

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[jax.Array, Metrics]:
        """In-batch softmax cross-entropy of each sentence against every block of the global batch, in nats."""
        query_key, block_key = (None, None) if key is None else jax.random.split(key)
        q_BE = self.embed_queries(params, batch, query_key)
        blocks = {
            "token_NT": batch["block_token_BT"],
            "length_N": batch["block_length_B"],
            "body_N": batch["block_body_B"],
        }
        v_BE = self.embed_items(params, blocks, block_key)
        score_BB = jnp.einsum("be,ce->bc", q_BE, v_BE, precision=jax.lax.Precision.HIGHEST)
        label_B = jnp.arange(score_BB.shape[0])
        loss_B = optax.losses.softmax_cross_entropy_with_integer_labels(score_BB, label_B)
        correct_B = (score_BB.argmax(axis=1) == label_B).astype(jnp.float32)
        cut_B = batch["cut_B"].astype(jnp.float32)
        return loss_B.mean(), {
            "weight": jnp.float32(score_BB.shape[0]),
            "accuracy": correct_B.mean(),
            # Shares of the batch, so that they average over batches; accuracy on uncut examples is their ratio.
            "cut": cut_B.mean(),
            "cut_and_correct": (correct_B * cut_B).mean(),
        }


def _framed(parts: list[np.ndarray], length: int, special: Any) -> tuple[np.ndarray, np.int32]:
    """[CLS] part [SEP] part [SEP] ..., padded to `length`; a last part that does not fit is cut at its tail."""
    token_T = np.full(length, special.pad, np.int32)
    token_T[0], at = special.cls, 1
    for part in parts:
        room = length - at - 1
        part = part[:room]
        token_T[at : at + len(part)] = part
        at += len(part)
        token_T[at] = special.sep
        at += 1
    return token_T, np.int32(at)
