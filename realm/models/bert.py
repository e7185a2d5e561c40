"""BERT, the encoder of queries, blocks and masked text (Devlin et al. 2019, arXiv 1810.04805).

Post-norm Transformer over wordpieces with learned positions and segments. Parameters are float32; with compute_dtype
bfloat16 the matrix products of the layers run in it, while embeddings, the residual stream, LayerNorm, softmax and the
pooled output stay float32. What a real token becomes never depends on padding: a padded token gets attention weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

# Added to the score of a padded token: exp gives an exact 0, yet a row without any real token stays finite.
PADDED = -1e9


class EncoderError(ValueError):
    """An encoder was configured or called in a way that it cannot serve."""


@dataclass(frozen=True)
class BertConfig:
    """Sizes are BERT-base. init_scale: deviation of the truncated normal that weights start from; biases start at 0.

    dropout acts on embeddings and on the output of each sublayer, attention_dropout on attention weights.
    gelu: `tanh`, the approximation of Google's code, or `erf`, what most converted checkpoints name.
    remat: recompute each layer in the backward pass, for memory; results are the same. The layers then run as a loop,
    for which a copy of their parameters is made.
    """

    vocabulary: int = 30522
    width: int = 768
    layers: int = 12
    heads: int = 12
    feedforward: int = 3072
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_epsilon: float = 1e-12
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    gelu: Literal["tanh", "erf"] = "tanh"
    remat: bool = False
    init_scale: float = 0.02

    def __post_init__(self):
        for name in ("vocabulary", "width", "layers", "heads", "feedforward", "positions", "segments"):
            if getattr(self, name) < 1:
                raise EncoderError(f"{name} is {getattr(self, name)}, wanted at least 1")
        if self.width % self.heads:
            raise EncoderError(f"width {self.width} is no multiple of heads {self.heads}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise EncoderError(f"{name} is {getattr(self, name)}, wanted 0 <= {name} < 1")
        if self.compute_dtype not in ("float32", "bfloat16"):
            raise EncoderError(f"compute_dtype is {self.compute_dtype!r}, wanted 'float32' or 'bfloat16'")
        if self.gelu not in ("tanh", "erf"):
            raise EncoderError(f"gelu is {self.gelu!r}, wanted 'tanh' or 'erf'")


def dense(
    config: BertConfig, rngs: nnx.Rngs, inputs: int, outputs: int, dtype: str | None = None, precision=None
) -> nnx.Linear:
    """A dense layer that starts as BERT's do and computes in compute_dtype, or in `dtype` where given."""
    start = nnx.initializers.truncated_normal(config.init_scale)
    dtype = jnp.dtype(dtype or config.compute_dtype)
    return nnx.Linear(inputs, outputs, kernel_init=start, dtype=dtype, precision=precision, rngs=rngs)


