"""Pretrained BERT weights from Hugging Face folders, or from the small BERT in the package.

Files name tensors as in `bert.encoder.layer.0.attention.self.query.weight`, with or without the prefix `bert.`, with
LayerNorm's `weight`/`bias` or their old names `gamma`/`beta`; kernels are stored transposed. Nothing is dropped in
silence: the report lists what was mapped, unused, missing and left as initialised, and what must not be missing raises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from realm.models.bert import BertConfig
from realm.protocols import Params

EMBEDDED = Path(__file__).parent / "data" / "bert-tiny"
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
# A masked-LM file has no pooler and a plain encoder file no head: such a part is there as a whole or not at all.
OPTIONAL = ("pooler", "head")


class WeightsError(ValueError):
    """Pretrained weights are absent, incomplete, or of another model than the config describes."""


@dataclass(frozen=True)
class Report:
    """Tensor names of the file that were mapped and unused, names it lacks, and our parts left as initialised."""

    mapped: tuple[str, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    initialised: tuple[str, ...]

    def __str__(self) -> str:
        rest = (f"{name} [{', '.join(getattr(self, name))}]" for name in ("unused", "missing", "initialised"))
        return ", ".join([f"mapped {len(self.mapped)}", *rest])


def check_spec(spec: str) -> None:
    """Raises WeightsError unless `spec` is `random`, `embedded` or `hf:PATH`; opens nothing."""
    if spec not in ("random", "embedded") and not (spec.startswith("hf:") and len(spec) > 3):
        raise WeightsError(f"init is {spec!r}, wanted 'random', 'embedded' or 'hf:PATH' with the folder of a BERT")


def bert_config(spec: str) -> BertConfig:
    """The BertConfig that the config.json of `embedded` or `hf:PATH` describes; raises WeightsError."""
    path = _file(spec, "config.json")
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise WeightsError(f"{path} is no JSON: {error}") from error
    kind = found.get("model_type") if isinstance(found, dict) else None
    if kind != "bert":
        raise WeightsError(f"{path} is not the config of a BERT: model_type {kind!r}, wanted 'bert'")
    if (place := found.get("position_embedding_type", "absolute")) != "absolute":
        raise WeightsError(f"{path}: position_embedding_type {place!r}, wanted 'absolute'")
    if (act := found.get("hidden_act", "gelu")) not in GELU:
        raise WeightsError(f"{path}: hidden_act {act!r}, wanted one of {sorted(GELU)}")
    if absent := [name for name in ("vocab_size", "hidden_size", "num_hidden_layers") if name not in found]:
        raise WeightsError(f"{path} lacks {absent}")
    return BertConfig(gelu=GELU[act], **{ours: found[name] for ours, name in CONFIG_NAMES.items() if name in found})


def load_bert(spec: str, config: BertConfig) -> tuple[Params, Report]:
    """({'bert': ..., 'head': ...} as nested dicts of float32 numpy arrays, report) for `embedded` or `hf:PATH`.

    'pooler' inside 'bert', and 'head', are left out when the file has nothing of them. Raises WeightsError, naming both
    values, when `config` describes another model or a shape differs; naming the tensors, when some are missing; and for
    an output layer that is not tied to the word embeddings.
    """
    _check_same_model(spec, config)
    path = _file(spec, "model.safetensors")
    try:
        tensors = {_modern(name): tensor for name, tensor in load_file(path).items()}
    except SafetensorError as error:
        raise WeightsError(f"{path} is no safetensors file ({error}); is it a Git LFS pointer?") from error
    params: Params = {"bert": {}, "head": {}}
    mapped, missing, wrong = [], {}, []
    for keys, name, shape in _wanted(config):
        if name not in tensors:
            missing.setdefault(_part(keys), []).append(name)
        elif tensors[name].shape != shape:
            wrong.append(f"{name} {tensors[name].shape}, wanted {shape}")
        else:
            mapped.append(name)
            tensor = tensors[name].T if keys[-1] == "kernel" else tensors[name]
            _put(params, keys, np.array(tensor, np.float32, order="C"))
    if wrong:
        raise WeightsError(f"shapes in {path} differ from the config: {'; '.join(wrong)}")
    whole = {_part(keys) for keys, name, _ in _wanted(config) if name in tensors}
    if absent := [name for part, names in missing.items() if part not in OPTIONAL or part in whole for name in names]:
        raise WeightsError(f"{path} lacks {absent}")
    if not params["head"]:
        del params["head"]
    tied = _check_tied(tensors, path)
    report = Report(
        mapped=tuple(mapped),
        unused=tuple(sorted(tensors.keys() - set(mapped) - tied)),
        missing=tuple(name for names in missing.values() for name in names),
        initialised=tuple(missing),
    )
    return params, report


def _file(spec: str, name: str) -> Path:
    check_spec(spec)
    if spec == "random":
        raise WeightsError("'random' names no weights, wanted 'embedded' or 'hf:PATH'")
    folder = EMBEDDED if spec == "embedded" else Path(spec.removeprefix("hf:")).expanduser()
    if not (folder / name).is_file():
        there = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else "no such folder"
        raise WeightsError(f"no {name} in {folder} ({there}); wanted a folder with config.json and model.safetensors")
    return folder / name


def _check_same_model(spec: str, config: BertConfig) -> None:
    stored = bert_config(spec)
    pairs = {f.name: (getattr(stored, f.name), getattr(config, f.name)) for f in fields(config) if f.name not in FREE}
    if different := [f"{name} {there!r}, wanted {ours!r}" for name, (there, ours) in pairs.items() if there != ours]:
        raise WeightsError(
            f"{spec} is not what the config describes: {'; '.join(different)}. Use bert_config({spec!r})"
        )


def _modern(name: str) -> str:
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _wanted(config: BertConfig) -> Iterator[tuple[tuple[str, ...], str, tuple[int, ...]]]:
    """(our path, name in the file without prefix, shape in the file) of every tensor."""
    D, F, V = config.width, config.feedforward, config.vocabulary

    def norm(keys, name):
        yield (*keys, "scale"), f"{name}.weight", (D,)
        yield (*keys, "bias"), f"{name}.bias", (D,)

    def dense(keys, name, inputs=D, outputs=D):
        yield (*keys, "kernel"), f"{name}.weight", (outputs, inputs)
        yield (*keys, "bias"), f"{name}.bias", (outputs,)

    for ours, name, rows in (
        ("word", "word", V),
        ("position", "position", config.positions),
        ("segment", "token_type", config.segments),
    ):
        yield ("bert", ours, "embedding"), f"embeddings.{name}_embeddings.weight", (rows, D)
    yield from norm(("bert", "norm"), "embeddings.LayerNorm")
    for i in range(config.layers):
        ours, name = ("bert", "layers", str(i)), f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            yield from dense((*ours, part), f"{name}.attention.self.{part}")
        yield from dense((*ours, "out"), f"{name}.attention.output.dense")
        yield from norm((*ours, "out_norm"), f"{name}.attention.output.LayerNorm")
        yield from dense((*ours, "up"), f"{name}.intermediate.dense", D, F)
        yield from dense((*ours, "down"), f"{name}.output.dense", F, D)
        yield from norm((*ours, "down_norm"), f"{name}.output.LayerNorm")
    yield from dense(("bert", "pooler"), "pooler.dense")
    yield from dense(("head", "dense"), "cls.predictions.transform.dense")
    yield from norm(("head", "norm"), "cls.predictions.transform.LayerNorm")
    yield ("head", "bias"), "cls.predictions.bias", (V,)


def _part(keys: tuple[str, ...]) -> str:
    return "head" if keys[0] == "head" else "pooler" if keys[1] == "pooler" else "encoder"


def _put(tree: Params, keys: tuple[str, ...], value: np.ndarray) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {})
    tree[keys[-1]] = value


def _check_tied(tensors: dict[str, np.ndarray], path: Path) -> set[str]:
    """Names of the output layer's own copies of tied tensors; raises WeightsError where a copy differs."""
    copies = {
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    tied = {copy for copy, original in copies.items() if copy in tensors and original in tensors}
    for copy in tied:
        if not np.array_equal(tensors[copy], tensors[copies[copy]]):
            raise WeightsError(f"{path}: {copy} differs from {copies[copy]}, wanted an output layer tied to it")
    return tied
