"""Retriever and REALM loss against Hugging Face's RealmEmbedder, RealmScorer and RealmKnowledgeAugEncoder.

Two readings part here, and ours is chosen each time:
- LayerNorm of the projection. Google's code has Keras's epsilon 1e-3, Hugging Face's class layer_norm_eps (1e-12) for
  the same weights. Ours is Google's, for they trained them; with norm_epsilon=1e-12 the numbers are Hugging Face's.
- Mean of the loss. Google divides by the masked wordpieces, and so do we. Hugging Face does if it is given `mlm_mask`;
  without, it divides the same sum by every place of the batch.
"""

from copy import deepcopy
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
import torch
from transformers import RealmEmbedder, RealmKnowledgeAugEncoder, RealmScorer

from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.export import export_embedder, export_knowledge_encoder
from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.weights import WeightsError, bert_config, load_bert, load_tower, names, tower_settings
from realm.objectives.realm import Realm
from tests.parity.hf_models import (
    gradient_tree,
    near,
    near_gradients,
    realm_sizes,
    reload,
    same_answer,
    same_weights,
    save,
    shaken_model,
)

CLS, SEP, MASK = 2, 3, 4
RNG = np.random.default_rng(0)
QUERIES = [[CLS, 10, MASK, 12, MASK, SEP], [CLS, 20, 21, 22, 23, 24, MASK, SEP]]
# Title and body; block 0 is the null block.
BLOCKS = [([], []), ([30], [31, 32, 33]), ([34, 35], [36, 37]), ([38], [39, 40, 41, 42, 43])]
SLOT_BK = np.array([[0, 1, 3], [0, 2, 1]])
POSITION_BM = np.array([[2, 4], [6, 0]])
TARGET_BM = np.array([[11, 13], [25, 0]])
WEIGHT_BM = np.array([[1, 1], [1, 0]], np.float32)


def padded(rows, width):
    return np.array([row + [0] * (width - len(row)) for row in rows], np.int32)


def lengths(rows):
    return np.array([len(row) for row in rows], np.int32)


PACKED = [[CLS, *title, SEP, *body, SEP] for title, body in BLOCKS]
BODY_U = np.array([len(title) + 2 for title, _ in BLOCKS], np.int32)
BATCH = {
    "query_token_BT": padded(QUERIES, 9),
    "query_length_B": lengths(QUERIES),
    "position_BM": POSITION_BM,
    "target_BM": TARGET_BM,
    "weight_BM": WEIGHT_BM,
    "slot_BK": SLOT_BK,
    "valid_BK": np.ones((2, 3), bool),
    "own_hit_B": np.zeros(2, bool),
    "block_token_UT": padded(PACKED, 11),
    "block_length_U": lengths(PACKED),
    "block_body_U": BODY_U,
}


def theirs(rows, bodies):
    """Their three arrays for packed rows, segment 1 from each body's first place on."""
    width = max(map(len, rows))
    at_T = np.arange(width)
    real = at_T < lengths(rows)[:, None]
    segment = (at_T >= np.asarray(bodies)[:, None]) & real
    return [torch.tensor(np.asarray(array, np.int64)) for array in (padded(rows, width), real, segment)]


@cache
def embedder():
    model = shaken_model(RealmEmbedder, realm_sizes())
    with torch.no_grad():
        model.cls.LayerNorm.weight.mul_(0.3)  # scores near each other, so that every candidate counts
        model.cls.LayerNorm.bias.mul_(0.3)
    return model


@pytest.fixture(scope="module")
def embedder_spec(tmp_path_factory):
    return save(embedder(), tmp_path_factory.mktemp("embedder"))


def retriever_config(spec, **changes):
    return replace(DualEncoderConfig(bert_config(spec), **tower_settings(spec)), **changes)


def vectors(config, params):
    args = BATCH["block_token_UT"], BATCH["block_length_U"], BODY_U
    return dual_encoder(config).apply(params, "embed_blocks", *args)


