"""One training step: loss, gradient, clipping, update, in one jitted function for any objective.

The step says whether everything was finite and which gradient was not; on a non-finite step it leaves the state
unchanged. The decision is taken from values that every device shares, so no device can disagree with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import getitem
from typing import Any

import jax
import jax.numpy as jnp

from realm.protocols import Arrays, Metrics, Objective, Params
from realm.training.optimizer import Optimizer, clip_by_norm

State = dict[str, Any]


class StepError(ValueError):
    """A batch that a step cannot take."""


def init_state(objective: Objective, optimizer: Optimizer, params: Params, steps: int) -> State:
    """Parameters, optimiser moments and the step counter, all arrays."""
    return {
        "params": params,
        "opt": optimizer.init(parts_of(params, objective.groups()), objective.groups(), steps),
        "step": jnp.zeros((), jnp.int32),
    }


def make_step(
    objective: Objective, optimizer: Optimizer, *, steps: int, active: tuple[str, ...], accumulate: int, seed: int
) -> Callable[[State, Arrays], tuple[State, Metrics]]:
    """A jitted `(state, batch) -> (state, metrics)`. The old state's memory is reused for the new one.

    active: paths of the parameters trained now. accumulate: microbatches a step, each counting by its weight; exact
    where the loss is a mean over predictions.
    """
    groups = objective.groups()

    def gradient(params: Params, batch: Arrays, key: jax.Array):
        def loss_of(trained):
            return objective.loss(with_parts(params, trained), batch, key)

        return jax.value_and_grad(loss_of, has_aux=True)(parts_of(params, active))

    def accumulated(params: Params, batch: Arrays, key: jax.Array):
        if accumulate == 1:
            return gradient(params, batch, key)
        shared, parts = microbatches(batch, accumulate)

        def add(total, part):
            number, micro = part
            (loss, metrics), grads = gradient(params, shared | micro, jax.random.fold_in(key, number))
            weight = metrics["weight"]
            return jax.tree.map(lambda t, x: t + weight * x, total, ((loss, metrics), grads)), weight

        first = jax.tree.map(lambda x: x[0], parts)
        like = jax.eval_shape(gradient, params, shared | first, key)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), like)
        total, weight_A = jax.lax.scan(add, zeros, (jnp.arange(accumulate), parts))
        (loss, metrics), grads = jax.tree.map(lambda t: t / jnp.maximum(weight_A.sum(), 1e-9), total)
        return (loss, metrics | {"weight": weight_A.sum()}), grads

    def step(state: State, batch: Arrays) -> tuple[State, Metrics]:
        key = jax.random.fold_in(jax.random.key(seed), state["step"])
        (loss, metrics), grads = accumulated(state["params"], batch, key)
        square_P = jnp.stack([jnp.vdot(g, g).real for g in jax.tree.leaves(grads)])
        norm = jnp.sqrt(square_P.sum())
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        clipped = clip_by_norm(grads, norm, optimizer.clip)
        moving = parts_of(state["params"], groups)
        moved, opt = optimizer.update(clipped, state["opt"], moving, groups, steps)
        new = {"params": with_parts(state["params"], moved), "opt": opt, "step": state["step"] + 1}
        kept = jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, state)
        return kept, metrics | {"loss": loss, "grad_norm": norm, "finite": finite, "finite_P": jnp.isfinite(square_P)}

    return jax.jit(step, donate_argnums=0)


def microbatches(batch: Arrays, count: int) -> tuple[Arrays, Arrays]:
    """(shared, parts): arrays over distinct blocks (U) as they are, all others as [count, B/count, ...].

    Part i takes rows i, i+count, ...: every device then holds rows of every part.
    """
    shared = {k: v for k, v in batch.items() if k.rpartition("_")[2].startswith("U")}
    parts = {k: v for k, v in batch.items() if k not in shared}
    rows = next(iter(parts.values())).shape[0]
    if rows % count:
        raise StepError(f"a batch of {rows} does not split into {count} equal microbatches")
    return shared, {k: v.reshape(rows // count, count, *v.shape[1:]).swapaxes(0, 1) for k, v in parts.items()}


def gradient_names(params: Params, active: tuple[str, ...]) -> list[str]:
    """Names of the gradient leaves in the order of `finite_P`."""
    paths = jax.tree_util.tree_leaves_with_path(parts_of(params, active))
    return ["/".join(str(part.key) for part in path) for path, _ in paths]


def parts_of(params: Params, paths: Iterable[str]) -> Params:
    """{path: the subtree there}; `retriever/query` is a path."""
    return {path: reduce(getitem, path.split("/"), params) for path in paths}


def with_parts(params: Params, parts: Params) -> Params:
    """`params` with other subtrees at these paths; no dict is changed in place."""
    for path, subtree in parts.items():
        first, _, rest = path.partition("/")
        params = params | {first: with_parts(params[first], {rest: subtree}) if rest else subtree}
    return params
