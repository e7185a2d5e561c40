"""Our BERT with its masked-LM head against BertForMaskedLM: one set of random weights, the same numbers."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertModel

from realm.models.bert import Bert
from realm.models.export import export_bert, export_masked_lm
from realm.models.functional import functional
from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.weights import WeightsError, bert_config, load_bert, names
from tests.parity.hf_models import (
    bert_sizes,
    gradient_tree,
    near,
    near_gradients,
    reload,
    same_answer,
    same_weights,
    save,
    shaken_model,
)

RNG = np.random.default_rng(0)
LENGTH_B = np.array([11, 6, 9])
MASK_BT = np.arange(11) < LENGTH_B[:, None]
TOKEN_BT = np.where(MASK_BT, RNG.integers(2, 60, (3, 11)), 0)
SEGMENT_BT = ((np.arange(11) >= 4) & MASK_BT).astype(int)
POSITION_BM = np.array([[1, 5], [2, 4], [8, 3]])
TARGET_BM = RNG.integers(2, 60, (3, 2))
THEIRS = dict(
    input_ids=torch.tensor(TOKEN_BT),
    attention_mask=torch.tensor(MASK_BT.astype(int)),
    token_type_ids=torch.tensor(SEGMENT_BT),
)
ACTS = pytest.mark.parametrize("act", ["gelu", "gelu_new"])


@cache
def model_of(act):
    return shaken_model(BertForMaskedLM, bert_sizes(hidden_act=act))


def labels():
    label_BT = np.full(TOKEN_BT.shape, -100)
    np.put_along_axis(label_BT, POSITION_BM, TARGET_BM, axis=1)
    return torch.tensor(label_BT)


@ACTS
def test_logits_loss_and_gradients_of_masked_words(act, tmp_path):
    model = model_of(act)
    spec = save(model, tmp_path)
    config = bert_config(spec)
    params, report = load_bert(spec, config)
    assert report.layout == "BertForMaskedLM" and report.initialised == ("pooler",) and report.unused == ()
    params["bert"]["pooler"] = {"kernel": np.zeros((32, 32), np.float32), "bias": np.zeros(32, np.float32)}
    network = masked_lm(MaskedLmConfig(config))

    model.zero_grad()
    theirs = model(**THEIRS, labels=labels())
    theirs.loss.backward()

    hidden_BTD = network.apply(params, "hidden", TOKEN_BT, MASK_BT, SEGMENT_BT)
    near(np.asarray(network.apply(params, "logits", hidden_BTD))[MASK_BT], theirs.logits.detach().numpy()[MASK_BT])

    def loss(params):
        args = TOKEN_BT, MASK_BT, SEGMENT_BT, POSITION_BM, TARGET_BM
        return -network.apply(params, "predict", *args).mean()

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    near(value, theirs.loss)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(grads["bert"].pop("pooler")))
    places = [p for p in (*names.encoder(config), *names.head(config)) if p.part != "pooler"]
    near_gradients(grads, gradient_tree(model, places, stem="bert."))


@ACTS
def test_an_exported_masked_lm_answers_the_same_there(act, tmp_path):
    spec = save(model_of(act), tmp_path / "theirs")
    config = bert_config(spec)
    params = masked_lm(MaskedLmConfig(config, spec)).init(jax.random.key(0))
    export_masked_lm(params, config, tmp_path / "ours")
    again, missing, unexpected = reload(BertForMaskedLM, tmp_path / "ours")
    assert missing == [] and unexpected == ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]
    same_weights(again, model_of(act))
    same_answer(again(**THEIRS).logits, model_of(act)(**THEIRS).logits)


def test_an_exported_encoder_answers_the_same_there(tmp_path):
    model = shaken_model(BertModel, bert_sizes())
    spec = save(model, tmp_path / "theirs")
    config = bert_config(spec)
    params, report = load_bert(spec, config)
    assert report.layout == "BertModel" and report.initialised == ("head",)
    network = functional(lambda rngs: Bert(config, rngs))
    hidden_BTD = network.apply(params["bert"], "__call__", TOKEN_BT, MASK_BT, SEGMENT_BT)
    theirs = model(**THEIRS)
    near(np.asarray(hidden_BTD)[MASK_BT], theirs.last_hidden_state.detach().numpy()[MASK_BT])
    near(network.apply(params["bert"], "pool", jnp.asarray(hidden_BTD)), theirs.pooler_output)
    export_bert(params, config, tmp_path / "ours")
    again, missing, unexpected = reload(BertModel, tmp_path / "ours")
    assert missing == unexpected == []
    same_weights(again, model)
    same_answer(again(**THEIRS).pooler_output, theirs.pooler_output)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_pickled_file_gives_the_same_weights(tmp_path, dtype):
    model = shaken_model(BertForMaskedLM, bert_sizes(), seed=1).to(dtype)
    model.save_pretrained(tmp_path / "bin", safe_serialization=False)
    model.save_pretrained(tmp_path / "safe")
    assert not list((tmp_path / "bin").glob("*.safetensors"))
    config = bert_config(f"hf:{tmp_path / 'bin'}")
    found, report = load_bert(f"hf:{tmp_path / 'bin'}", config)
    expected, _ = load_bert(f"hf:{tmp_path / 'safe'}", config)
    assert jax.tree.structure(found) == jax.tree.structure(expected) and report.unused == ()
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(found))


def test_shards_give_the_same_weights(tmp_path):
    model = shaken_model(BertForMaskedLM, bert_sizes(), seed=1)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    spec = save(model, tmp_path / "whole")
    found, expected = (load_bert(s, bert_config(spec))[0] for s in (f"hf:{tmp_path / 'shards'}", spec))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    spec = save(shaken_model(BertModel, bert_sizes()), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="pytorch_model.bin is no file of tensors"):
        load_bert(spec, bert_config(spec))
    torch.save({"step": 3}, tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="wanted a dict of tensors"):
        load_bert(spec, bert_config(spec))
