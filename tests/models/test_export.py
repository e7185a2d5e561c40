import json
from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from realm.models.dual_encoder import DualEncoderConfig
from realm.models.export import (
    export_bert,
    export_embedder,
    export_knowledge_encoder,
    export_masked_lm,
    export_open_qa,
    export_sentence_encoder,
)
from realm.models.span_reader import SpanReaderConfig
from realm.models.weights import (
    WeightsError,
    bert_config,
    load_bert,
    load_reader,
    load_tower,
    reader_settings,
    tower_settings,
)
from realm.models.weights.sentence import cosine_parts
from tests.models.hf_folders import (
    BERT,
    JOINT,
    QUERY,
    READER,
    SETTINGS,
    SPANS,
    TOWER,
    embedder,
    encoder,
    head,
    reader,
    same,
)

VECTORS_NE = np.random.default_rng(4).normal(size=(7, 6)).astype(np.float32)
SENTENCE = DualEncoderConfig(BERT, width=17, pooling="mean", block_segments=1, norm_epsilon=1e-12)
SENTENCE_TOWER = {"bert": QUERY["bert"]} | cosine_parts(16)
MADE = {
    "BertModel": (lambda folder: export_bert(JOINT, BERT, folder), encoder(JOINT, "")),
    "BertForMaskedLM": (lambda folder: export_masked_lm(JOINT, BERT, folder), encoder(JOINT, "bert.") | head(JOINT)),
    "RealmEmbedder": (lambda folder: export_embedder(QUERY, TOWER, folder), embedder(QUERY)),
    "RealmKnowledgeAugEncoder": (
        lambda folder: export_knowledge_encoder(JOINT, BERT, folder, candidates=3),
        encoder(JOINT, "realm.") | head(JOINT),
    ),
    "RealmForOpenQA": (
        lambda folder: export_open_qa(QUERY, TOWER, SPANS, READER, VECTORS_NE, folder),
        embedder(QUERY, "embedder.") | reader(SPANS, "reader.") | {"block_emb": VECTORS_NE},
    ),
    "sentence": (lambda folder: export_sentence_encoder(SENTENCE_TOWER, SENTENCE, folder), encoder(QUERY, "")),
}


@pytest.mark.parametrize("layout", MADE)
def test_an_export_has_the_names_and_tensors_of_its_layout(tmp_path, layout):
    export, expected = MADE[layout]
    report = export(tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert found.keys() == expected.keys() and set(report.mapped) == expected.keys() - {"block_emb"}
    for name, array in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    with safe_open(tmp_path / "out" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    shared = set(SETTINGS) - {"model_type", "span_hidden_size", "max_span_width", "reader_layer_norm_eps"}
    assert {name: config[name] for name in shared} == {name: SETTINGS[name] for name in shared}
    assert config["architectures"] == ["BertModel" if layout == "sentence" else layout]
    assert (config["hidden_act"], config["pad_token_id"]) == ("gelu_new", 0)
    assert config["model_type"] == ("realm" if layout.startswith("Realm") else "bert")
    assert bert_config(f"hf:{tmp_path / 'out'}") == BERT


@pytest.mark.parametrize("layout", ["BertForMaskedLM", "RealmKnowledgeAugEncoder"])
def test_a_joint_encoder_comes_back_bit_for_bit(tmp_path, layout):
    report = MADE[layout][0](tmp_path)
    found, read = load_bert(f"hf:{tmp_path}", BERT)
    same(found, JOINT)
    assert read.layout == layout and read.unused == read.missing == report.unused == report.missing == ()
    assert dict(zip(read.mapped, read.into, strict=True))["cls.predictions.bias"] == "head/bias"


def test_an_encoder_comes_back_bit_for_bit(tmp_path):
    report = export_bert(JOINT, BERT, tmp_path)
    same(load_bert(f"hf:{tmp_path}", BERT)[0], {"bert": JOINT["bert"]})
    assert report.unused == ("head/bias", "head/dense/bias", "head/dense/kernel", "head/norm/bias", "head/norm/scale")


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6])
def test_a_tower_comes_back_bit_for_bit_with_its_epsilon(tmp_path, epsilon):
    config = replace(TOWER, norm_epsilon=epsilon)
    report = export_embedder(QUERY, config, tmp_path)
    spec = f"hf:{tmp_path}"
    same(load_tower(spec, BERT, 6)[0], QUERY)
    assert DualEncoderConfig(bert_config(spec), **tower_settings(spec)) == config
    assert "cls.predictions.decoder.weight" in report.missing


