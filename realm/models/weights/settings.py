"""The configs of ours that a folder's config.json describes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from realm.models.bert import BertConfig
from realm.models.weights.layouts import layout_of
from realm.models.weights.report import WeightsError
from realm.models.weights.sentence import EPSILON, is_sentence_folder
from realm.models.weights.source import folder_of, open_source, read_json

GELU = {"gelu": "erf", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}
CONFIG_NAMES = {
    "vocabulary": "vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feedforward": "intermediate_size",
    "positions": "max_position_embeddings",
    "segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_epsilon": "layer_norm_eps",
    "init_scale": "initializer_range",
}
# What of a config may differ from the weights it is filled with.
FREE = {"dropout", "attention_dropout", "compute_dtype", "remat", "init_scale"}
# The epsilon of the projection's LayerNorm in Google's code, Keras's default. Hugging Face's RealmEmbedder applies
# layer_norm_eps (1e-12) to the same weights and its config has no word for it; our exports add this one.
PROJECTION_EPSILON, PROJECTION_EPSILON_NAME = 1e-3, "projection_layer_norm_eps"
READER_EPSILON = 1e-3


def model_config(spec: str) -> dict[str, Any]:
    """config.json of `embedded` or `hf:PATH`, checked to be that of a BERT or REALM we can compute."""
    folder = folder_of(spec)
    found, path = read_json(folder, "config.json"), folder / "config.json"
    kind = found.get("model_type") if isinstance(found, dict) else None
    if kind not in ("bert", "realm"):
        raise WeightsError(f"{path} is not the config of a BERT: model_type {kind!r}, wanted 'bert' or 'realm'")
    if (place := found.get("position_embedding_type", "absolute")) != "absolute":
        raise WeightsError(f"{path}: position_embedding_type {place!r}, wanted 'absolute'")
    if (act := found.setdefault("hidden_act", "gelu" if kind == "bert" else "gelu_new")) not in GELU:
        raise WeightsError(f"{path}: hidden_act {act!r}, wanted one of {sorted(GELU)}")
    if absent := [name for name in ("vocab_size", "hidden_size", "num_hidden_layers") if name not in found]:
        raise WeightsError(f"{path} lacks {absent}")
    return found


def bert_config(spec: str) -> BertConfig:
    """The BertConfig that the config.json of `embedded` or `hf:PATH` describes; raises WeightsError."""
    found = model_config(spec)
    known = {ours: found[name] for ours, name in CONFIG_NAMES.items() if name in found}
    return BertConfig(gelu=GELU[found["hidden_act"]], **known)


def tower_settings(spec: str) -> dict[str, Any]:
    """What else DualEncoderConfig must say for these weights: fields for dataclasses.replace, {} for a plain BERT.

    REALM: the projection's width, `cls` pooling and norm_epsilon 1e-3, Google's, unless the folder is an export of ours
    that says another. Sentence-transformers: `mean` pooling, blocks in one segment and width D + 1, see
    realm/models/weights/sentence.py.
    """
    found, folder = model_config(spec), folder_of(spec)
    if is_sentence_folder(folder):
        return {"width": found["hidden_size"] + 1, "pooling": "mean", "block_segments": 1, "norm_epsilon": EPSILON}
    with open_source(folder) as source:
        layout = layout_of(source.names, source.path)
        if f"{layout.query}cls.dense.weight" not in source.names:
            return {}
        width = len(source.read(f"{layout.query}cls.dense.bias"))
    epsilon = found.get(PROJECTION_EPSILON_NAME, PROJECTION_EPSILON)
    return {"width": width, "pooling": "cls", "block_segments": 2, "norm_epsilon": epsilon}


def reader_settings(spec: str) -> dict[str, Any]:
    """What SpanReaderConfig must say for the span head of these weights, {} where the folder has none."""
    found = model_config(spec)
    with open_source(folder_of(spec)) as source:
        if not any(name.removeprefix("reader.").startswith("qa_outputs.") for name in source.names):
            return {}
    return {
        "width": found.get("span_hidden_size", 256),
        "answer_length": found.get("max_span_width", 10),
        "norm_epsilon": found.get("reader_layer_norm_eps", READER_EPSILON),
    }


def check_same_model(spec: str, config: BertConfig) -> None:
    """Raises WeightsError, naming both values, where `config` is not the network that these weights are of."""
    stored = bert_config(spec)
    pairs = {f.name: (getattr(stored, f.name), getattr(config, f.name)) for f in fields(config) if f.name not in FREE}
    if different := [f"{name} {there!r}, wanted {ours!r}" for name, (there, ours) in pairs.items() if there != ours]:
        raise WeightsError(
            f"{spec} is not what the config describes: {'; '.join(different)}. Use bert_config({spec!r})"
        )
