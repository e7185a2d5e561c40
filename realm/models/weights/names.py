"""Which tensor of a Hugging Face file holds which of our arrays: the one table that import and export share.

A place is (our path, name in the file without the layout's prefixes, shape in the file). Kernels are stored transposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from realm.models.bert import BertConfig
from realm.protocols import Params


class Place(NamedTuple):
    keys: tuple[str, ...]
    name: str
    shape: tuple[int, ...]

    @property
    def part(self) -> str:
        """What is there as a whole or not at all: a masked-LM file has no pooler, a plain encoder file no head."""
        if self.name.startswith("qa_outputs."):
            return "spans"
        if self.keys[0] == "bert":
            return "pooler" if self.keys[1] == "pooler" else "encoder"
        return "projection" if self.keys[0] == "norm" else self.keys[0]


def norm(keys: tuple[str, ...], name: str, width: int) -> Iterator[Place]:
    yield Place((*keys, "scale"), f"{name}.weight", (width,))
    yield Place((*keys, "bias"), f"{name}.bias", (width,))


def dense(keys: tuple[str, ...], name: str, inputs: int, outputs: int) -> Iterator[Place]:
    yield Place((*keys, "kernel"), f"{name}.weight", (outputs, inputs))
    yield Place((*keys, "bias"), f"{name}.bias", (outputs,))


def encoder(config: BertConfig) -> Iterator[Place]:
    """BERT with its pooler, under `bert`."""
    D, F = config.width, config.feedforward
    tables = ("word", "word", config.vocabulary), ("position", "position", config.positions)
    for ours, name, rows in (*tables, ("segment", "token_type", config.segments)):
        yield Place(("bert", ours, "embedding"), f"embeddings.{name}_embeddings.weight", (rows, D))
    yield from norm(("bert", "norm"), "embeddings.LayerNorm", D)
    for i in range(config.layers):
        ours, name = ("bert", "layers", str(i)), f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            yield from dense((*ours, part), f"{name}.attention.self.{part}", D, D)
        yield from dense((*ours, "out"), f"{name}.attention.output.dense", D, D)
        yield from norm((*ours, "out_norm"), f"{name}.attention.output.LayerNorm", D)
        yield from dense((*ours, "up"), f"{name}.intermediate.dense", D, F)
        yield from dense((*ours, "down"), f"{name}.output.dense", F, D)
        yield from norm((*ours, "down_norm"), f"{name}.output.LayerNorm", D)
    yield from dense(("bert", "pooler"), "pooler.dense", D, D)


def head(config: BertConfig) -> Iterator[Place]:
    """The masked-LM head, under `head`; its output layer is the word table."""
    yield from dense(("head", "dense"), "cls.predictions.transform.dense", config.width, config.width)
    yield from norm(("head", "norm"), "cls.predictions.transform.LayerNorm", config.width)
    yield Place(("head", "bias"), "cls.predictions.bias", (config.vocabulary,))


def projection(config: BertConfig, width: int) -> Iterator[Place]:
    """The retriever's projection to `width` and its LayerNorm, under `projection` and `norm`."""
    yield from dense(("projection",), "cls.dense", config.width, width)
    yield from norm(("norm",), "cls.LayerNorm", width)


def spans(config: BertConfig, width: int) -> Iterator[Place]:
    """The span reader's head, under `head`: start and end half side by side, LayerNorm, one score."""
    yield from dense(("head", "dense"), "qa_outputs.dense_intermediate", config.width, 2 * width)
    yield from norm(("head", "norm"), "qa_outputs.layer_normalization", width)
    yield from dense(("head", "out"), "qa_outputs.dense_output", width, 1)


def put(tree: Params, place: Place, tensor: np.ndarray) -> None:
    """Stores the file's tensor under our path as a float32 array of its own."""
    for key in place.keys[:-1]:
        tree = tree.setdefault(key, {})
    turned = tensor.T if place.keys[-1] == "kernel" else tensor
    tree[place.keys[-1]] = np.array(turned, np.float32, order="C")


def take(tree: Params, place: Place) -> np.ndarray | None:
    """The array under our path as the file wants it, float32; None where the tree has none."""
    for key in place.keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if tree is None:
        return None
    array = np.asarray(tree, np.float32)
    return np.ascontiguousarray(array.T if place.keys[-1] == "kernel" else array)