def layer_norm(width: int, epsilon: float, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """LayerNorm over the last axis in float32, with the variance taken about the mean."""
    return nnx.LayerNorm(width, epsilon=epsilon, dtype=jnp.float32, use_fast_variance=False, rngs=rngs)


def gelu(config: BertConfig, x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=config.gelu == "tanh")


def drop(rate: float, x: jax.Array, key: jax.Array | None) -> jax.Array:
    """Dropout; without a key or with rate 0 `x` itself, and no random number is drawn."""
    return x if key is None else nnx.Dropout(rate)(x, rngs=key)


class BertLayer(nnx.Module):
    """Self-attention and feed-forward, each followed by dropout, residual and LayerNorm."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        make, width = partial(dense, config, rngs), config.width
        self.config = config
        self.query, self.key, self.value, self.out = (make(width, width) for _ in range(4))
        self.out_norm = layer_norm(width, config.norm_epsilon, rngs)
        self.up, self.down = make(width, config.feedforward), make(config.feedforward, width)
        self.down_norm = layer_norm(width, config.norm_epsilon, rngs)

    def __call__(self, hidden_BTD, bias_BT, at_BM=None, key=None) -> jax.Array:
        """The next hidden states float32, of all T tokens or, with at_BM, of those places only."""
        rate, keys = self.config.dropout, [None] * 3 if key is None else jax.random.split(key, 3)
        asking_BTD = hidden_BTD if at_BM is None else take_places(hidden_BTD, at_BM)
        context_BTD = self.attend(asking_BTD, hidden_BTD, bias_BT, keys[0])
        middle_BTD = self.out_norm(asking_BTD + drop(rate, self.out(context_BTD), keys[1]))
        wide_BTF = gelu(self.config, self.up(middle_BTD))
        return self.down_norm(middle_BTD + drop(rate, self.down(wide_BTF), keys[2]))

    def attend(self, asking_BSD, hidden_BTD, bias_BT, key=None) -> jax.Array:
        """Multi-head attention of S asking places over T tokens, before the output projection.

        The softmax is divided out after the weighted sum, so that only one array [B, H, S, T] lives at a time.
        """
        scale = (self.config.width // self.config.heads) ** -0.5
        q_BHSd = self.split_heads(self.query(asking_BSD) * scale)
        k_BHTd, v_BHTd = self.split_heads(self.key(hidden_BTD)), self.split_heads(self.value(hidden_BTD))
        score_BHST = jnp.einsum("bhsd,bhtd->bhst", q_BHSd, k_BHTd, preferred_element_type=jnp.float32)
        score_BHST = score_BHST + bias_BT[:, None, None, :]
        weight_BHST = jnp.exp(score_BHST - jax.lax.stop_gradient(score_BHST.max(-1, keepdims=True)))
        total_BHS1 = weight_BHST.sum(-1, keepdims=True)
        weight_BHST = drop(self.config.attention_dropout, weight_BHST, key).astype(v_BHTd.dtype)
        sum_BHSd = jnp.einsum("bhst,bhtd->bhsd", weight_BHST, v_BHTd, preferred_element_type=jnp.float32)
        context_BSHd = jnp.swapaxes(sum_BHSd / total_BHS1, 1, 2)
        return context_BSHd.reshape(asking_BSD.shape)

    def split_heads(self, x_BTD) -> jax.Array:
        B, T, D = x_BTD.shape
        return jnp.swapaxes(x_BTD.reshape(B, T, self.config.heads, D // self.config.heads), 1, 2)


class Bert(nnx.Module):
    """The encoder. `pool` and `attend` serve the heads: a [CLS] vector, and the tied output embedding."""

    def __init__(self, config: BertConfig, rngs: nnx.Rngs):
        start = nnx.initializers.truncated_normal(config.init_scale)
        embed = partial(nnx.Embed, features=config.width, embedding_init=start, rngs=rngs)
        self.config = config
        self.word, self.position, self.segment = map(embed, (config.vocabulary, config.positions, config.segments))
        self.norm = layer_norm(config.width, config.norm_epsilon, rngs)
        self.layers = nnx.List([BertLayer(config, rngs) for _ in range(config.layers)])
        self.pooler = dense(config, rngs, config.width, config.width, dtype="float32")

    def __call__(self, token_BT, mask_BT, segment_BT, position_BT=None, key=None, at_BM=None) -> jax.Array:
        """hidden_BTD float32, or hidden_BMD for the places at_BM: then the last layer computes no others.

        token_BT int ids; mask_BT bool, True for real tokens; segment_BT int; position_BT int, 0..T-1 when None, so a
        caller may put padding anywhere. key: typed, for dropout; None = no dropout, nothing drawn. Ids or explicit
        positions outside their table give NaN. EncoderError when T exceeds the position table.
        """
        if not (self.config.dropout or self.config.attention_dropout):
            key = None
        keys = [None] * (self.config.layers + 1) if key is None else jax.random.split(key, self.config.layers + 1)
        hidden_BTD = drop(self.config.dropout, self.embed(token_BT, segment_BT, position_BT), keys[-1])
        bias_BT = jnp.where(mask_BT, 0.0, PADDED)
        *earlier, last = self.layers
        if self.config.remat:
            hidden_BTD = _looped(earlier, hidden_BTD, bias_BT, keys)
            last = jax.checkpoint(last)
        else:
            for layer, each in zip(earlier, keys, strict=False):
                hidden_BTD = layer(hidden_BTD, bias_BT, None, each)
        return last(hidden_BTD, bias_BT, at_BM, keys[-2])

    def embed(self, token_BT, segment_BT, position_BT=None) -> jax.Array:
        """Normalised sum of word, position and segment embeddings, float32 [B, T, D]."""
        T = token_BT.shape[1]
        if position_BT is None and T > self.config.positions:
            raise EncoderError(
                f"sequences of {T} tokens, but the position table has {self.config.positions} rows: "
                "shorten the batch or raise BertConfig.positions"
            )
        place = self.position.embedding[:T] if position_BT is None else self.position(position_BT)
        total_BTD = self.word(token_BT) + place
        # Not a lookup: its gradient would add every token of the batch into the same two rows.
        for row, vector in enumerate(self.segment.embedding[...]):
            total_BTD = total_BTD + jnp.where((segment_BT == row)[..., None], vector, 0.0)
        return self.norm(total_BTD)

    def pool(self, hidden_BTD) -> jax.Array:
        """tanh(dense([CLS])) float32 [B, D]; [CLS] is the first place."""
        return jnp.tanh(self.pooler(hidden_BTD[:, 0]))

    def attend(self, vector_BMD) -> jax.Array:
        """Inner product with every word embedding, float32 [B, M, V]: the tied output layer."""
        dtype = jnp.dtype(self.config.compute_dtype)
        word_VD = self.word.embedding[...].astype(dtype)
        return jnp.einsum("bmd,vd->bmv", vector_BMD.astype(dtype), word_VD, preferred_element_type=jnp.float32)


def take_places(hidden_BTD, at_BM) -> jax.Array:
    """The hidden states at the places at_BM, [B, M, D]; NaN for a place outside the sequence."""
    return jnp.take_along_axis(hidden_BTD, at_BM[..., None], axis=1)


def _looped(layers: list[BertLayer], hidden_BTD, bias_BT, keys) -> jax.Array:
    """The hidden states after `layers`, each of which the backward pass computes again.

    A loop, because XLA for CPU finds what straight code computes twice and keeps the first instead: nothing would be
    saved there, and a plan of memory that is made on a CPU would be wrong for every other device.
    """
    if not layers:
        return hidden_BTD
    graph = nnx.split(layers[0])[0]
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *(nnx.split(layer)[1] for layer in layers))

    @partial(jax.checkpoint, prevent_cse=False)
    def step(hidden_BTD, one):
        state, key = one
        return nnx.merge(graph, state)(hidden_BTD, bias_BT, None, key), None

    key_L = None if keys[0] is None else keys[: len(layers)]
    return jax.lax.scan(step, hidden_BTD, (stacked, key_L))[0]
