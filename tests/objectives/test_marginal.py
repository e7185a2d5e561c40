"""The marginal against hand-worked values, a float64 brute force, and the paper's gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.objectives.marginal import entropy, log_prior, sequence_marginal, token_marginal

HALF = jnp.log(jnp.array([[0.5, 0.5]]))
# Two documents, two masks: the first document knows the first word, the second the second.
CROSSED = jnp.log(jnp.array([[[0.9, 0.1], [0.1, 0.9]]]))
ONES = jnp.ones((1, 2))


def test_token_form_by_hand():
    # each mask: 0.5 * 0.9 + 0.5 * 0.1 = 0.5
    assert token_marginal(HALF, CROSSED, ONES).log_prob == pytest.approx(2 * np.log(0.5), abs=1e-6)


def test_sequence_form_by_hand():
    # both documents give 0.9 * 0.1 = 0.09 to the pair
    assert sequence_marginal(HALF, CROSSED, ONES).log_prob == pytest.approx(np.log(0.09), abs=1e-6)


def test_gradients_of_both_forms_vanish_where_documents_are_equally_good():
    for marginal in (token_marginal, sequence_marginal):
        grad_BK = jax.grad(lambda s, f=marginal: f(log_prior(s, jnp.ones((1, 2), bool)), CROSSED, ONES).log_prob)(
            jnp.zeros((1, 2))
        )
        np.testing.assert_allclose(grad_BK, 0.0, atol=1e-6)


def random_case(seed, B=3, K=4, M=5):
    rng = np.random.default_rng(seed)
    score_BK = rng.normal(size=(B, K)) * 3
    valid_BK = rng.random((B, K)) < 0.7
    valid_BK[:, 0] = True
    log_prob_BKM = np.log(rng.uniform(0.001, 1.0, size=(B, K, M)))
    weight_BM = (rng.random((B, M)) < 0.6).astype(np.float64)
    weight_BM[0] = 0.0
    return score_BK, valid_BK, log_prob_BKM, weight_BM


def brute_force(score_BK, valid_BK, log_prob_BKM, weight_BM, form):
    """The definitions in float64, with loops and without any log-sum-exp."""
    total = 0.0
    for b in range(len(score_BK)):
        ks = np.flatnonzero(valid_BK[b])
        prior = np.exp(score_BK[b, ks]) / np.exp(score_BK[b, ks]).sum()
        masks = np.flatnonzero(weight_BM[b])
        p_km = np.exp(log_prob_BKM[b][ks][:, masks])
        if form == "token":
            total += sum(np.log((prior * p_km[:, j]).sum()) for j in range(len(masks)))
        elif len(masks):
            total += np.log((prior * p_km.prod(axis=1)).sum())
    return total


@pytest.mark.parametrize(("form", "marginal"), [("token", token_marginal), ("sequence", sequence_marginal)])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_equals_brute_force(form, marginal, seed):
    case = random_case(seed)
    score_BK, valid_BK, log_prob_BKM, weight_BM = (jnp.asarray(x, jnp.float32) for x in case)
    found = marginal(log_prior(score_BK, valid_BK.astype(bool)), log_prob_BKM, weight_BM).log_prob
    assert found == pytest.approx(brute_force(*case, form), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("marginal", [token_marginal, sequence_marginal])
def test_gradient_to_a_score_is_posterior_minus_prior(marginal):
    # Guu et al., appendix A: d log p(y|x) / d f(x,z) = p(z|y,x) - p(z|x), for the token form summed over its masks
    score_BK, valid_BK, log_prob_BKM, weight_BM = (jnp.asarray(x, jnp.float32) for x in random_case(7))
    valid_BK = valid_BK.astype(bool)
    grad_BK = jax.grad(lambda s: marginal(log_prior(s, valid_BK), log_prob_BKM, weight_BM).log_prob)(score_BK)
    prior = log_prior(score_BK, valid_BK)
    posterior_BK = marginal(prior, log_prob_BKM, weight_BM).posterior_BK
    masks_B = weight_BM.sum(axis=1) if marginal is token_marginal else (weight_BM.sum(axis=1) > 0).astype(jnp.float32)
    np.testing.assert_allclose(grad_BK, (posterior_BK - jnp.exp(prior)) * masks_B[:, None], atol=2e-5)
    np.testing.assert_allclose(grad_BK.sum(axis=1), 0.0, atol=1e-5)
    assert np.abs(grad_BK).max() > 0.01


@pytest.mark.parametrize("marginal", [token_marginal, sequence_marginal])
def test_order_of_candidates_does_not_matter(marginal):
    score_BK, valid_BK, log_prob_BKM, weight_BM = (jnp.asarray(x, jnp.float32) for x in random_case(3))
    order = np.array([2, 0, 3, 1])
    a = marginal(log_prior(score_BK, valid_BK > 0), log_prob_BKM, weight_BM).log_prob
    b = marginal(log_prior(score_BK[:, order], valid_BK[:, order] > 0), log_prob_BKM[:, order], weight_BM).log_prob
    assert a == pytest.approx(float(b), rel=1e-6)


def test_one_mask_an_example_makes_both_forms_equal():
    score_BK, valid_BK, log_prob_BKM, _ = (jnp.asarray(x, jnp.float32) for x in random_case(5))
    weight_BM = jnp.zeros((3, 5)).at[:, 2].set(1.0)
    prior = log_prior(score_BK, valid_BK > 0)
    sequence = float(sequence_marginal(prior, log_prob_BKM, weight_BM).log_prob)
    assert token_marginal(prior, log_prob_BKM, weight_BM).log_prob == pytest.approx(sequence, rel=1e-6)


def test_invalid_slots_have_no_weight_and_no_gradient_even_when_their_content_is_wild():
    score_BK, valid_BK, log_prob_BKM, weight_BM = (jnp.asarray(x, jnp.float32) for x in random_case(11))
    valid_BK = valid_BK > 0

    def loss(s, lp):
        return token_marginal(log_prior(s, valid_BK), lp, weight_BM).log_prob

    wild = jnp.where(valid_BK, score_BK, 1e6)
    assert loss(wild, log_prob_BKM) == loss(score_BK, log_prob_BKM)
    grad_s, grad_lp = jax.grad(loss, argnums=(0, 1))(wild, log_prob_BKM)
    assert np.isfinite(grad_s).all() and np.isfinite(grad_lp).all()
    assert not np.asarray(grad_s)[~np.asarray(valid_BK)].any()
    assert not np.asarray(grad_lp)[~np.asarray(valid_BK)].any()


def test_null_alone_is_the_plain_masked_language_model():
    _, _, log_prob_BKM, weight_BM = (jnp.asarray(x, jnp.float32) for x in random_case(2))
    only_null = jnp.zeros((3, 4), bool).at[:, 0].set(True)
    found = token_marginal(log_prior(jnp.ones((3, 4)), only_null), log_prob_BKM, weight_BM)
    assert found.log_prob == pytest.approx(float((log_prob_BKM[:, 0] * weight_BM).sum()), rel=1e-6)
    assert found.log_prob == pytest.approx(float(found.log_prob_null), rel=1e-6)


def test_entropy_of_uniform_and_of_certain():
    prior = log_prior(jnp.array([[0.0, 0.0, 0.0, 0.0], [50.0, 0.0, 0.0, 0.0]]), jnp.ones((2, 4), bool))
    np.testing.assert_allclose(entropy(prior), [np.log(4), 0.0], atol=1e-6)
