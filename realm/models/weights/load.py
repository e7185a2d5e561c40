"""Filling our parameter trees from a folder: the joint encoder, a tower of the retriever, the span reader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import numpy as np

from realm.models.bert import BertConfig
from realm.models.weights import names
from realm.models.weights.layouts import layout_of, told
from realm.models.weights.names import Place
from realm.models.weights.report import Report, WeightsError
from realm.models.weights.sentence import cosine_parts, is_sentence_folder
from realm.models.weights.settings import check_same_model
from realm.models.weights.source import Source, folder_of, open_source
from realm.protocols import Params

OPTIONAL = ("pooler", "head", "projection", "spans")
COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def load_bert(spec: str, config: BertConfig) -> tuple[Params, Report]:
    """({'bert': ..., 'head': ...} as nested dicts of float32 numpy arrays, report) for `embedded` or `hf:PATH`.

    'pooler' inside 'bert', and 'head', are left out when the file has nothing of them. Of RealmForOpenQA it is the
    reader's encoder. Raises WeightsError, naming both values, when `config` describes another model or a shape differs;
    naming the tensors, when some are missing; and for an output layer that is not tied to the word embeddings.
    """
    check_same_model(spec, config)
    with open_source(folder_of(spec)) as source:
        layout = layout_of(source.names, source.path)
        head = list(names.head(config)) if layout.headed else []
        params, report = _fill(source, layout.joint, layout.name, [*names.encoder(config), *head], head)
        if not layout.headed:
            report = replace(report, initialised=(*report.initialised, "head"))
    return params, report


def load_tower(
    spec: str, config: BertConfig, width: int, side: Literal["query", "block"] | None = None
) -> tuple[Params, Report]:
    """({'bert': ..., 'projection': ..., 'norm': ...}, report): one tower of a retriever whose vectors have `width`.

    'projection' and 'norm' come together or, where the file has neither, not at all. A sentence-transformers folder
    gives both when width is D + 1 (sentence.py); with another width only its BERT is taken. side: which tower of a
    RealmScorer with two; None: the one that serves both. Raises WeightsError as load_bert does, and where side is None
    and the file has two towers that differ.
    """
    check_same_model(spec, config)
    folder = folder_of(spec)
    wanted = [*names.encoder(config), *names.projection(config, width)]
    with open_source(folder) as source:
        layout = layout_of(source.names, source.path)
        prefix = layout.block if side == "block" else layout.query
        params, report = _fill(source, prefix, layout.name, wanted)
        if side is None and layout.query != layout.block:
            _check_one_tower(source, layout.query, layout.block)
    if width == config.width + 1 and "projection" in report.initialised and is_sentence_folder(folder):
        params |= cosine_parts(config.width)
        report = replace(
            report,
            missing=tuple(name for name in report.missing if not name.startswith("cls.")),
            initialised=tuple(part for part in report.initialised if part != "projection"),
            layout=f"{report.layout} of a sentence encoder, with the projection and norm of its cosine",
        )
    return params, report


def load_reader(spec: str, config: BertConfig, width: int) -> tuple[Params, Report]:
    """({'bert': ..., 'head': ...} of a span reader, report); 'head' from a RealmReader or RealmForOpenQA only.

    width: of a span's hidden layer (span_hidden_size). Raises WeightsError as load_bert does.
    """
    check_same_model(spec, config)
    with open_source(folder_of(spec)) as source:
        layout = layout_of(source.names, source.path)
        return _fill(source, layout.joint, layout.name, [*names.encoder(config), *names.spans(config, width)])


def _fill(
    source: Source, prefix: str, layout: str, wanted: list[Place], tied: Iterable[Place] = ()
) -> tuple[Params, Report]:
    """The tree of the wanted places and the report; raises WeightsError for wrong shapes and for what must be there."""
    real = {told(name, prefix): name for name in source.names if name.startswith(prefix)}
    params: Params = {}
    mapped, missing, wrong = [], {}, []
    for place in wanted:
        if place.name not in real:
            missing.setdefault(place.part, []).append(place.name)
            continue
        tensor = source.read(real[place.name])
        if tensor.shape != place.shape:
            wrong.append(f"{place.name} {tensor.shape}, wanted {place.shape}")
            continue
        mapped.append(place)
        names.put(params, place, tensor)
    if wrong:
        raise WeightsError(f"shapes in {source.path} differ from the config: {'; '.join(wrong)}")
    partly = {place.part for place in mapped}
    if absent := [name for part, lost in missing.items() if part not in OPTIONAL or part in partly for name in lost]:
        raise WeightsError(f"{source.path} lacks {absent}")
    used = {place.name for place in mapped} | (_check_tied(source, real) if tied else set())
    report = Report(
        mapped=tuple(place.name for place in mapped),
        unused=tuple(sorted(told(name, prefix) for name in source.names - {real[name] for name in used})),
        missing=tuple(name for lost in missing.values() for name in lost),
        initialised=tuple(missing),
        layout=layout,
        into=tuple("/".join(place.keys) for place in mapped),
    )
    return params, report


def _check_tied(source: Source, real: dict[str, str]) -> set[str]:
    """Names of the output layer's own copies of tied tensors; raises WeightsError where a copy differs."""
    tied = {copy for copy, original in COPIES.items() if copy in real and original in real}
    for copy in tied:
        if not np.array_equal(source.read(real[copy]), source.read(real[COPIES[copy]])):
            raise WeightsError(f"{source.path}: {copy} differs from {COPIES[copy]}, wanted an output layer tied to it")
    return tied


def _check_one_tower(source: Source, query: str, block: str) -> None:
    """Raises WeightsError where the towers under the two prefixes are not one and the same."""
    pairs = [(name, block + name.removeprefix(query)) for name in source.names if name.startswith(query)]
    for one, other in sorted(pairs):
        if other in source.names and not np.array_equal(source.read(one), source.read(other)):
            raise WeightsError(f"{source.path} has two towers ({one} differs from {other}), wanted one or a `side`")
