"""Marginal likelihood of what is correct among many: blocks of a beam, or all spans of the blocks that are read.

log p = logsumexp(correct) - logsumexp(all), as ORQA's released code trains retriever and reader (arXiv 1906.00300,
section 4). Where nothing is correct there is nothing to learn: log p counts as 0 and its gradient is 0. Spans are laid
out as [W, T] for each block, entry (w, t) from wordpiece t to t + w. Pure functions, float32.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from realm.objectives.marginal import MASKED


class Likelihood(NamedTuple):
    """log_prob_B float32 in nats, 0 where nothing is correct; found_B bool: something is."""

    log_prob_B: jax.Array
    found_B: jax.Array


def marginal_log_likelihood(score_BX: jax.Array, valid_BX: jax.Array, correct_BX: jax.Array) -> Likelihood:
    """log of the share that the correct entries have of the softmax over the valid ones.

    The gradient of log_prob to a score is its posterior (among the correct ones) minus its prior (among all).
    """
    correct_BX = correct_BX & valid_BX
    found_B = correct_BX.any(axis=-1)
    log_prior_BX = jax.nn.log_softmax(jnp.where(valid_BX, score_BX.astype(jnp.float32), MASKED), axis=-1)
    total_B = jax.nn.logsumexp(jnp.where(correct_BX, log_prior_BX, MASKED), axis=-1)
    return Likelihood(jnp.where(found_B, total_B, 0.0), found_B)


def spans_inside(length_BK: jax.Array, widths: int, places: int) -> jax.Array:
    """bool [B, K, W, T]: the spans that end within the first length_BK wordpieces of their block."""
    last_WT = jnp.arange(widths)[:, None] + jnp.arange(places)
    return last_WT < length_BK[..., None, None]


class BestSpans(NamedTuple):
    """The spans of the highest scores, best first: which block, and wordpieces start .. end - 1 of its body, int32
    [B, n]; valid_Bn bool, False where there is no such span; log_prob_Bn, of the span among all spans."""

    block_Bn: jax.Array
    start_Bn: jax.Array
    end_Bn: jax.Array
    valid_Bn: jax.Array
    log_prob_Bn: jax.Array


def best_spans(score_BKWT: jax.Array, valid_BKWT: jax.Array, count: int) -> BestSpans:
    """The `count` best of all spans of all blocks together; equal scores: the lower block, then the narrower span."""
    B, _, W, T = score_BKWT.shape
    log_prob_BX = jax.nn.log_softmax(jnp.where(valid_BKWT, score_BKWT, MASKED).reshape(B, -1), axis=-1)
    log_prob_Bn, at_Bn = jax.lax.top_k(log_prob_BX, count)
    block_Bn, rest_Bn = jnp.divmod(at_Bn, W * T)
    width_Bn, start_Bn = jnp.divmod(rest_Bn, T)
    valid_Bn = jnp.take_along_axis(valid_BKWT.reshape(B, -1), at_Bn, axis=1)
    return BestSpans(block_Bn, start_Bn, start_Bn + width_Bn + 1, valid_Bn, log_prob_Bn)
