"""Question answering against Hugging Face's RealmForOpenQA: its embedder and reader, one question at a time.

What parts, and what is ours:
- Which blocks are correct. Google tests for an answer's bytes in the block, Hugging Face for its wordpieces in the
  reader's input, we for its words in the block. That is marked before the loss; here both are given the same marks.
- A question without any correct block: its loss is 0 there as here, but we leave it out of the mean, and count it.
- What is masked gets float32's smallest number there, -1e30 or nothing here; the same in float32, safe in bfloat16.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
import torch
from transformers import RealmForOpenQA

from realm.models.dual_encoder import DualEncoderConfig
from realm.models.export import export_open_qa
from realm.models.span_reader import SpanReaderConfig
from realm.models.weights import bert_config, load_bert, load_reader, load_tower, names, reader_settings, tower_settings
from realm.objectives.open_qa import OpenQa
from tests.parity.hf_models import (
    gradient_tree,
    near,
    near_gradients,
    realm_sizes,
    reload,
    same_answer,
    same_weights,
    shaken_model,
)
from tests.parity.test_parity_realm import CLS, SEP, lengths, padded, theirs

QUERIES = [[CLS, 10, 11, 12, SEP], [CLS, 20, 21, SEP], [CLS, 22, 23, 24, SEP]]
BLOCKS = [([30], [31, 32, 33]), ([34, 35], [36, 37]), ([38], [39, 40, 41, 42, 43]), ([44], [45, 46])]
PACKED = [[CLS, *title, SEP, *body, SEP] for title, body in BLOCKS]
BODY_U = np.array([len(title) + 2 for title, _ in BLOCKS], np.int32)
BEAM_BL = np.array([[2, 0, 1, 3], [1, 2, 3, 0], [3, 0, 1, 2]])
READ, WIDTHS = 2, 4
CORRECT_BL = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]], bool)
# (question, block of those read) -> first and last wordpiece of each answer in the body.
GOLD = {(0, 0): [(1, 2), (3, 3)], (0, 1): [(0, 0)], (1, 1): [(0, 3)]}
COLUMNS = 11


def gold_spans():
    gold_BKWT = np.zeros((3, READ, WIDTHS, COLUMNS - 2), bool)
    for (b, k), spans in GOLD.items():
        for first, last in spans:
            gold_BKWT[b, k, last - first, first] = True
    return gold_BKWT


@pytest.fixture(scope="module")
def model():
    sizes = realm_sizes(reader_beam_size=READ, searcher_beam_size=4, num_block_records=4)
    model = shaken_model(RealmForOpenQA, sizes)
    with torch.no_grad():
        model.embedder.cls.LayerNorm.weight.mul_(0.3)  # scores near each other, so that every block counts
        model.embedder.cls.LayerNorm.bias.mul_(0.3)
        model.block_emb.copy_(torch.randn(4, 12))
    return model


@pytest.fixture(scope="module")
def spec(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("open_qa")
    model.save_pretrained(folder, safe_serialization=False)
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def ours(spec):
    """(objective, params) of the folder, with their epsilon in the projection."""
    bert = bert_config(spec)
    retriever = replace(DualEncoderConfig(bert, shared=False, **tower_settings(spec)), norm_epsilon=1e-12)
    joint = SpanReaderConfig(bert, **reader_settings(spec))
    assert (joint.width, joint.answer_length, joint.norm_epsilon) == (10, WIDTHS, 1e-3)
    tower, seen = load_tower(spec, bert, retriever.width)
    reader, read = load_reader(spec, bert, joint.width)
    assert seen.layout == read.layout == "RealmForOpenQA" and seen.missing == read.missing == ()
    assert "block_emb" in seen.unused and "block_emb" in read.unused
    objective = OpenQa(retriever, joint, beam=4, read=READ, batch_lengths=(8,), block_lengths=(COLUMNS,))
    return objective, {"retriever": {"query": tower, "block": tower}, "joint": reader}


def batch_of(model, questions):
    beam_BL = BEAM_BL[questions]
    return {
        "query_token_BT": padded([QUERIES[b] for b in questions], 8),
        "query_length_B": lengths([QUERIES[b] for b in questions]),
        "block_token_UT": padded(PACKED, COLUMNS),
        "block_length_U": lengths(PACKED),
        "block_body_U": BODY_U,
        "slot_BK": beam_BL[:, :READ],
        "vector_UE": model.block_emb.numpy(),
        "vector_slot_BL": beam_BL,
        "valid_BL": np.ones(beam_BL.shape, bool),
        "correct_BL": CORRECT_BL[questions],
        "gold_BKWT": gold_spans()[questions],
    }


def their_answer(model, b):
    """RealmReaderOutput for question b; what their `forward` does around the search."""
    query, beam = QUERIES[b], BEAM_BL[b]
    q_E = model.embedder(*theirs([query], [99])).projected_score[0]
    score_L = model.block_emb[torch.tensor(beam)] @ q_E
    rows = [query + PACKED[slot][BODY_U[slot] :] for slot in beam]
    token, real, segment = theirs(rows, [len(query)] * len(rows))
    place = np.full((2, len(beam), 2), -1)
    for k in range(READ):
        for a, span in enumerate(GOLD.get((b, k), [])):
            place[:, k, a] = np.array(span) + len(query)
    starts, ends = torch.tensor(place)
    return model.reader(
        token[:READ],
        real[:READ],
        segment[:READ],
        relevance_score=score_L,
        block_mask=(segment.bool() & (token != SEP)),
        has_answers=torch.tensor(CORRECT_BL[b]),
        start_positions=starts,
        end_positions=ends,
    )


def test_losses_and_gradients(model, ours):
    objective, params = ours
    batch = batch_of(model, [0, 1])
    model.zero_grad()
    answers = [their_answer(model, b) for b in (0, 1)]
    loss = sum(answer.loss for answer in answers) / 2
    loss.backward()
    assert [int(a.reader_correct.sum()) for a in answers] == [3, 1]

    def of_loss(moving):
        retriever = {"query": moving["tower"], "block": params["retriever"]["block"]}
        return objective.loss({"retriever": retriever, "joint": moving["reader"]}, batch, None)

    moving = {"tower": params["retriever"]["query"], "reader": params["joint"]}
    (value, metrics), grads = jax.jit(jax.value_and_grad(of_loss, has_aux=True))(moving)
    near(value, loss)
    near(metrics["retriever_loss"], sum(a.retriever_loss for a in answers) / 2)
    near(metrics["reader_loss"], sum(a.reader_loss for a in answers) / 2)
    bert = objective.retriever.bert
    embed = [*names.encoder(bert), *names.projection(bert, objective.retriever.width)]
    near_gradients(grads["tower"], gradient_tree(model, embed, "embedder.", "realm."))
    read = [*names.encoder(bert), *names.spans(bert, objective.joint.width)]
    # These two move the scores of all spans alike.
    still = "head/norm/bias", "head/out/bias"
    near_gradients(grads["reader"], gradient_tree(model, read, "reader.", "realm."), still)


def test_a_question_without_an_answer_is_left_out_of_the_mean(model, ours):
    objective, params = ours
    answers = [their_answer(model, b) for b in (0, 2)]
    assert answers[1].loss == 0
    value, metrics = jax.jit(objective.loss)(params, batch_of(model, [0, 2]), None)
    near(value, answers[0].loss)
    assert metrics["weight"] == 1 and metrics["no_correct_block"] == 0.5


def test_the_best_span_is_theirs(model, ours):
    objective, params = ours
    best = jax.jit(objective.best)(params, batch_of(model, [0, 1, 2]))
    for b in range(3):
        answer = their_answer(model, b)
        assert int(best["block_Bn"][b, 0]) == int(answer.block_idx)
        start, end = int(answer.start_pos) - len(QUERIES[b]), int(answer.end_pos) - len(QUERIES[b])
        assert (int(best["start_Bn"][b, 0]), int(best["end_Bn"][b, 0])) == (start, end + 1)


def test_exported_question_answering_answers_the_same_there(model, ours, tmp_path):
    objective, params = ours
    tower, reader = params["retriever"]["query"], params["joint"]
    report = export_open_qa(
        tower, objective.retriever, reader, objective.joint, model.block_emb.numpy(), tmp_path / "ours"
    )
    again, missing, unexpected = reload(RealmForOpenQA, tmp_path / "ours")
    again.config.reader_beam_size = READ
    assert missing == sorted(report.missing) and unexpected == []
    same_weights(again, model, but=missing)
    for b in range(3):
        same_answer(their_answer(again, b).loss, their_answer(model, b).loss)
    spec = f"hf:{tmp_path / 'ours'}"
    assert DualEncoderConfig(bert_config(spec), shared=False, **tower_settings(spec)) == objective.retriever
    assert SpanReaderConfig(bert_config(spec), **reader_settings(spec)) == objective.joint
    found = load_tower(spec, bert_config(spec), 12)[0], load_reader(spec, bert_config(spec), 10)[0]
    jax.tree.map(np.testing.assert_array_equal, found, (tower, reader))


def test_the_joint_encoder_of_an_answering_model_is_its_readers(spec, ours):
    joint, report = load_bert(spec, bert_config(spec))
    jax.tree.map(np.testing.assert_array_equal, joint["bert"], ours[1]["joint"]["bert"])
    assert "embedder.cls.dense.weight" in report.unused
