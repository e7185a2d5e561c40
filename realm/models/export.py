"""Our parameters as Hugging Face folders: config.json and model.safetensors in the layouts that `weights` reads.

One function a layout. Each gives the report of what was written where, which of our arrays the layout has no place for
(unused) and which tensors the Hugging Face class will miss (missing; it starts those at random). Import of an export
is bit-equal. A vocab.txt is the caller's to put beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from safetensors.numpy import save_file

from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.weights import names
from realm.models.weights.report import Report, WeightsError
from realm.models.weights.sentence import cosine_parts
from realm.models.weights.settings import CONFIG_NAMES, FREE, PROJECTION_EPSILON_NAME
from realm.models.weights.source import WHOLE
from realm.protocols import Params

if TYPE_CHECKING:
    from realm.models.span_reader import SpanReaderConfig

ACT = {"erf": "gelu", "tanh": "gelu_new"}
# What the embedder and the reader of Hugging Face carry along from their conversion and never compute with.
LEFT_OVER = tuple(
    f"cls.predictions.{name}"
    for name in (
        "bias",
        "decoder.bias",
        "decoder.weight",
        "transform.LayerNorm.bias",
        "transform.LayerNorm.weight",
        "transform.dense.bias",
        "transform.dense.weight",
    )
)


class Piece(NamedTuple):
    """One of our trees and where it goes. outer: before all its names; stem: then before those of the encoder."""

    tree: Params
    places: list[names.Place]
    outer: str = ""
    stem: str = ""


def export_bert(params: Params, config: BertConfig, folder: Path) -> Report:
    """`BertModel` from `params["bert"]`: for every BERT tool, names without a prefix.

    This and the other exports raise WeightsError, naming the arrays, where the tree lacks some or has other shapes, and
    where the folder already holds weights.
    """
    piece = Piece(params, list(names.encoder(config)))
    return _write(folder, "BertModel", [piece], _settings(config, "bert"))


def export_masked_lm(params: Params, config: BertConfig, folder: Path) -> Report:
    """`BertForMaskedLM` from a joint encoder's `bert` and `head`."""
    piece = Piece(params, [*names.encoder(config), *names.head(config)], stem="bert.")
    # The class makes no pooler; ours is kept, so that nothing is lost on the way back.
    return _write(folder, "BertForMaskedLM", [piece], _settings(config, "bert"))


