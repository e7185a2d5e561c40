"""The retriever: query and block vectors whose inner product scores a block (ORQA, arXiv 1906.00300; REALM §3.2).

Vector = LayerNorm(dense(pooled BERT)), with Keras's LayerNorm epsilon 1e-3, then dropout in training only. By default
one tower serves queries and blocks, as in the released code. LayerNorm makes norms nearly constant (about sqrt(E) times
its gain), so inner product search is close to cosine. A vector never depends on batch mates, padding or dropout.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from realm.models.bert import Bert, BertConfig, EncoderError, dense, drop, layer_norm
from realm.models.functional import Functional, functional
from realm.models.weights import check_spec, load_tower
from realm.protocols import Params

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DualEncoderConfig:
    """width: E, of the vectors. pooling: `cls`, tanh(dense([CLS])), or `mean` over the real tokens' last hidden states.
    block_segments: of a block, 2 (title 0, body 1: BERT, REALM) or 1 (all 0: sentence encoders know no other).

    shared: one tower for queries and blocks; two towers start from the same weights. dropout: on the vectors.
    init: `random`, `embedded` (the small BERT in the package) or `hf:PATH`, a folder of a BERT, a sentence encoder or a
    REALM; `bert` must then describe those weights, see weights.bert_config, and weights.tower_settings for the rest.
    What the folder lacks starts at random; the projection does, unless it is that of a REALM or, at the right width, a
    sentence encoder.
    """

    bert: BertConfig = field(default_factory=BertConfig)
    width: int = 128
    pooling: Literal["cls", "mean"] = "cls"
    block_segments: Literal[1, 2] = 2
    shared: bool = True
    dropout: float = 0.1
    norm_epsilon: float = 1e-3
    init: str = "random"

    def __post_init__(self):
        if self.width < 1:
            raise EncoderError(f"width is {self.width}, wanted at least 1")
        if self.pooling not in ("cls", "mean"):
            raise EncoderError(f"pooling is {self.pooling!r}, wanted 'cls' or 'mean'")
        if self.block_segments not in (1, 2):
            raise EncoderError(f"block_segments is {self.block_segments!r}, wanted 1 or 2")
        if not 0 <= self.dropout < 1:
            raise EncoderError(f"dropout is {self.dropout}, wanted 0 <= dropout < 1")
        check_spec(self.init)


class Tower(nnx.Module):
    """BERT, pooling and projection to the retrieval width."""

    def __init__(self, config: DualEncoderConfig, rngs: nnx.Rngs):
        self.config = config
        self.bert = Bert(config.bert, rngs)
        exact = jax.lax.Precision.HIGHEST  # as the search computes; see realm/index/exact.py
        self.projection = dense(config.bert, rngs, config.bert.width, config.width, "float32", exact)
        self.norm = layer_norm(config.width, config.norm_epsilon, rngs)

    def __call__(self, token_BT: jax.Array, length_B: jax.Array, segment_BT: jax.Array, key=None) -> jax.Array:
        bert_key, own_key = (None, None) if key is None else jax.random.split(key)
        mask_BT = jnp.arange(token_BT.shape[1]) < length_B[:, None]
        if self.config.pooling == "cls":
            first_B1 = jnp.zeros((token_BT.shape[0], 1), jnp.int32)
            pooled_BD = self.bert.pool(self.bert(token_BT, mask_BT, segment_BT, key=bert_key, at_BM=first_B1))
        else:
            hidden_BTD = self.bert(token_BT, mask_BT, segment_BT, key=bert_key)
            real_BT1 = mask_BT[..., None]
            pooled_BD = jnp.where(real_BT1, hidden_BTD, 0.0).sum(1) / jnp.maximum(real_BT1.sum(1), 1)
        return drop(self.config.dropout, self.norm(self.projection(pooled_BD)), own_key)


class DualEncoder(nnx.Module):
    """One tower under `tower`, or two under `query` and `block`."""

    def __init__(self, config: DualEncoderConfig, rngs: nnx.Rngs):
        self.shared, self.block_segments = config.shared, config.block_segments
        if config.shared:
            self.tower = Tower(config, rngs)
        else:
            self.query, self.block = Tower(config, rngs), Tower(config, rngs)

    def embed_queries(self, token_BT: jax.Array, length_B: jax.Array, key=None) -> jax.Array:
        """q_BE float32 of [CLS] query [SEP], padded; length_B counts real tokens. All of segment 0."""
        tower = self.tower if self.shared else self.query
        return tower(token_BT, length_B, jnp.zeros_like(token_BT), key)

    def embed_blocks(self, token_NT: jax.Array, length_N: jax.Array, body_N: jax.Array, key=None) -> jax.Array:
        """v_NE float32 of [CLS] title [SEP] body [SEP], padded; of two segments the second is from body_N, the body's
        first place, on."""
        tower = self.tower if self.shared else self.block
        second_NT = jnp.arange(token_NT.shape[1]) >= body_N[:, None]
        segment_NT = second_NT.astype(jnp.int32) if self.block_segments == 2 else jnp.zeros_like(token_NT)
        return tower(token_NT, length_N, segment_NT, key)


@cache
def dual_encoder(config: DualEncoderConfig) -> Functional:
    """The retriever as pure functions; its init(key) honours config.init and raises WeightsError as load_tower does."""
    network = functional(lambda rngs: DualEncoder(config, rngs))

    def fill(tower: Params, side: Literal["query", "block"] | None) -> None:
        loaded, report = load_tower(config.init, config.bert, config.width, side)
        log.info("retriever from %s: %s", config.init, report)
        for part, arrays in loaded.items():
            tower[part] |= jax.tree.map(jnp.array, arrays)

    def init(key: jax.Array) -> Params:
        params = network.init(key)
        if not config.shared:
            # A copy, not a second name: a donated buffer may be given away only once.
            params["block"] = jax.tree.map(jnp.copy, params["query"])
        if config.init != "random":
            for name, tower in params.items():
                fill(tower, None if config.shared else name)
        return params

    return network._replace(init=init)