def test_embedder_vectors_and_gradients(embedder_spec):
    config = retriever_config(embedder_spec, norm_epsilon=1e-12)
    tower, report = load_tower(embedder_spec, config.bert, config.width)
    assert report.layout == "RealmEmbedder" and report.missing == ()
    assert all(name.startswith("cls.predictions.") for name in report.unused)
    model = embedder()
    model.zero_grad()
    projected_UE = model(*theirs(PACKED, BODY_U)).projected_score
    (projected_UE**3).sum().backward()
    near(vectors(config, {"tower": tower}), projected_UE)
    grads = jax.jit(jax.grad(lambda params: (vectors(config, params) ** 3).sum()))({"tower": tower})
    places = [*names.encoder(config.bert), *names.projection(config.bert, config.width)]
    near_gradients(grads["tower"], gradient_tree(model, places, stem="realm."))


def test_the_epsilon_of_the_projection_is_googles(embedder_spec):
    config = retriever_config(embedder_spec)
    assert (config.norm_epsilon, config.width, config.pooling) == (1e-3, 12, "cls")
    tower, _ = load_tower(embedder_spec, config.bert, config.width)
    # Projected numbers of small variance, where the epsilon shows.
    small = {"kernel": tower["projection"]["kernel"] * 0.02, "bias": tower["projection"]["bias"] * 0.02}
    ours_UE = vectors(config, {"tower": tower | {"projection": small}})
    model = deepcopy(embedder())
    with torch.no_grad():
        model.cls.dense.weight.mul_(0.02)
        model.cls.dense.bias.mul_(0.02)
        as_is_UE = model(*theirs(PACKED, BODY_U)).projected_score
        model.cls.LayerNorm.eps = 1e-3
        as_google_UE = model(*theirs(PACKED, BODY_U)).projected_score
    near(ours_UE, as_google_UE)
    with pytest.raises(AssertionError, match="off by"):
        near(ours_UE, as_is_UE, close=0.01)


def test_an_exported_embedder_answers_the_same_there(embedder_spec, tmp_path):
    config = retriever_config(embedder_spec)
    tower, _ = load_tower(embedder_spec, config.bert, config.width)
    report = export_embedder(tower, config, tmp_path / "ours")
    again, missing, unexpected = reload(RealmEmbedder, tmp_path / "ours")
    assert missing == sorted(report.missing) and unexpected == []
    found, expected = (model(*theirs(PACKED, BODY_U)).projected_score for model in (again, embedder()))
    same_weights(again, embedder(), but=report.missing)
    same_answer(found, expected)
    assert retriever_config(f"hf:{tmp_path / 'ours'}") == config


def test_the_towers_of_a_scorer(tmp_path):
    query = shaken_model(RealmEmbedder, realm_sizes(), seed=2)
    model = shaken_model(lambda config: RealmScorer(config, query), realm_sizes(), seed=3)
    model.save_pretrained(tmp_path, safe_serialization=False)
    spec = f"hf:{tmp_path}"
    config = retriever_config(spec, norm_epsilon=1e-12, shared=False)
    sides = {side: load_tower(spec, config.bert, config.width, side) for side in ("query", "block")}
    assert all(report.layout == "RealmScorer" for _, report in sides.values())
    params = {side: tower for side, (tower, _) in sides.items()}
    near(vectors(config, params), model.embedder(*theirs(PACKED, BODY_U)).projected_score)
    q_BE = dual_encoder(config).apply(params, "embed_queries", BATCH["query_token_BT"], BATCH["query_length_B"])
    near(q_BE, query(*theirs(QUERIES, [99, 99])).projected_score)
    with pytest.raises(WeightsError, match="has two towers"):
        load_tower(spec, config.bert, config.width)


@cache
def knowledge_encoder():
    return shaken_model(RealmKnowledgeAugEncoder, realm_sizes(), seed=1)


def joint_rows():
    """[CLS] masked query [SEP] body [SEP] for every query and candidate, and where segment 1 begins."""
    rows = [
        query + PACKED[slot][BODY_U[slot] :] for query, slots in zip(QUERIES, SLOT_BK, strict=True) for slot in slots
    ]
    return rows, np.repeat(lengths(QUERIES), 3)


