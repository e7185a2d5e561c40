"""AdamW with one learning rate and start step per parameter group.

Retriever and joint encoder learn at their own rates, and the retriever may start later: while documents do not help
yet, its gradient is noise, and Adam turns noise into full-sized steps. A group that has not started is left out of
the gradient altogether, its moments stay untouched and its warm-up begins at its own start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import optax

from realm.protocols import Params


class OptimizerError(ValueError):
    """A learning rate or a constant of AdamW that cannot train, or a group that there is none of."""


def _check(name: str, value: float, right: bool, wanted: str) -> None:
    if not right:
        raise OptimizerError(f"found {name} {value}, wanted {wanted}")


@dataclass(frozen=True)
class Rate:
    """peak: learning rate after warm-up. start: first step that updates the group. warmup: steps, None = a tenth of
    the group's steps (at most 10,000, as BERT). Raises OptimizerError for values out of range."""

    peak: float = 3e-5
    start: int = 0
    warmup: int | None = None

    def __post_init__(self) -> None:
        _check("peak", self.peak, math.isfinite(self.peak) and self.peak > 0, "a finite number above 0")
        _check("start", self.start, self.start >= 0, "a step, 0 or later (past the last one: the group stays as it is)")
        _check("warmup", self.warmup, self.warmup is None or self.warmup >= 1, "at least 1 step, or None")


@dataclass(frozen=True)
class Optimizer:
    """AdamW, linear warm-up and linear decay to zero at the last step, global-norm clipping over all active groups.

    Constants are BERT's. Weight decay spares biases and LayerNorm scales.
    Raises OptimizerError for values out of range.
    """

    retriever: Rate = field(default_factory=Rate)
    joint: Rate = field(default_factory=Rate)
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("b1", "b2"):
            _check(name, getattr(self, name), 0 <= getattr(self, name) < 1, "a number from 0 to below 1")
        _check("eps", self.eps, self.eps > 0, "a number above 0")
        _check("weight_decay", self.weight_decay, 0 <= self.weight_decay < math.inf, "a finite number, 0 or more")
        _check("clip", self.clip, self.clip > 0, "a gradient norm above 0 (inf: no clipping)")

    def rate(self, group: str) -> Rate:
        """The rate of `group`; raises OptimizerError for a group that is neither `retriever` nor `joint`."""
        if group not in ("retriever", "joint"):
            raise OptimizerError(f"the optimiser knows the groups 'retriever' and 'joint', not {group!r}")
        return getattr(self, group)

    def active(self, groups: dict[str, str], step: int) -> tuple[str, ...]:
        """The top-level parameter names that are trained at `step`, sorted."""
        return tuple(sorted(name for name, group in groups.items() if step >= self.rate(group).start))

    def schedule(self, group: str, steps: int) -> optax.Schedule:
        """Learning rate as a function of the updates the group has had."""
        rate = self.rate(group)
        own = max(1, steps - rate.start)
        warmup = min(10_000, max(1, own // 10)) if rate.warmup is None else rate.warmup
        rise = optax.linear_schedule(rate.peak / max(1, warmup), rate.peak, max(1, warmup - 1))
        fall = optax.linear_schedule(rate.peak, 0.0, max(1, own - warmup))
        return optax.join_schedules([rise, fall], [warmup])

    def transform(self, group: str, steps: int) -> optax.GradientTransformation:
        """AdamW for one group; clipping is done before, over all groups together."""
        return optax.chain(
            optax.scale_by_adam(self.b1, self.b2, self.eps),
            optax.add_decayed_weights(self.weight_decay, mask=decayed),
            optax.scale_by_learning_rate(self.schedule(group, steps)),
        )

    def init(self, params: Params, groups: dict[str, str], steps: int) -> dict[str, Any]:
        return {name: self.transform(group, steps).init(params[name]) for name, group in groups.items()}

    def update(
        self, grads: Params, opt: dict[str, Any], params: Params, groups: dict[str, str], steps: int
    ) -> tuple[Params, dict[str, Any]]:
        """New (params, opt) of the groups named in `grads`; the others are passed through."""
        new_params, new_opt = dict(params), dict(opt)
        for name in grads:
            updates, new_opt[name] = self.transform(groups[name], steps).update(grads[name], opt[name], params[name])
            new_params[name] = optax.apply_updates(params[name], updates)
        return new_params, new_opt


def decayed(params: Params) -> Params:
    """True for the leaves that weight decay applies to: everything but `bias` and LayerNorm `scale`."""
    return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key not in ("bias", "scale"), params)


def clip_by_norm(grads: Params, norm: jax.Array, clip: float) -> Params:
    """Scales the gradient down to global norm `clip`, given its norm."""
    factor = jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-12))
    return jax.tree.map(lambda g: g * factor, grads)