def export_sentence_encoder(tower: Params, config: DualEncoderConfig, folder: Path) -> Report:
    """A sentence-transformers folder (mean pooling, normalised) from a tower that load_tower made from one.

    Its classes know one segment: blocks that were embedded in two get other vectors there, queries the same.
    WeightsError where projection or norm are not the ones made there: only the BERT may have been trained.
    """
    made, where = cosine_parts(config.bert.width), list(names.projection(config.bert, config.width))
    same = config.pooling == "mean" and config.width == config.bert.width + 1
    if not same or any(not _equal(names.take(tower, place), names.take(made, place)) for place in where):
        raise WeightsError(
            "found a tower whose projection or norm is not that of a sentence encoder, wanted the one load_tower makes "
            "(mean pooling, width D + 1, both untrained): nothing else is the cosine of mean-pooled vectors"
        )
    piece = Piece({"bert": tower["bert"]}, list(names.encoder(config.bert)))
    report = _write(folder, "BertModel", [piece], _settings(config.bert, "bert"))
    kinds = ("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    pooling = {"word_embedding_dimension": config.bert.width, "pooling_mode_mean_tokens": True}
    off = {f"pooling_mode_{mode}": False for mode in ("cls_token", "max_tokens", "mean_sqrt_len_tokens")}
    _write_json(folder / "modules.json", modules)
    _write_json(folder / "1_Pooling" / "config.json", pooling | off)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": config.bert.positions})
    return report


def export_embedder(tower: Params, config: DualEncoderConfig, folder: Path) -> Report:
    """`RealmEmbedder` from one tower with `cls` pooling; of two towers, each is an embedder of its own.

    The class applies layer_norm_eps to the projection's LayerNorm too, where we have config.norm_epsilon: its vectors
    differ by about half of epsilon over the variance of the projected numbers.
    """
    _check_pooling(config)
    wanted = [*names.encoder(config.bert), *names.projection(config.bert, config.width)]
    report = _write(folder, "RealmEmbedder", [Piece(tower, wanted, stem="realm.")], _retriever_settings(config))
    return replace(report, missing=LEFT_OVER)


def export_knowledge_encoder(params: Params, config: BertConfig, folder: Path, candidates: int = 8) -> Report:
    """`RealmKnowledgeAugEncoder` from a joint encoder's `bert` and `head`. candidates: K, of its loss."""
    piece = Piece(params, [*names.encoder(config), *names.head(config)], stem="realm.")
    settings = _settings(config, "realm") | {"num_candidates": candidates}
    return _write(folder, "RealmKnowledgeAugEncoder", [piece], settings)


def export_open_qa(
    tower: Params,
    config: DualEncoderConfig,
    reader: Params,
    reader_config: SpanReaderConfig,
    vectors_NE: np.ndarray,
    folder: Path,
) -> Report:
    """`RealmForOpenQA` from the question tower, the span reader and the vectors of all blocks.

    Both encoders must be of one kind, for the class has one config; the dropout it names is the tower's.
    """
    _check_pooling(config)
    pairs = {f.name: (getattr(config.bert, f.name), getattr(reader_config.bert, f.name)) for f in fields(config.bert)}
    if unlike := [name for name, (one, other) in pairs.items() if one != other and name not in FREE]:
        raise WeightsError(f"found a tower and a reader with other {unlike}, wanted encoders of one kind")
    if vectors_NE.ndim != 2 or vectors_NE.shape[1] != config.width:
        raise WeightsError(f"found block vectors {vectors_NE.shape}, wanted [N, {config.width}]")
    embed = [*names.encoder(config.bert), *names.projection(config.bert, config.width)]
    read = [*names.encoder(reader_config.bert), *names.spans(reader_config.bert, reader_config.width)]
    settings = _retriever_settings(config) | {
        "num_block_records": len(vectors_NE),
        "span_hidden_size": reader_config.width,
        "max_span_width": reader_config.answer_length,
        "reader_layer_norm_eps": reader_config.norm_epsilon,
    }
    pieces = [Piece(tower, embed, "embedder.", "realm."), Piece(reader, read, "reader.", "realm.")]
    more = {"block_emb": np.ascontiguousarray(vectors_NE, np.float32)}
    report = _write(folder, "RealmForOpenQA", pieces, settings, more)
    return replace(report, missing=tuple(f"{side}.{name}" for side in ("embedder", "reader") for name in LEFT_OVER))


def _write(
    folder: Path, kind: str, pieces: list[Piece], settings: dict[str, Any], more: dict[str, np.ndarray] | None = None
) -> Report:
    """Writes config.json and model.safetensors and tells what went where."""
    folder = Path(folder)
    if (folder / WHOLE).exists():
        raise WeightsError(f"found {WHOLE} in {folder}, wanted a folder without weights to export to")
    tensors, into, unused, wrong = {}, [], [], []
    for piece in pieces:
        for place in piece.places:
            array, path = names.take(piece.tree, place), "/".join(place.keys)
            if array is None or array.shape != place.shape:
                found = "nothing" if array is None else array.shape
                wrong.append(f"{path} {found}, wanted {place.shape} as the file has it")
                continue
            tensors[piece.outer + (piece.stem if place.keys[0] == "bert" else "") + place.name] = array
            into.append(path)
        known = {place.keys for place in piece.places}
        unused += sorted("/".join(keys) for keys in _paths(piece.tree) if keys not in known)
    if wrong:
        raise WeightsError(f"these parameters are no {kind}: {'; '.join(wrong)}")
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", {"architectures": [kind]} | settings)
    # Hugging Face opens no file that does not say for whom it was written.
    save_file(tensors | (more or {}), folder / WHOLE, metadata={"format": "pt"})
    return Report(tuple(tensors), tuple(unused), (), (), kind, tuple(into))


def _settings(config: BertConfig, kind: str) -> dict[str, Any]:
    """config.json of these weights. The padding token is 0, as in every BERT vocabulary (RealmConfig would say 1)."""
    known = {theirs: getattr(config, ours) for ours, theirs in CONFIG_NAMES.items()}
    rest = {"pad_token_id": 0, "position_embedding_type": "absolute", "torch_dtype": "float32"}
    return {"model_type": kind, "hidden_act": ACT[config.gelu]} | known | rest


def _retriever_settings(config: DualEncoderConfig) -> dict[str, Any]:
    own = {"retriever_proj_size": config.width, PROJECTION_EPSILON_NAME: config.norm_epsilon}
    return _settings(config.bert, "realm") | own


def _check_pooling(config: DualEncoderConfig) -> None:
    if config.pooling != "cls":
        raise WeightsError(
            f"found a tower with {config.pooling!r} pooling, wanted 'cls': REALM's embedder has no other"
        )


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _paths(tree: Params) -> Iterator[tuple[str, ...]]:
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        yield tuple(str(step.key) for step in path)


def _equal(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)
