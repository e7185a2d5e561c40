"""What a training step and embedding need in bytes: exact shapes, and what XLA says of the compiled program.

Nothing is allocated: parameters and optimiser are shapes (`jax.eval_shape`), and so is the batch. The batch is a real
small one, packed by the objective itself, whose first axes are made as long as the job's: an array's name says whether
that axis counts examples (B) or distinct blocks (U).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.config import Stage
from realm.protocols import Arrays, Units
from realm.retrieve import NULL, Candidates, Retrieval, device_arrays, distinct_sizes
from realm.text.plan import example_rng
from realm.text.table import BlockTable
from realm.training.feed import collate
from realm.training.step import init_state, make_step, parts_of

SMALL = 4  # examples of the real batch


class StepBytes(NamedTuple):
    """Bytes on each device. params, moments: exact. gradients: of all groups that ever train, in float32. batch: what a
    step is given. step: what XLA reserves besides (activations, gradients and temporary arrays together), None where
    nothing was compiled."""

    params: int
    moments: int
    gradients: int
    retriever: int
    batch: int
    step: int | None


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays, or shapes of arrays, in a tree."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def step_bytes(stage: Stage, table: BlockTable, devices: int, compiled: bool, units: Units | None = None) -> StepBytes:
    """The bytes of a training step of `stage` when its batch is divided over so many devices.

    table: any corpus that the stage can make examples of; only its shapes matter. compiled: ask XLA, which takes as
    long as the first step of training does. units: those of the stage, where they were made already.
    """
    objective, training = stage.objective, stage.training
    params = jax.eval_shape(objective.init, jax.random.key(0))
    state = jax.eval_shape(lambda p: init_state(objective, training.optimizer, p, training.steps), params)
    active = training.optimizer.active(objective.groups(), training.steps)
    batch = abstract_batch(stage, table, max(1, training.batch_size // devices), units)
    step = None
    if compiled:
        run = make_step(
            objective,
            training.optimizer,
            steps=training.steps,
            active=active,
            accumulate=training.accumulate,
            seed=training.seed,
        )
        step = temporary_bytes(run.lower(state, batch))
    return StepBytes(
        params=tree_bytes(state["params"]),
        moments=tree_bytes(state["opt"]),
        gradients=tree_bytes(parts_of(params, active)),
        retriever=tree_bytes(params.get("retriever", {})),
        batch=tree_bytes(batch),
        step=step,
    )


def temporary_bytes(lowered: Any) -> int | None:
    """What a program needs besides its arguments and results; None where the backend does not tell."""
    stats = lowered.compile().memory_analysis()
    return None if stats is None else int(stats.temp_size_in_bytes)


def abstract_batch(stage: Stage, table: BlockTable, rows: int, units: Units | None = None) -> Arrays:
    """Shapes of the largest batch of `rows` examples: longest padding, every candidate another block."""
    objective, length = stage.objective, max(stage.objective.batch_lengths)
    units = objective.units(table) if units is None else units
    small = min(SMALL, len(units))
    examples = [objective.example(units[number], example_rng(0, 0, number), length) for number in range(small)]
    batch, longest = collate(examples), 0
    if objective.candidates:
        if getattr(objective, "vectors", None) == "batch":  # looks into blocks until it has what it wants
            objective = replace(objective, beam=max(objective.read, objective.negatives))
        k, longest = objective.candidates, max(objective.block_lengths)
        id_BK = np.arange(small * k, dtype=np.int32).reshape(small, k) % table.indexed
        id_BK[:, 0] = NULL
        found = Candidates(id_BK, np.ones_like(id_BK, bool), np.zeros(small, bool))
        retrieval = Retrieval(table, candidates=k, block_lengths=objective.block_lengths, multiple=1, one_shape=True)
        batch = objective.found(batch, retrieval.retrieved(found, lambda: _Zeros(stage)))
    shapes = {
        name: _shape(name, np.asarray(array), small, rows, longest) for name, array in device_arrays(batch).items()
    }
    if "ignored_BL" in shapes:  # beams as wide as the batch
        wide = objective.trained_read + shapes["block_length_U"].shape[0]
        for name in shapes.keys() & {"slot_BK", "valid_BL", "correct_BL", "ignored_BL", "vector_slot_BL"}:
            shapes[name] = jax.ShapeDtypeStruct((rows, wide), shapes[name].dtype)
    return shapes


class _Zeros:
    """Stands for the stored vectors of an index."""

    def __init__(self, stage: Stage) -> None:
        self.width = embed_bytes(stage, compiled=False).width

    def take(self, row_N: np.ndarray) -> np.ndarray:
        return np.zeros((len(row_N), self.width), np.float32)


def _shape(name: str, array: np.ndarray, small: int, rows: int, longest: int) -> jax.ShapeDtypeStruct:
    """The shape with `rows` examples instead of `small`; distinct blocks: one a candidate, and the null block."""
    axes, first, rest = name.rpartition("_")[2], rows, array.shape[1:]
    if axes.startswith("U"):
        first = distinct_sizes(rows, (len(array) - 1) // small + 1)[-1]
    if axes.startswith("UT"):
        rest = (longest, *rest[1:])
    return jax.ShapeDtypeStruct((first, *rest), array.dtype)


class EmbedBytes(NamedTuple):
    """width of the vectors; temporary: bytes XLA reserves for a batch besides the parameters, None if not compiled."""

    width: int
    temporary: int | None


def embed_bytes(stage: Stage, compiled: bool) -> EmbedBytes:
    """The bytes of embedding `refresh.batch_rows` blocks of the longest kind."""
    objective, refresh = stage.objective, stage.refresh
    rows, length = refresh.batch_rows, refresh.block_lengths[-1]
    params = {"retriever": jax.eval_shape(objective.init, jax.random.key(0))["retriever"]}
    counts = jax.ShapeDtypeStruct((rows,), np.int32)
    blocks = {"token_NT": jax.ShapeDtypeStruct((rows, length), np.int32), "length_N": counts, "body_N": counts}
    width = jax.eval_shape(objective.embed_items, params, blocks).shape[1]
    temporary = temporary_bytes(jax.jit(objective.embed_items).lower(params, blocks)) if compiled else None
    return EmbedBytes(width, temporary)
