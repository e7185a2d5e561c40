"""The knowledge-augmented encoder: BERT with its masked language model head (REALM §3.2, eq. 2).

log p(y_j | z, x) = logit[y_j] - logsumexp(logits) at each masked place, with logits from dense, gelu, LayerNorm and
the tied word embeddings plus a bias. Always this form in float32: no array of log-probabilities over the vocabulary is
made besides the logits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
from flax import nnx

from realm.models.bert import Bert, BertConfig, dense, gelu, layer_norm, take_places
from realm.models.functional import Functional, functional
from realm.models.weights import check_spec, load_bert
from realm.protocols import Params

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MaskedLmConfig:
    """init: `random`, `embedded` or `hf:PATH` as in DualEncoderConfig; `bert` must describe the weights it names.

    Where those have no masked-LM head, the head starts at random.
    """

    bert: BertConfig = field(default_factory=BertConfig)
    init: str = "random"

    def __post_init__(self):
        check_spec(self.init)


class Head(nnx.Module):
    """The transformation before the tied output layer, and that layer's bias."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        self.config = config
        self.dense = dense(config, rngs, config.width, config.width)
        self.norm = layer_norm(config.width, config.norm_epsilon, rngs)
        self.bias = nnx.Param(jnp.zeros(config.vocabulary, jnp.float32))

    def __call__(self, hidden_BMD: jax.Array) -> jax.Array:
        return self.norm(gelu(self.config, self.dense(hidden_BMD)))


class MaskedLm(nnx.Module):
    """Parameters: `bert` and `head`."""

    def __init__(self, config: MaskedLmConfig, rngs: nnx.Rngs):
        self.bert = Bert(config.bert, rngs)
        self.head = Head(config.bert, rngs)

    def hidden(self, token_BT, mask_BT, segment_BT, position_BT=None, key=None) -> jax.Array:
        """hidden_BTD float32; arguments as in Bert."""
        return self.bert(token_BT, mask_BT, segment_BT, position_BT, key)

    def logits(self, hidden_BTD: jax.Array, position_BM: jax.Array | None = None) -> jax.Array:
        """Scores float32 [B, M, V] at the places position_BM, or at every place when None."""
        hidden_BMD = hidden_BTD if position_BM is None else take_places(hidden_BTD, position_BM)
        return self.bert.attend(self.head(hidden_BMD)) + self.head.bias

    def log_prob(self, hidden_BTD: jax.Array, position_BM: jax.Array | None, target_BM: jax.Array) -> jax.Array:
        """log p of target_BM at the places position_BM (None: hidden_BTD is already [B, M, D]), float32 [B, M].

        A place outside the sequence or a target outside the vocabulary gives NaN; unused slots take any valid place and
        are the caller's to weigh with 0.
        """
        logit_BMV = self.logits(hidden_BTD, position_BM)
        chosen_BM = jnp.take_along_axis(logit_BMV, target_BM[..., None], axis=-1)[..., 0]
        return chosen_BM - jax.nn.logsumexp(logit_BMV, axis=-1)

    def predict(self, token_BT, mask_BT, segment_BT, position_BM, target_BM, position_BT=None, key=None) -> jax.Array:
        """log_prob of hidden in one go: the same values, and the last layer computes only the M places asked for.

        position_BM are the places predicted, position_BT the optional positions that the encoder is told.
        """
        hidden_BMD = self.bert(token_BT, mask_BT, segment_BT, position_BT, key, at_BM=position_BM)
        return self.log_prob(hidden_BMD, None, target_BM)

    def distribution(self, token_BT, mask_BT, segment_BT, position_BM, position_BT=None) -> jax.Array:
        """log p of every wordpiece at the places position_BM, float32 [B, M, V]; for answers, not for losses."""
        hidden_BMD = self.bert(token_BT, mask_BT, segment_BT, position_BT, at_BM=position_BM)
        return jax.nn.log_softmax(self.logits(hidden_BMD), axis=-1)


@cache
def masked_lm(config: MaskedLmConfig) -> Functional:
    """The joint encoder as pure functions; init(key) honours config.init and raises WeightsError as load_bert does."""
    network = functional(lambda rngs: MaskedLm(config, rngs))

    def init(key: jax.Array) -> Params:
        params = network.init(key)
        if config.init != "random":
            loaded, report = load_bert(config.init, config.bert)
            log.info("joint encoder from %s: %s", config.init, report)
            for part, arrays in loaded.items():
                params[part] |= jax.tree.map(jnp.array, arrays)
        return params

    return network._replace(init=init)