def their_loss(scorer, encoder, with_mask=True):
    rows, bodies = joint_rows()
    width = max(map(len, rows))
    label_BT, mask_BT = np.full((2, width), -100), np.zeros((2, width))
    for b, m in np.argwhere(WEIGHT_BM > 0):
        label_BT[b, POSITION_BM[b, m]], mask_BT[b, POSITION_BM[b, m]] = TARGET_BM[b, m], 1
    token, real, segment = (array.view(2, 3, -1) for array in theirs(rows, bodies))
    candidates = [PACKED[slot] for slot in SLOT_BK.ravel()]
    candidate = [array.view(2, 3, -1) for array in theirs(candidates, BODY_U[SLOT_BK.ravel()])]
    names_of = "candidate_input_ids", "candidate_attention_mask", "candidate_token_type_ids"
    q_token, q_real, q_segment = theirs(QUERIES, [99, 99])
    score_BK = scorer(q_token, q_real, q_segment, **dict(zip(names_of, candidate, strict=True))).relevance_score
    masked = {"mlm_mask": torch.tensor(mask_BT)} if with_mask else {}
    answer = encoder(token, real, segment, relevance_score=score_BK, labels=torch.tensor(label_BT), **masked)
    return answer.loss, answer.logits, score_BK


def test_knowledge_augmented_loss_and_gradients(embedder_spec, tmp_path):
    """The whole REALM objective in token form: prior of the retriever, masked words of the encoder, both gradients."""
    scorer = RealmScorer(realm_sizes()).eval()
    scorer.embedder.load_state_dict(embedder().state_dict())
    encoder = knowledge_encoder()
    encoder.zero_grad()
    joint_spec = save(encoder, tmp_path)
    loss, _, score_BK = their_loss(scorer, encoder)
    loss.backward()

    retriever = retriever_config(embedder_spec, norm_epsilon=1e-12)
    joint = MaskedLmConfig(bert_config(joint_spec))
    tower, _ = load_tower(embedder_spec, retriever.bert, retriever.width)
    joint_params, report = load_bert(joint_spec, joint.bert)
    assert report.layout == "RealmKnowledgeAugEncoder" and report.missing == report.unused == ()
    params = {"retriever": {"tower": tower}, "joint": joint_params}
    objective = Realm(retriever, joint, candidates=3, max_predictions=2, batch_lengths=(9,), block_lengths=(11,))

    near(objective.scores(params, BATCH), score_BK)
    of_loss = jax.value_and_grad(lambda params: objective.loss(params, BATCH, None), has_aux=True)
    (value, metrics), grads = jax.jit(of_loss)(params)
    near(value, loss)
    assert metrics["weight"] == 3 and metrics["entropy"] > 0.3, metrics  # or one block had all the say
    embed = [*names.encoder(retriever.bert), *names.projection(retriever.bert, retriever.width)]
    near_gradients(grads["retriever"]["tower"], gradient_tree(scorer.embedder, embed, stem="realm."))
    read = [*names.encoder(joint.bert), *names.head(joint.bert)]
    near_gradients(grads["joint"], gradient_tree(encoder, read, stem="realm."))

    everywhere, logits, _ = their_loss(scorer, encoder, with_mask=False)
    places = 2 * logits.shape[1]
    near(value * metrics["weight"] / places, everywhere)


def test_an_exported_knowledge_encoder_answers_the_same_there(tmp_path):
    spec = save(knowledge_encoder(), tmp_path / "theirs")
    config = MaskedLmConfig(bert_config(spec), spec)
    params = masked_lm(config).init(jax.random.key(0))
    export_knowledge_encoder(params, config.bert, tmp_path / "ours", candidates=3)
    again, missing, unexpected = reload(RealmKnowledgeAugEncoder, tmp_path / "ours")
    assert missing == unexpected == []
    rows, bodies = joint_rows()
    arrays = [array.view(2, 3, -1) for array in theirs(rows, bodies)]
    found, expected = (model(*arrays).logits for model in (again, knowledge_encoder()))
    same_weights(again, knowledge_encoder())
    same_answer(found, expected)