def test_an_answering_model_comes_back_bit_for_bit(tmp_path):
    MADE["RealmForOpenQA"][0](tmp_path)
    spec = f"hf:{tmp_path}"
    same(load_tower(spec, BERT, 6)[0], QUERY)
    same(load_reader(spec, BERT, 5)[0], SPANS)
    assert SpanReaderConfig(bert_config(spec), **reader_settings(spec)) == READER
    assert json.loads((tmp_path / "config.json").read_text())["num_block_records"] == 7


def test_a_sentence_encoder_comes_back_bit_for_bit(tmp_path):
    MADE["sentence"][0](tmp_path)
    spec = f"hf:{tmp_path}"
    same(load_tower(spec, BERT, 17)[0], SENTENCE_TOWER)
    assert DualEncoderConfig(bert_config(spec), **tower_settings(spec)) == SENTENCE


def test_arrays_of_the_device_are_exported_too(tmp_path):
    export_bert(jax.tree.map(jax.numpy.asarray, JOINT), BERT, tmp_path)
    same(load_bert(f"hf:{tmp_path}", BERT)[0], {"bert": JOINT["bert"]})


@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_the_config_comes_back(tmp_path, gelu):
    config = replace(BERT, gelu=gelu, dropout=0.25, attention_dropout=0.5, norm_epsilon=1e-7)
    export_bert(JOINT, config, tmp_path)
    assert bert_config(f"hf:{tmp_path}") == config


def test_what_a_tree_lacks_or_has_in_another_shape_is_named_and_nothing_written(tmp_path):
    bert = {name: part for name, part in JOINT["bert"].items() if name != "pooler"}
    with pytest.raises(WeightsError, match="no BertModel: bert/pooler/kernel nothing, wanted .16, 16"):
        export_bert({"bert": bert}, BERT, tmp_path / "out")
    with pytest.raises(WeightsError, match=r"bert/word/embedding \(40, 16\), wanted \(41, 16\)"):
        export_bert(JOINT, replace(BERT, vocabulary=41), tmp_path / "out")
    with pytest.raises(WeightsError, match=r"projection/kernel \(6, 16\), wanted \(8, 16\) as the file has it"):
        export_embedder(QUERY, replace(TOWER, width=8), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_weights_that_are_there_are_not_overwritten(tmp_path):
    export_bert(JOINT, BERT, tmp_path)
    with pytest.raises(WeightsError, match="found model.safetensors in .*, wanted a folder without weights"):
        export_masked_lm(JOINT, BERT, tmp_path)


def test_a_mean_pooled_tower_is_no_realm_embedder(tmp_path):
    mean = replace(TOWER, pooling="mean")
    with pytest.raises(WeightsError, match="with 'mean' pooling, wanted 'cls'"):
        export_embedder(QUERY, mean, tmp_path)
    with pytest.raises(WeightsError, match="with 'mean' pooling, wanted 'cls'"):
        export_open_qa(QUERY, mean, SPANS, READER, VECTORS_NE, tmp_path)


@pytest.mark.parametrize("change", ["projection", "norm", "width", "pooling"])
def test_a_tower_that_is_no_cosine_is_no_sentence_encoder(tmp_path, change):
    tower, config = SENTENCE_TOWER, SENTENCE
    if change in ("projection", "norm"):
        tower = tower | {change: tower[change] | {"bias": tower[change]["bias"] + 1}}
    else:
        config = replace(config, **{"width": {"width": 6}, "pooling": {"pooling": "cls"}}[change])
    with pytest.raises(WeightsError, match="not that of a sentence encoder"):
        export_sentence_encoder(tower, config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_parts_of_an_answering_model_must_fit(tmp_path):
    with pytest.raises(WeightsError, match=r"block vectors \(6, 7\), wanted \[N, 6\]"):
        export_open_qa(QUERY, TOWER, SPANS, READER, VECTORS_NE.T, tmp_path)
    other = replace(READER, bert=replace(BERT, layers=1, dropout=0.5))
    with pytest.raises(WeightsError, match=r"with other \['layers'\], wanted encoders of one kind"):
        export_open_qa(QUERY, TOWER, SPANS, other, VECTORS_NE, tmp_path)
