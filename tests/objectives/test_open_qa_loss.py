"""The two marginals against a float64 brute force, their gradients, and what must not change them."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.retrieve import Candidates
from realm.training.step import microbatches
from tests.objectives.open_qa_driver import QA, World, facts_world
from tests.objectives.small import batch_of, close, gradient_of, largest, loss_of, program, quick


@pytest.fixture(scope="module")
def facts():
    return facts_world()


@pytest.fixture(scope="module")
def batch(facts):
    world, params = facts
    batch = world.batch(params)
    found_B = batch["correct_BL"].any(axis=1)
    read_B = batch["gold_BKWT"].any(axis=(1, 2, 3))
    assert found_B.any() and not found_B.all() and (found_B != read_B).any(), "questions of all three kinds"
    return batch


def parts_of(objective, params, batch):
    """score_BL and score_BKWT, valid_BKWT as they are, in float64."""
    score_BL = program(objective, "beam_scores")(params, batch)
    score_BKWT, valid_BKWT = program(objective, "span_scores")(params, batch, score_BL)
    return np.asarray(score_BL, np.float64), np.asarray(score_BKWT, np.float64), np.asarray(valid_BKWT)


def share(score, valid, correct):
    """log of the correct entries' share of the softmax, entry by entry; None where there is no correct one."""
    weight = {i: np.exp(score[i] - score.max()) for i in np.ndindex(score.shape) if valid[i]}
    right = sum(weight[i] for i in weight if correct[i])
    return np.log(right / sum(weight.values())) if right else None


def test_loss_and_metrics_equal_a_brute_force(facts, batch):
    world, params = facts
    loss, metrics = loss_of(world.objective, params, batch)
    score_BL, score_BKWT, valid_BKWT = parts_of(world.objective, params, batch)
    blocks = [share(*row) for row in zip(score_BL, batch["valid_BL"], batch["correct_BL"], strict=True)]
    spans = [share(*row) for row in zip(score_BKWT, valid_BKWT, batch["gold_BKWT"], strict=True)]
    count = sum(one is not None for one in blocks)
    retriever, reader = (-sum(one for one in part if one is not None) / count for part in (blocks, spans))
    assert loss == pytest.approx(retriever + reader, rel=1e-5) and retriever > 0.1 and reader > 0.1
    assert (metrics["retriever_loss"], metrics["reader_loss"]) == pytest.approx((retriever, reader), rel=1e-5)
    assert metrics["weight"] == count
    assert metrics["no_correct_block"] == pytest.approx(blocks.count(None) / 8)
    assert metrics["no_correct_span"] == pytest.approx(spans.count(None) / 8)
    top = [batch["correct_BL"][b, score_BL[b].argmax()] for b in range(8)]
    assert metrics["top_block"] == pytest.approx(np.mean(top))
    at = [np.where(valid_BKWT[b], score_BKWT[b], -np.inf).argmax() for b in range(8)]
    assert metrics["top_span"] == pytest.approx(np.mean([batch["gold_BKWT"][b].flat[at[b]] for b in range(8)]))


def test_a_span_has_its_blocks_score_in_it_unless_told_otherwise(facts, batch):
    world, params = facts
    score_BL, with_BKWT, _ = parts_of(world.objective, params, batch)
    _, without_BKWT, _ = parts_of(replace(world.objective, block_score=False), params, batch)
    expected_BKWT = without_BKWT + score_BL[:, :3, None, None]
    np.testing.assert_allclose(with_BKWT, expected_BKWT, rtol=1e-5, atol=1e-4)
    assert np.ptp(score_BL[:, :3], axis=1).min() > 0.01


def test_the_question_learns_posterior_minus_prior_of_both_parts(facts, batch):
    """The loss's gradient to the beam's scores is what both marginals say, pulled through the question's tower."""
    world, params = facts
    score_BL, score_BKWT, valid_BKWT = parts_of(world.objective, params, batch)
    count = batch["correct_BL"].any(axis=1).sum()

    def pull(score_BX, valid_BX, correct_BX):
        prior_BX = np.exp(score_BX - score_BX.max(axis=1, keepdims=True)) * valid_BX
        right_BX = prior_BX * correct_BX
        has_B1 = right_BX.sum(axis=1, keepdims=True) > 0
        posterior_BX = right_BX / np.where(has_B1, right_BX.sum(axis=1, keepdims=True), 1.0)
        return (posterior_BX - prior_BX / prior_BX.sum(axis=1, keepdims=True)) * has_B1

    wanted_BL = pull(score_BL, batch["valid_BL"], batch["correct_BL"])
    flat = [array.reshape(8, -1) for array in (score_BKWT, valid_BKWT, batch["gold_BKWT"])]
    wanted_BL[:, :3] += pull(*flat).reshape(score_BKWT.shape).sum(axis=(2, 3))

    @quick
    def pulled(query, cotangent_BL):
        def forward(query):
            return world.objective.beam_scores({"retriever": params["retriever"] | {"query": query}}, batch)

        return jax.vjp(forward, query)[1](cotangent_BL)[0]

    gradient = gradient_of(world.objective, params, batch)[1]["retriever"]
    expected = pulled(params["retriever"]["query"], (-wanted_BL / count).astype(np.float32))
    close(gradient["query"], expected, rtol=1e-3, atol=1e-5)
    assert largest(gradient["query"]) > 1e-3 and largest(gradient["block"]) == 0.0


