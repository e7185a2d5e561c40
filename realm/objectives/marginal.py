"""The REALM marginal: log-likelihood of masked words summed over retrieved blocks.

p(y|x) = sum_z p(z|x) p(y|z,x) (Guu et al. 2020, equation 1), p(z|x) a softmax over the candidates of one query, the
null block among them. Two readings of y exist: the released code marginalises each masked wordpiece on its own
(token form), the paper the whole masked span at once (sequence form). They agree when one wordpiece is masked.
All functions are pure; everything is float32.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

# Finite, so that a masked slot gives weight exactly 0 and a gradient of exactly 0 instead of NaN.
MASKED = -1e30


def log_prior(score_BK: jax.Array, valid_BK: jax.Array) -> jax.Array:
    """log p(z|x) over the valid candidates [B, K]; about -1e30 where invalid (equation 2)."""
    return jax.nn.log_softmax(jnp.where(valid_BK, score_BK.astype(jnp.float32), MASKED), axis=-1)


class Marginal(NamedTuple):
    """log_prob: total log-likelihood in nats; posterior_BK: p(z|y,x), in token form the mean over masked tokens;
    log_prob_null: the same total given the null block alone."""

    log_prob: jax.Array
    posterior_BK: jax.Array
    log_prob_null: jax.Array


def token_marginal(log_prior_BK: jax.Array, log_prob_BKM: jax.Array, weight_BM: jax.Array) -> Marginal:
    """sum_j log sum_z p(z|x) p(y_j|z,x): each masked wordpiece marginalised alone (released REALM code)."""
    joint_BKM = log_prior_BK[:, :, None] + log_prob_BKM
    total_BM = jax.nn.logsumexp(joint_BKM, axis=1)
    share_BM = weight_BM / jnp.maximum(weight_BM.sum(axis=1, keepdims=True), 1e-9)
    posterior_BK = jnp.einsum("bkm,bm->bk", jnp.exp(joint_BKM - total_BM[:, None, :]), share_BM)
    null = (log_prob_BKM[:, 0, :] * weight_BM).sum()
    return Marginal((total_BM * weight_BM).sum(), posterior_BK, null)


def sequence_marginal(log_prior_BK: jax.Array, log_prob_BKM: jax.Array, weight_BM: jax.Array) -> Marginal:
    """log sum_z p(z|x) prod_j p(y_j|z,x): the masked span marginalised as a whole (the paper's equation 1)."""
    joint_BK = log_prior_BK + (log_prob_BKM * weight_BM[:, None, :]).sum(axis=-1)
    total_B = jax.nn.logsumexp(joint_BK, axis=1)
    has_mask_B = weight_BM.sum(axis=1) > 0
    null = (log_prob_BKM[:, 0, :] * weight_BM).sum()
    return Marginal((total_B * has_mask_B).sum(), jnp.exp(joint_BK - total_B[:, None]), null)


def entropy(log_prior_BK: jax.Array) -> jax.Array:
    """Entropy of p(z|x) in nats [B]."""
    p_BK = jnp.exp(log_prior_BK)
    return -(p_BK * jnp.where(p_BK > 0, log_prior_BK, 0.0)).sum(axis=-1)
