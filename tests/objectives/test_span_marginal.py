"""Marginals and spans as pure functions: by hand, by a sort, and by what the gradient must be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.objectives.span_marginal import best_spans, marginal_log_likelihood, spans_inside


def test_two_blocks_by_hand():
    log_prob_B, found_B = marginal_log_likelihood(
        jnp.log(jnp.array([[1.0, 3.0, 4.0], [1.0, 3.0, 4.0], [5.0, 1.0, 1.0]])),
        jnp.array([[True, True, True], [True, True, False], [True, False, False]]),
        jnp.array([[False, True, False], [False, True, True], [False, False, True]]),
    )
    np.testing.assert_allclose(log_prob_B, [np.log(3 / 8), np.log(3 / 4), 0.0], rtol=1e-6)
    assert found_B.tolist() == [True, True, False]


def test_the_gradient_of_a_score_is_posterior_minus_prior():
    rng = np.random.default_rng(0)
    score_BX, valid_BX = rng.normal(size=(5, 12)) * 20, rng.random((5, 12)) < 0.8
    correct_BX = rng.random((5, 12)) < 0.3
    correct_BX[4] = False
    gradient_BX = jax.grad(lambda s: marginal_log_likelihood(s, valid_BX, correct_BX).log_prob_B.sum())(
        jnp.asarray(score_BX, jnp.float32)
    )
    prior_BX = np.exp(score_BX - score_BX.max()) * valid_BX
    posterior_BX = prior_BX * correct_BX
    for part_BX in (prior_BX, posterior_BX):
        part_BX /= np.maximum(part_BX.sum(axis=1, keepdims=True), 1e-300)
    expected_BX = (posterior_BX - prior_BX) * (posterior_BX.sum(axis=1, keepdims=True) > 0)
    np.testing.assert_allclose(gradient_BX, expected_BX, atol=1e-5)
    assert not gradient_BX[4].any() and not np.asarray(gradient_BX)[~valid_BX].any() and np.abs(gradient_BX).max() > 0.1
    np.testing.assert_allclose(gradient_BX.sum(axis=1), 0.0, atol=1e-6)


def test_spans_inside_by_hand():
    found = np.asarray(spans_inside(jnp.array([[3, 0]]), 2, 4)).astype(int)
    assert found.tolist() == [[[[1, 1, 1, 0], [1, 1, 0, 0]], [[0, 0, 0, 0], [0, 0, 0, 0]]]]


def test_best_spans_are_those_of_a_sort():
    rng = np.random.default_rng(3)
    score_BKWT = rng.normal(size=(2, 3, 2, 5)).astype(np.float32)
    valid_BKWT = rng.random(score_BKWT.shape) < 0.5
    valid_BKWT[1] = False
    valid_BKWT[1, 2, 1, 0] = True
    best = jax.device_get(best_spans(score_BKWT, valid_BKWT, 4))
    every = sorted(((score_BKWT[0][i], i) for i in np.ndindex(3, 2, 5) if valid_BKWT[0][i]), reverse=True)
    total = np.log(sum(np.exp(np.float64(score)) for score, _ in every))
    for n, (score, (k, w, t)) in enumerate(every[:4]):
        assert (best.block_Bn[0, n], best.start_Bn[0, n], best.end_Bn[0, n]) == (k, t, t + w + 1)
        assert best.log_prob_Bn[0, n] == pytest.approx(score - total, abs=1e-5)
    assert best.valid_Bn.tolist() == [[True] * 4, [True, False, False, False]]
    assert (best.block_Bn[1, 0], best.start_Bn[1, 0], best.end_Bn[1, 0], best.log_prob_Bn[1, 0]) == (2, 0, 2, 0.0)