def test_a_question_without_an_answer_in_its_beam_teaches_nothing_and_is_counted(facts, batch):
    world, params = facts
    nothing = batch | {name: np.zeros_like(batch[name]) for name in ("correct_BL", "gold_BKWT")}
    (loss, metrics), gradient = gradient_of(world.objective, params, nothing)
    assert (loss, metrics["weight"], metrics["no_correct_block"], metrics["no_correct_span"]) == (0.0, 0.0, 1.0, 1.0)
    assert largest(gradient) == 0.0
    # one such question among others changes neither their loss nor their gradient
    found_B = batch["correct_BL"].any(axis=1)
    lone = np.flatnonzero(found_B)[0]
    alone = batch | {"correct_BL": batch["correct_BL"].copy(), "gold_BKWT": batch["gold_BKWT"].copy()}
    alone["correct_BL"][np.arange(8) != lone] = False
    alone["gold_BKWT"][np.arange(8) != lone] = False
    (loss, metrics), gradient = gradient_of(world.objective, params, alone)
    score_BL, score_BKWT, valid_BKWT = parts_of(world.objective, params, batch)
    expected = share(score_BL[lone], batch["valid_BL"][lone], batch["correct_BL"][lone])
    read = share(score_BKWT[lone], valid_BKWT[lone], batch["gold_BKWT"][lone])
    assert loss == pytest.approx(-expected - (read or 0.0), rel=1e-5) and metrics["no_correct_block"] == 7 / 8
    assert largest(gradient) > 1e-3


def test_the_reader_learns_nothing_where_only_the_retriever_can(facts, batch):
    world, params = facts
    (_, metrics), gradient = gradient_of(
        world.objective, params, batch | {"gold_BKWT": np.zeros_like(batch["gold_BKWT"])}
    )
    assert metrics["no_correct_span"] == 1.0 and metrics["reader_loss"] == 0.0
    assert largest(gradient["joint"]) == 0.0 and largest(gradient["retriever"]["query"]) > 1e-3


def test_the_order_of_the_candidates_changes_nothing(facts):
    """Within the blocks read and within the rest of the beam: loss, gradient and the answer found are the same."""
    world, params = facts
    plain = batch_of(world.objective, world.table)
    candidates = world.candidates(params, plain)
    order = [0, 3, 1, 2, 6, 4, 5]
    shuffled = Candidates(candidates.id_BK[:, order], candidates.valid_BK[:, order], candidates.own_hit_B)
    found = []
    for one in (candidates, shuffled):
        batch = world.joined(plain, one)
        best = jax.device_get(program(world.objective, "best")(params, batch))
        row_B = np.take_along_axis(one.id_BK[:, 1:], best["block_Bn"], axis=1)
        found.append((gradient_of(world.objective, params, batch), row_B, best["start_Bn"], best["log_prob_Bn"]))
    close(found[0][0], found[1][0], rtol=1e-3, atol=1e-5)
    close(found[0][1:], found[1][1:], rtol=1e-4, atol=1e-5)


def test_an_invalid_block_is_neither_scored_nor_read(facts, batch):
    world, params = facts
    less = batch | {"valid_BL": batch["valid_BL"].copy(), "slot_BK": batch["slot_BK"].copy()}
    less["valid_BL"][:, 1], less["valid_BL"][:, 5] = False, False
    less["correct_BL"] = batch["correct_BL"] & less["valid_BL"]
    less["gold_BKWT"] = batch["gold_BKWT"] & less["valid_BL"][:, :3, None, None]
    other = less | {"slot_BK": less["slot_BK"].copy(), "vector_slot_BL": less["vector_slot_BL"].copy()}
    other["slot_BK"][:, 1], other["vector_slot_BL"][:, [1, 5]] = 0, 0
    a, b = (gradient_of(world.objective, params, one) for one in (less, other))
    close(a, b, rtol=1e-3, atol=1e-6)
    best = program(world.objective, "best")(params, less)
    assert not (np.asarray(best["block_Bn"]) == 1).any()


