"""BERT and its masked-LM head in numpy float64, written from the paper and sharing nothing with the product."""

import math
from functools import partial

import jax
import numpy as np

from realm.models.bert import BertConfig

TINY = BertConfig(
    vocabulary=40,
    width=16,
    layers=2,
    heads=4,
    feedforward=24,
    positions=20,
    dropout=0.0,
    attention_dropout=0.0,
    init_scale=0.5,
)


def shaken(params, seed=0):
    """The same tree with every array moved, so that no bias is 0 and no scale is 1."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.asarray(x) + rng.normal(0, 0.1, x.shape).astype(np.float32), params)


def dense(p, x):
    return x @ p["kernel"] + p["bias"]


def norm(p, x, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * p["scale"] + p["bias"]


def gelu(kind, x):
    if kind == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(p, config, x_TD, real_T):
    """Attention of one sequence, head by head, over its real tokens only."""
    d = config.width // config.heads
    q, k, v = (dense(p[name], x_TD) for name in ("query", "key", "value"))
    heads = []
    for h in range(config.heads):
        own = slice(h * d, (h + 1) * d)
        weight = softmax(q[:, own] @ k[real_T][:, own].T / math.sqrt(d))
        heads.append(weight @ v[real_T][:, own])
    return dense(p["out"], np.concatenate(heads, -1))


def hidden(params, config, token_T, real_T, segment_T, position_T):
    """Hidden states [T, D] of one sequence."""
    p = jax.tree.map(partial(np.asarray, dtype=np.float64), params)
    x = p["word"]["embedding"][token_T] + p["position"]["embedding"][position_T] + p["segment"]["embedding"][segment_T]
    x = norm(p["norm"], x, config.norm_epsilon)
    for i in range(config.layers):
        layer = p["layers"][str(i)]
        x = norm(layer["out_norm"], x + attention(layer, config, x, real_T), config.norm_epsilon)
        wide = gelu(config.gelu, dense(layer["up"], x))
        x = norm(layer["down_norm"], x + dense(layer["down"], wide), config.norm_epsilon)
    return x


def log_probs(params, config, hidden_MD):
    """log p of every wordpiece [M, V] at places with these hidden states."""
    head = jax.tree.map(partial(np.asarray, dtype=np.float64), params["head"])
    word = np.asarray(params["bert"]["word"]["embedding"], np.float64)
    x = norm(head["norm"], gelu(config.gelu, dense(head["dense"], hidden_MD)), config.norm_epsilon)
    return np.log(softmax(x @ word.T + head["bias"]))
