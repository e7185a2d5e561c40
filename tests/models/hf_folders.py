"""Hugging Face folders written from trees of ours, with the names spelled out here and not taken from the product."""

import json
from dataclasses import replace

import jax
import numpy as np
from safetensors.numpy import save_file

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.span_reader import SpanReaderConfig, span_reader
from tests.models.bert_reference import TINY

BERT = replace(TINY, gelu="tanh")
TOWER = DualEncoderConfig(BERT, width=6)
READER = SpanReaderConfig(BERT, width=5, answer_length=3)
COMMON = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.5,
}
SETTINGS = COMMON | {
    "model_type": "realm",
    "span_hidden_size": 5,
    "max_span_width": 3,
    "reader_layer_norm_eps": 1e-3,
}
LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "out_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "down_norm": "output.LayerNorm",
}


def random_tree(network, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), network.shapes)


JOINT = random_tree(masked_lm(MaskedLmConfig(BERT)), 0)
QUERY, BLOCK = (random_tree(dual_encoder(TOWER), seed)["tower"] for seed in (1, 2))
SPANS = random_tree(span_reader(READER), 3)


def module(name, arrays):
    """A dense layer, a norm or a table under its name there."""
    if "kernel" in arrays:
        return {f"{name}.weight": np.ascontiguousarray(arrays["kernel"].T), f"{name}.bias": arrays["bias"]}
    if "scale" in arrays:
        return {f"{name}.weight": arrays["scale"], f"{name}.bias": arrays["bias"]}
    return {f"{name}.weight": arrays["embedding"]}


def encoder(tree, prefix):
    bert, out = tree["bert"], {}
    for ours, name in (("word", "word"), ("position", "position"), ("segment", "token_type")):
        out |= module(f"{prefix}embeddings.{name}_embeddings", bert[ours])
    out |= module(f"{prefix}embeddings.LayerNorm", bert["norm"])
    for i, layer in bert["layers"].items():
        for ours, name in LAYER.items():
            out |= module(f"{prefix}encoder.layer.{i}.{name}", layer[ours])
    return out | module(f"{prefix}pooler.dense", bert["pooler"])


def head(tree, prefix=""):
    parts = {"dense": tree["head"]["dense"], "LayerNorm": tree["head"]["norm"]}
    named = [module(f"{prefix}cls.predictions.transform.{name}", part) for name, part in parts.items()]
    return named[0] | named[1] | {f"{prefix}cls.predictions.bias": tree["head"]["bias"]}


def embedder(tower, outer=""):
    projection = module(f"{outer}cls.dense", tower["projection"]) | module(f"{outer}cls.LayerNorm", tower["norm"])
    return encoder(tower, f"{outer}realm.") | projection


def reader(tree, outer=""):
    out = encoder(tree, f"{outer}realm.")
    parts = {"dense_intermediate": "dense", "layer_normalization": "norm", "dense_output": "out"}
    for name, ours in parts.items():
        out |= module(f"{outer}qa_outputs.{name}", tree["head"][ours])
    return out


def write(folder, tensors, **settings):
    return write_with(folder, tensors, SETTINGS | settings)


def write_with(folder, tensors, settings):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(tensors, folder / "model.safetensors")
    return f"hf:{folder}"


def same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
