import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.weights import WeightsError, bert_config, load_bert, load_tower, tower_settings
from realm.models.weights.sentence import SCALE, isometry
from tests.models.bert_reference import hidden
from tests.models.hf_folders import BERT, JOINT, encoder, same, write

RNG = np.random.default_rng(0)
TOKEN_NT = RNG.integers(1, 40, (4, 12)).astype(np.int32)
LENGTH_N = np.array([12, 4, 9, 3])
KINDS = ("Transformer", "Pooling", "Normalize")


def sentence_folder(folder, kinds=KINDS, mode="mean_tokens"):
    spec = write(folder, encoder(JOINT, ""), model_type="bert", hidden_act="gelu_new")
    modules = [{"path": f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {f"pooling_mode_{name}": name == mode for name in ("cls_token", "mean_tokens", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16} | modes))
    return spec


@pytest.mark.parametrize("width", [1, 2, 16, 384])
def test_the_isometry_keeps_inner_products_and_has_mean_zero(width):
    rows_DE = isometry(width).astype(np.float64)
    assert rows_DE.shape == (width, width + 1)
    np.testing.assert_allclose(rows_DE @ rows_DE.T, np.eye(width), atol=1e-6)
    np.testing.assert_allclose(rows_DE.sum(1), 0, atol=1e-5)


@pytest.mark.parametrize("kinds", [KINDS, KINDS[:2]])
def test_scores_are_the_scaled_cosine_of_mean_pooled_vectors(tmp_path, kinds):
    spec = sentence_folder(tmp_path, kinds)
    config = DualEncoderConfig(bert_config(spec), **tower_settings(spec))
    assert (config.width, config.pooling, config.block_segments, config.norm_epsilon) == (17, "mean", 1, 1e-12)
    tower, report = load_tower(spec, config.bert, config.width)
    assert report.missing == report.initialised == report.unused == () and "sentence encoder" in report.layout
    apply = jax.jit(dual_encoder(config).apply, static_argnums=1)
    v_NE = np.asarray(apply({"tower": tower}, "embed_queries", TOKEN_NT, LENGTH_N), np.float64)
    mean_ND = []
    for token_T, length in zip(TOKEN_NT, LENGTH_N, strict=True):
        at_T = np.arange(length)
        mean_ND.append(hidden(tower["bert"], config.bert, token_T[:length], at_T >= 0, 0 * at_T, at_T).mean(0))
    unit_ND = np.stack([mean_D / np.linalg.norm(mean_D) for mean_D in mean_ND])
    np.testing.assert_allclose(v_NE @ isometry(16).T / np.sqrt(SCALE), unit_ND, atol=2e-5)
    np.testing.assert_allclose(v_NE @ v_NE.T, SCALE * unit_ND @ unit_ND.T, atol=SCALE * 2e-5)


def test_with_another_width_only_the_bert_is_taken(tmp_path):
    spec = sentence_folder(tmp_path)
    tower, report = load_tower(spec, bert_config(spec), 6)
    same(tower, {"bert": JOINT["bert"]})
    assert report.initialised == ("projection",) and report.layout == "BertModel"


@pytest.mark.parametrize(
    ("kinds", "mode", "message"),
    [
        ((*KINDS[:2], "Dense", "Normalize"), "mean_tokens", "'Dense', 'Normalize'.*taken as a plain BERT"),
        (KINDS, "cls_token", r"pools by \['pooling_mode_cls_token'\].*taken as a plain BERT"),
    ],
)
def test_other_sentence_encoders_are_refused_and_their_bert_is_free(tmp_path, kinds, mode, message):
    spec = sentence_folder(tmp_path, kinds, mode)
    with pytest.raises(WeightsError, match=message):
        tower_settings(spec)
    with pytest.raises(WeightsError, match=message):
        load_tower(spec, bert_config(spec), 17)
    same(load_bert(spec, BERT)[0], {"bert": JOINT["bert"]})
    (tmp_path / "modules.json").unlink()
    assert tower_settings(spec) == {} and replace(bert_config(spec), gelu="tanh") == BERT
