"""The reader of open-domain question answering: BERT, and a score for every span of the block (ORQA, arXiv 1906.00300).

score(s, e) = dense(LayerNorm(relu(S h_s + E h_e))), as the released code of ORQA computes it: start and end are
projected apart and added, where the paper writes a concatenation; LayerNorm has Keras's epsilon 1e-3. Spans are laid
out by width, [W, T]: entry (w, t) is the span from wordpiece t to wordpiece t + w.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
from flax import nnx

from realm.models.bert import Bert, BertConfig, EncoderError, dense, layer_norm
from realm.models.functional import Functional, functional
from realm.models.weights import check_spec, load_reader
from realm.protocols import Params

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SpanReaderConfig:
    """width: of a span's hidden layer. answer_length: W, wordpieces of the longest span. init: `random`, `embedded` or
    `hf:PATH` as in DualEncoderConfig; the span head starts at random unless the folder is of a REALM reader, which
    weights.reader_settings describes."""

    bert: BertConfig = field(default_factory=BertConfig)
    width: int = 256
    answer_length: int = 10
    norm_epsilon: float = 1e-3
    init: str = "random"

    def __post_init__(self):
        for name in ("width", "answer_length"):
            if getattr(self, name) < 1:
                raise EncoderError(f"{name} is {getattr(self, name)}, wanted at least 1")
        check_spec(self.init)


class SpanHead(nnx.Module):
    """Hidden states of T wordpieces into scores of all their spans."""

    def __init__(self, config: SpanReaderConfig, rngs: nnx.Rngs):
        self.config = config
        self.dense = dense(config.bert, rngs, config.bert.width, 2 * config.width)
        self.norm = layer_norm(config.width, config.norm_epsilon, rngs)
        self.out = dense(config.bert, rngs, config.width, 1, dtype="float32")

    def __call__(self, hidden_FTD: jax.Array) -> jax.Array:
        """score_FWT float32. Where t + w is past the last column there is no span; the caller masks these entries."""
        start_FTD, end_FTD = jnp.split(self.dense(hidden_FTD), 2, axis=-1)
        widths, T = self.config.answer_length, hidden_FTD.shape[1]
        end_FTD = jnp.pad(end_FTD, ((0, 0), (0, widths - 1), (0, 0)))

        # One width after the other, and again in the backward pass: all spans' hidden layers at once take W times
        # the memory, for next to no time.
        @jax.checkpoint
        def of_width(w: jax.Array) -> jax.Array:
            wide_FTD = start_FTD + jax.lax.dynamic_slice_in_dim(end_FTD, w, T, axis=1)
            return self.out(self.norm(jax.nn.relu(wide_FTD)))[..., 0]

        return jnp.moveaxis(jax.lax.map(of_width, jnp.arange(widths)), 0, 1)


class SpanReader(nnx.Module):
    """Parameters: `bert` and `head`."""

    def __init__(self, config: SpanReaderConfig, rngs: nnx.Rngs):
        self.bert = Bert(config.bert, rngs)
        self.head = SpanHead(config, rngs)

    def spans(self, token_BT, mask_BT, segment_BT, position_BT=None, key=None, *, skip: int = 0) -> jax.Array:
        """score_BWT of the spans of columns `skip` .. T-1 of each input, t counting from `skip`; the rest as in Bert.

        Every span has a number, also one over padding: the caller knows which are real.
        """
        return self.head(self.bert(token_BT, mask_BT, segment_BT, position_BT, key)[:, skip:])


@cache
def span_reader(config: SpanReaderConfig) -> Functional:
    """The reader as pure functions; init(key) honours config.init and raises WeightsError as load_reader does."""
    network = functional(lambda rngs: SpanReader(config, rngs))

    def init(key: jax.Array) -> Params:
        params = network.init(key)
        if config.init != "random":
            loaded, report = load_reader(config.init, config.bert, config.width)
            log.info("span reader from %s: %s", config.init, report)
            for part, arrays in loaded.items():
                params[part] |= jax.tree.map(jnp.array, arrays)
        return params

    return network._replace(init=init)
