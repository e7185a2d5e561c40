"""The REALM loss against a float64 brute force, its gradient, and what must not change it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.models.masked_lm import masked_lm
from realm.objectives.marginal import log_prior, sequence_marginal, token_marginal
from realm.objectives.realm import Realm
from realm.protocols import Hits
from realm.training.watch import Watch, Watcher
from tests.objectives.small import (
    JOINT,
    REALM,
    RETRIEVER,
    batch_of,
    block_vectors,
    build_table,
    close,
    dropping,
    exact_index,
    gradient_of,
    largest,
    loss_of,
    on_devices,
    program,
    quick,
    retrieved,
)
from tests.objectives.test_marginal import brute_force

PARAMS = program(REALM, "init")(jax.random.key(0))
FORMS = ["token", "sequence"]
MARGINALS = {"token": token_marginal, "sequence": sequence_marginal}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("realm"))


@pytest.fixture(scope="module")
def batch(table):
    """Eight sentences; of the first one's candidates one is invalid."""
    batch, _ = retrieved(REALM, PARAMS, table, batch_of(REALM, table))
    batch["valid_BK"][0, 2] = False
    assert len(set(batch["weight_BM"].sum(axis=1))) > 1, "the sentences must differ in the number of their masks"
    return batch


def parts_of(batch, objective=REALM, params=PARAMS):
    """score_BK, valid_BK, log_prob_BKM, weight_BM in float64."""
    score_BK = np.asarray(program(objective, "scores")(params, batch), np.float64)
    log_prob_BKM = np.asarray(program(objective, "log_probs")(params, batch), np.float64)
    return score_BK, batch["valid_BK"], log_prob_BKM, batch["weight_BM"].astype(np.float64)


def posteriors(score_BK, valid_BK, log_prob_BKM, weight_BM, form):
    """prior_BK, and posterior_BKM per masked wordpiece or, in sequence form, [B, K, 1]."""
    prior_BK = np.exp(score_BK) * valid_BK
    prior_BK /= prior_BK.sum(axis=1, keepdims=True)
    if form == "sequence":
        log_prob_BKM = (log_prob_BKM * weight_BM[:, None]).sum(axis=2, keepdims=True)
    joint_BKM = prior_BK[..., None] * np.exp(log_prob_BKM)
    return prior_BK, joint_BKM / joint_BKM.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("form", FORMS)
def test_loss_and_metrics_equal_a_brute_force(batch, form):
    (loss, metrics), _ = gradient_of(replace(REALM, marginal=form), PARAMS, batch)
    score_BK, valid_BK, log_prob_BKM, weight_BM = parts = parts_of(batch)
    masks = weight_BM.sum()
    assert metrics["weight"] == masks
    assert loss == pytest.approx(-brute_force(*parts, form) / masks, rel=1e-5)
    null = -(log_prob_BKM[:, 0] * weight_BM).sum() / masks
    assert metrics["loss_null"] == pytest.approx(null, rel=1e-5)
    assert metrics["utility"] == pytest.approx(null - float(loss), abs=1e-5) and abs(metrics["utility"]) > 1e-3
    prior_BK, posterior_BKM = posteriors(*parts, form)
    weight_B1M = weight_BM[:, None] if form == "token" else np.ones((len(score_BK), 1, 1))
    posterior_BK = (posterior_BKM * weight_B1M).sum(axis=2) / weight_B1M.sum(axis=2)
    shift = np.abs(posterior_BK - prior_BK).sum(axis=1).mean() / 2
    entropy = -(prior_BK * np.log(np.where(prior_BK > 0, prior_BK, 1))).sum(axis=1).mean()
    assert metrics["posterior_shift"] == pytest.approx(shift, rel=1e-4) and shift > 0.01
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert metrics["null_probability"] == pytest.approx(prior_BK[:, 0].mean(), rel=1e-4)
    assert metrics["candidates"] == pytest.approx((8 * 4 - 1) / 8)


