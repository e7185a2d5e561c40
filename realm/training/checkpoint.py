"""Checkpoints by orbax: parameters, optimiser moments, step, the adopted generation, and what was retrieved ahead.

A checkpoint is visible only when complete. Batch n depends on (seed, n) alone, so the integer step is the data
position. Restoring goes through abstract shapes, on whatever devices there are now.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from realm.protocols import Arrays
from realm.training.step import State


class CheckpointMissing(FileNotFoundError):
    """A checkpoint was asked for that is not there."""


class Restored(NamedTuple):
    """state; generation number adopted when it was saved (None: no index); pending candidates of the next batch."""

    state: State
    generation: int | None
    pending: Arrays | None


class Checkpoints:
    """The `checkpoints/` folder of a run; keeps the newest `keep`."""

    def __init__(self, folder: Path, keep: int = 2):
        self.folder = Path(folder).resolve()
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._orbax = ocp.CheckpointManager(self.folder, options=options)

    def steps(self) -> list[int]:
        return sorted(self._orbax.all_steps())

    def save(self, state: State, generation: int | None, pending: Arrays | None) -> int:
        """Writes the state under its own step, which it returns; a step that is already there is left alone."""
        step = int(state["step"])
        if step in self._orbax.all_steps():
            return step
        items = {
            "state": ocp.args.StandardSave(state),
            "position": ocp.args.JsonSave({"step": step, "generation": generation, "pending": pending is not None}),
        }
        if pending is not None:
            items["pending"] = ocp.args.StandardSave(pending)
        self._orbax.save(step, args=ocp.args.Composite(**items))
        self._orbax.wait_until_finished()
        return step

    def restore(self, like: State, step: int | None = None) -> Restored:
        """The newest checkpoint (or the one of `step`), placed like the arrays of `like`."""
        step = _existing(self.folder, self.steps(), step)
        position = self._orbax.restore(step, args=ocp.args.Composite(position=ocp.args.JsonRestore())).position
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        items = {"state": ocp.args.StandardRestore(abstract)}
        if position["pending"]:
            items["pending"] = ocp.args.StandardRestore()
        restored = self._orbax.restore(step, args=ocp.args.Composite(**items))
        pending = dict(restored.pending) if position["pending"] else None
        return Restored(restored.state, position["generation"], pending)

    def generations(self) -> set[int]:
        """The generation numbers that kept checkpoints refer to."""
        positions = (
            self._orbax.restore(step, args=ocp.args.Composite(position=ocp.args.JsonRestore())).position
            for step in self.steps()
        )
        return {p["generation"] for p in positions if p["generation"] is not None}

    def close(self) -> None:
        self._orbax.close()


def restore_params(folder: Path, step: int | None = None) -> tuple[dict[str, Any], int]:
    """(params, step) of a run's newest checkpoint on this process's first device, whatever devices wrote it."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise CheckpointMissing(f"{folder}: wanted any checkpoint, found steps none")
    handlers = {
        "state": ocp.PyTreeCheckpointHandler(),
        "position": ocp.JsonCheckpointHandler(),
        "pending": ocp.StandardCheckpointHandler(),
    }
    # Each process for itself: orbax would otherwise wait for all of them, and only one may be asking.
    own = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(),
        active_processes={jax.process_index()},
        barrier_sync_key_prefix=f"restore-{jax.process_index()}",
    )
    options = ocp.CheckpointManagerOptions(create=False, multiprocessing_options=own)
    with ocp.CheckpointManager(folder, item_handlers=handlers, options=options) as manager:
        step = _existing(folder, sorted(manager.all_steps()), step)
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        saved = manager.item_metadata(step)["state"].tree["params"]
        target = {"params": jax.tree.map(lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=here), saved)}
        places = ocp.checkpoint_utils.construct_restore_args(target)
        wanted = ocp.args.PyTreeRestore(item=target, restore_args=places, partial_restore=True)
        restored = manager.restore(step, args=ocp.args.Composite(state=wanted))
    return restored["state"]["params"], step


def _existing(folder: Path, steps: list[int], step: int | None) -> int:
    if not steps or (step is not None and step not in steps):
        wanted = "any checkpoint" if step is None else f"a checkpoint of step {step}"
        raise CheckpointMissing(f"{folder}: wanted {wanted}, found steps {steps or 'none'}")
    return steps[-1] if step is None else step