def test_stored_vectors_and_blocks_embedded_anew_give_the_same_scores(facts, batch):
    """As long as the block tower is the one that the index was made with; it learns only where it is told to."""
    world, params = facts
    anew, _ = facts_world(vectors="blocks")
    other = anew.joined(plain := batch_of(world.objective, world.table), world.candidates(params, plain))
    assert "vector_UE" not in other and other["slot_BK"].shape == (8, 6)
    np.testing.assert_array_equal(other["correct_BL"], batch["correct_BL"])
    np.testing.assert_array_equal(other["gold_BKWT"], batch["gold_BKWT"])
    pull_BL = np.random.default_rng(0).normal(size=batch["valid_BL"].shape).astype(np.float32)

    def pulled(objective, batch):
        """(score_BL, gradient of pull_BL . score_BL to the towers)"""

        @quick
        def both(retriever):
            score_BL, back = jax.vjp(lambda towers: objective.beam_scores({"retriever": towers}, batch), retriever)
            return score_BL, back(pull_BL)[0]

        return jax.device_get(both(params["retriever"]))

    trains = facts_world(vectors="blocks", train_documents=True)[0].objective
    stored_BL = program(world.objective, "beam_scores")(params, batch)
    frozen, moving = (pulled(objective, other) for objective in (anew.objective, trains))
    for score_BL, _ in (frozen, moving):
        np.testing.assert_allclose(score_BL, stored_BL, rtol=1e-4, atol=1e-5)
    close(moving[1]["query"], frozen[1]["query"], rtol=1e-3, atol=1e-5)
    assert largest(moving[1]["query"]) > 1e-3 and largest(moving[1]["block"]) > 1e-3
    assert largest(frozen[1]["block"]) == 0.0


def test_scores_for_reranking_have_a_column_for_the_null_block(facts, batch):
    world, params = facts
    score_BK = np.asarray(program(world.objective, "scores")(params, batch))
    assert score_BK.shape == (8, world.objective.candidates) and (score_BK[:, 0] < -1e29).all()
    np.testing.assert_allclose(score_BK[:, 1:], program(world.objective, "beam_scores")(params, batch), rtol=1e-6)


def test_parts_of_a_batch_weighed_by_their_questions_make_the_whole(facts, batch):
    world, params = facts
    shared = {name: batch[name] for name in ("vector_UE",)}
    rest = {name: array for name, array in batch.items() if name not in shared}
    same, parts = microbatches(rest, 2)
    total, weight = 0.0, 0.0
    for number in range(2):
        loss, metrics = loss_of(world.objective, params, shared | same | {n: a[number] for n, a in parts.items()})
        total, weight = total + loss * metrics["weight"], weight + metrics["weight"]
    whole, metrics = loss_of(world.objective, params, batch)
    assert weight == metrics["weight"] and total / weight == pytest.approx(float(whole), rel=1e-5)


def test_dropout_follows_the_key(facts, batch):
    world, params = facts
    joint = replace(QA.joint, bert=replace(QA.joint.bert, dropout=0.3))
    dropping = replace(world.objective, joint=joint, retriever=replace(QA.retriever, dropout=0.3))
    parts = [loss_of(dropping, params, batch, jax.random.key(n))[1] for n in (0, 1, 0)]
    for name in ("retriever_loss", "reader_loss"):
        assert parts[0][name] == parts[2][name] != parts[1][name]


@pytest.mark.parametrize("vectors", ["index", "blocks"])
def test_a_reader_that_learns_from_fewer_blocks_still_answers_from_all(facts, vectors):
    world, params = facts
    some = replace(world.objective, vectors=vectors, read=3, read_in_training=1)
    one, three = replace(some, read=1, read_in_training=None), replace(some, read_in_training=None)
    losses, answers = {}, {}
    for objective in (some, one, three):
        here = World(objective, params, world.table)
        batch = here.batch(params)
        losses[objective] = loss_of(objective, params, batch)[0]
        asked = {name: array for name, array in batch_of(objective, world.table).items() if name != "host_answers_B"}
        ready = here.joined(asked, here.candidates(params, asked))
        answers[objective] = program(objective, "best")(params, ready)
        assert batch["gold_BKWT"].shape[1] == objective.trained_read
        if vectors == "index":
            assert ready["slot_BK"].shape[1] == objective.read
    assert losses[some] == pytest.approx(losses[one], rel=1e-6) and losses[some] != pytest.approx(losses[three])
    for name, array in answers[three].items():
        np.testing.assert_array_equal(answers[some][name], array)
    assert np.any(np.asarray(answers[some]["block_Bn"]) > 0)