@pytest.mark.parametrize(("form", "per_mask"), [("token", -np.log(0.5)), ("sequence", -np.log(0.09) / 2)])
def test_two_crossed_documents_by_hand(form, per_mask):
    class Fixed(Realm):
        def scores(self, params, batch, key=None):
            return params

        def log_probs(self, params, batch, key=None):
            return jnp.log(jnp.array([[[0.9, 0.1], [0.1, 0.9]]]))

    batch = {"valid_BK": np.ones((1, 2), bool), "weight_BM": np.ones((1, 2)), "own_hit_B": np.zeros(1, bool)}
    program = quick(jax.value_and_grad(Fixed(marginal=form).loss, has_aux=True))
    (loss, metrics), grad_BK = program(jnp.zeros((1, 2)), batch, None)
    assert loss == pytest.approx(per_mask, abs=1e-6)
    assert metrics["loss_null"] == pytest.approx(-np.log(0.09) / 2, abs=1e-6)
    np.testing.assert_allclose(grad_BK, 0.0, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_retriever_learns_posterior_minus_prior(batch, form):
    prior_BK, posterior_BKM = posteriors(*parts_of(batch), form)
    weight_B1M = batch["weight_BM"][:, None] if form == "token" else 1.0
    pull_BK = ((posterior_BKM - prior_BK[..., None]) * weight_B1M).sum(axis=2)
    np.testing.assert_allclose(pull_BK.sum(axis=1), 0.0, atol=1e-9)
    wanted = -pull_BK / batch["weight_BM"].sum()

    @quick
    def pulled(retriever, pull_BK):
        return jax.vjp(lambda r: REALM.scores({"retriever": r}, batch), retriever)[1](pull_BK)[0]

    gradient = gradient_of(replace(REALM, marginal=form), PARAMS, batch)[1]["retriever"]
    close(gradient, pulled(PARAMS["retriever"], wanted.astype(np.float32)), rtol=1e-3, atol=1e-5)
    assert largest(gradient) > 1e-2


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_that_ignores_blocks_teaches_the_retriever_nothing(batch, form):
    deaf = jax.tree.map(lambda x: x, PARAMS)
    attention = deaf["joint"]["bert"]["layers"]["0"]["out"]
    attention["kernel"] = jnp.zeros_like(attention["kernel"])
    log_prob_BKM = parts_of(batch, params=deaf)[2]
    np.testing.assert_allclose(log_prob_BKM - log_prob_BKM[:, :1], 0.0, atol=1e-5)
    objective = replace(REALM, marginal=form)
    (_, metrics), gradient = gradient_of(objective, deaf, batch)
    assert largest(gradient["retriever"]) < 1e-5 and largest(gradient["joint"]) > 1e-2
    assert largest(gradient_of(objective, PARAMS, batch)[1]["retriever"]) > 1e-2
    assert metrics["utility"] == pytest.approx(0.0, abs=1e-5)


def test_a_constant_document_tower_gives_a_uniform_prior_and_no_gradient_to_the_queries(batch):
    objective = replace(REALM, retriever=replace(RETRIEVER, shared=False))
    params = program(objective, "init")(jax.random.key(0))
    tower = params["retriever"]["block"]
    tower["projection"]["kernel"] = jnp.zeros_like(tower["projection"]["kernel"])
    tower["norm"]["bias"] = jnp.linspace(-1.0, 1.0, 8)
    (_, metrics), gradient = gradient_of(objective, params, batch)
    count_B = batch["valid_BK"].sum(axis=1)
    assert metrics["null_probability"] == pytest.approx((1 / count_B).mean(), rel=1e-6)
    assert metrics["entropy"] == pytest.approx(np.log(count_B).mean(), rel=1e-6)
    assert metrics["posterior_shift"] > 1e-3, "the reader does prefer some blocks"
    said, names = [], ("entropy", "candidates", "null_probability")
    whole = batch | {"valid_BK": np.ones_like(batch["valid_BK"])}
    metrics = loss_of(objective, params, whole)[1]
    Watcher(Watch(), said.append).look(7, {}, {name: float(metrics[name]) for name in names})
    assert len(said) == 1 and "uniform at step 7" in said[0] and "no gradient" in said[0]
    metrics = loss_of(REALM, PARAMS, whole)[1]
    assert Watcher(Watch(), said.append).look(8, {}, {name: float(metrics[name]) for name in names}) is None
    gradient = gradient["retriever"]
    # what is pulled towards one block is pushed from the others, and all of them lie at one point
    assert largest(gradient["query"]) < 1e-5 and largest(gradient["block"]["norm"]["bias"]) < 1e-5
    assert largest(gradient["block"]["projection"]["kernel"]) > 1e-2


def test_an_invalid_slot_changes_nothing_and_gets_no_gradient(batch):
    invalid = batch | {"valid_BK": batch["valid_BK"].copy(), "slot_BK": batch["slot_BK"].copy()}
    invalid["valid_BK"][:, 2:] = False
    (loss, _), gradient = gradient_of(REALM, PARAMS, invalid)
    shown = set(batch["query_token_BT"].ravel()) | set(batch["block_token_UT"][invalid["slot_BK"][:, :2]].ravel())
    unseen = sorted(set(batch["block_token_UT"][invalid["slot_BK"][:, 2:]].ravel()) - shown)
    word_VD = np.abs(gradient["retriever"]["tower"]["bert"]["word"]["embedding"]).max(axis=1)
    assert len(unseen) > 10 and not word_VD[unseen].any() and word_VD[sorted(shown - {0})].all()
    # other blocks in the invalid slots: the reader reads other text, the loss and every gradient stay
    elsewhere = invalid | {"slot_BK": invalid["slot_BK"].copy()}
    elsewhere["slot_BK"][:, 2:] = np.roll(invalid["slot_BK"], 1, axis=0)[:, [3, 1]]
    assert (elsewhere["slot_BK"][:, 2:] != invalid["slot_BK"][:, 2:]).any()
    (other_loss, _), other_gradient = gradient_of(REALM, PARAMS, elsewhere)
    assert other_loss == pytest.approx(float(loss), rel=1e-6)
    close(other_gradient, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_null_block_alone_is_the_plain_masked_language_model(table, batch, form):
    """[CLS] query [SEP] [SEP], the last of segment 1."""
    alone = batch | {"valid_BK": np.arange(4) == np.zeros((8, 1))}
    token_BT, segment_BT = np.zeros((2, 8, 41), np.int32)
    for b, length in enumerate(batch["query_length_B"]):
        token_BT[b, : length + 1] = [*batch["query_token_BT"][b, :length], table.tokenizer.sep]
        segment_BT[b, length] = 1

    @quick
    def log_prob(params, token_BT, mask_BT, segment_BT):
        apply = masked_lm(JOINT).apply
        hidden_BTD = apply(params, "hidden", token_BT, mask_BT, segment_BT)
        return apply(params, "log_prob", hidden_BTD, batch["position_BM"], batch["target_BM"])

    log_prob_BM = log_prob(PARAMS["joint"], token_BT, np.arange(41) <= batch["query_length_B"][:, None], segment_BT)
    plain = -(np.asarray(log_prob_BM) * batch["weight_BM"]).sum() / batch["weight_BM"].sum()
    (loss, metrics), gradient = gradient_of(replace(REALM, marginal=form), PARAMS, alone)
    assert loss == pytest.approx(plain, rel=1e-5)
    assert metrics["utility"] == pytest.approx(0.0, abs=1e-6)
    assert (metrics["null_probability"], metrics["candidates"], metrics["entropy"]) == (1.0, 1.0, 0.0)
    assert largest(gradient["retriever"]) == 0.0


class Shuffled:
    """Every row as a hit, in an order that has nothing to do with the query."""

    kind = "shuffled"

    def __init__(self, rows: int, seed: int):
        self.rows, self.rng = rows, np.random.default_rng(seed)

    def search(self, query_BE, k):
        id_BK = np.zeros((len(query_BE), k), np.int32)
        id_BK[:, : self.rows] = self.rng.permuted(np.tile(np.arange(self.rows), (len(query_BE), 1)), axis=1)
        valid_BK = np.broadcast_to(np.arange(k) < self.rows, id_BK.shape)
        return Hits(np.where(valid_BK, 1.0, -np.inf), id_BK, valid_BK)


@pytest.mark.parametrize("form", FORMS)
def test_with_every_block_as_candidate_neither_order_nor_age_of_the_hits_matters(tmp_path, form):
    table = build_table(tmp_path, documents=3, copies=1, holdout=0.0)
    objective = replace(REALM, marginal=form, candidates=table.rows + 1)
    old = program(REALM, "init")(jax.random.key(9))
    assert np.abs(block_vectors(REALM, old, table) - block_vectors(REALM, PARAMS, table)).max() > 0.1
    searchers = [exact_index(REALM, PARAMS, table), exact_index(REALM, old, table)]
    searchers += [Shuffled(table.rows, seed) for seed in (0, 1)]
    found, orders = [], set()
    plain = batch_of(objective, table, size=4)
    for searcher in searchers:
        batch, candidates = retrieved(objective, PARAMS, table, plain, searcher)
        copies_B = [(table.duplicate_N == table.duplicate_N[own]).sum() for own in batch["own_B"]]
        assert (candidates.valid_BK.sum(axis=1) == 1 + table.rows - np.array(copies_B)).all()
        orders.add(candidates.id_BK.tobytes())
        found.append(loss_of(objective, PARAMS, batch))
    assert len(orders) == len(searchers)
    for loss, metrics in found[1:]:
        assert loss == pytest.approx(float(found[0][0]), rel=1e-6)
        close(metrics, found[0][1] | {"own_block_hits": metrics["own_block_hits"]}, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_over_all_blocks_loss_and_gradients_equal_the_float64_marginal_at_any_age_of_the_index(tmp_path, form):
    """To 1e-5: the loss, its gradient to every score and to every log-probability, through any generation's index."""
    table = build_table(tmp_path, documents=3, copies=0, holdout=0.0)
    objective = replace(REALM, marginal=form, candidates=table.rows + 1)
    plain = batch_of(objective, table, size=4)
    for age in (0, 9):
        searcher = exact_index(REALM, program(REALM, "init")(jax.random.key(age)), table)
        batch, _ = retrieved(objective, PARAMS, table, plain, searcher)
        score_BK, valid_BK, log_prob_BKM, weight_BM = parts_of(batch, objective)
        masks = weight_BM.sum()
        prior_BK, posterior_BKM = posteriors(score_BK, valid_BK, log_prob_BKM, weight_BM, form)
        loss, _ = loss_of(objective, PARAMS, batch)
        assert loss == pytest.approx(-brute_force(score_BK, valid_BK, log_prob_BKM, weight_BM, form) / masks, rel=1e-5)

        def of_parts(score_BK, log_prob_BKM, batch=batch):
            prior_BK = log_prior(score_BK, batch["valid_BK"])
            total = MARGINALS[form](prior_BK, log_prob_BKM, batch["weight_BM"])
            return -total.log_prob / batch["weight_BM"].sum()

        parts = score_BK.astype(np.float32), log_prob_BKM.astype(np.float32)
        to_score_BK, to_log_prob_BKM = quick(jax.grad(of_parts, argnums=(0, 1)))(*parts)
        weight_B1M = weight_BM[:, None] if form == "token" else 1.0
        wanted_BK = -((posterior_BKM - prior_BK[..., None]) * weight_B1M).sum(axis=2) / masks
        np.testing.assert_allclose(to_score_BK, wanted_BK, atol=1e-5)
        # d loss / d log p(y_j|z,x) is the posterior of z, in sequence form the same for all masks of a sentence
        wanted_BKM = -posterior_BKM * weight_BM[:, None] / masks
        np.testing.assert_allclose(to_log_prob_BKM, wanted_BKM, atol=1e-5)
        assert np.abs(wanted_BK).max() > 1e-3


def test_the_loss_is_a_mean_over_all_masks_not_over_sentences(batch):
    """Weighed by their masks, the losses of two parts make that of the whole."""
    shared = {name: array for name, array in batch.items() if name.endswith(("_U", "_UT"))}
    whole, _ = loss_of(REALM, PARAMS, batch)
    total = 0.0
    order = np.argsort(batch["weight_BM"].sum(axis=1))
    losses = []
    for rows in (order[:4], order[4:]):
        part = shared | {name: array[rows] for name, array in batch.items() if name not in shared}
        loss, metrics = loss_of(REALM, PARAMS, part)
        losses.append(float(loss))
        total += loss * metrics["weight"]
    assert total / batch["weight_BM"].sum() == pytest.approx(float(whole), rel=1e-6)
    assert np.mean(losses) != pytest.approx(float(whole), rel=1e-3)


def test_padding_changes_nothing(table, batch):
    """The same sentences and candidates, padded to 64 and 96 instead of 40 and 64."""
    wide = {name: pad(array, {"query_token_BT": 64, "block_token_UT": 96}.get(name)) for name, array in batch.items()}
    assert wide["query_token_BT"].shape == (8, 64) and wide["block_token_UT"].shape[1] == 96
    (loss, metrics), gradient = gradient_of(REALM, PARAMS, batch)
    (wide_loss, wide_metrics), wide_gradient = gradient_of(REALM, PARAMS, wide)
    assert wide_loss == pytest.approx(float(loss), rel=1e-6)
    close(wide_metrics, metrics, rtol=1e-4, atol=1e-6)
    close(wide_gradient, gradient, rtol=1e-4, atol=1e-5)


def pad(array, length):
    """The array with its last axis filled up to `length`, with wordpieces that must not be looked at."""
    return array if length is None else np.pad(array, ((0, 0), (0, length - array.shape[1])), constant_values=1234)


def test_one_and_eight_devices_agree(batch):
    (loss, metrics), gradient = gradient_of(REALM, PARAMS, batch)
    (split_loss, split_metrics), split_gradient = on_devices(REALM, PARAMS, batch, 8)
    assert split_loss == pytest.approx(float(loss), rel=1e-6)
    close(split_metrics, metrics, rtol=1e-4, atol=1e-6)
    close(split_gradient, gradient, rtol=1e-4, atol=1e-5)


def test_dropout_needs_a_key(batch):
    dropped = dropping(REALM, 0.3)

    @quick
    def everything(params, key):
        parts = dropped.scores(params, batch, key), dropped.log_probs(params, batch, key)
        return dropped.loss(params, batch, key), *parts

    # without one it is the objective that has no dropout
    plain = everything(PARAMS, None)
    close(plain[0], gradient_of(REALM, PARAMS, batch)[0], rtol=1e-4, atol=1e-6)
    close(everything(PARAMS, None), plain, rtol=0)
    first, second, again = (everything(PARAMS, jax.random.key(seed)) for seed in (0, 1, 0))
    close(first, again, rtol=0)
    for a, b in ((first, second), (first, plain)):
        assert abs(a[0][0] - b[0][0]) > 1e-4
        assert all(np.abs(x - y).max() > 1e-2 for x, y in zip(a[1:], b[1:], strict=True))
