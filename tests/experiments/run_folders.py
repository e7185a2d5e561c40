"""Run folders that nobody trained: random parameters at the end of a stage, all that asking or an export needs."""

from dataclasses import replace

import jax
import numpy as np

from experiments.config import to_json
from realm.training.checkpoint import Checkpoints
from realm.training.run_folder import write_json


def job(folder, table, preset, name, pooling="cls"):
    """(main job with this stage alone, the stage, its parameters): random ones, at the end of step 4."""
    stage = getattr(preset, name)
    objective = stage.objective
    if hasattr(objective, "retriever"):
        objective = replace(objective, retriever=replace(objective.retriever, pooling=pooling))
    stage = replace(stage, objective=objective, warm_start={})
    params = objective.init(jax.random.key(3))
    state = {"params": params, "step": np.int32(4)}
    checkpoints = Checkpoints(folder / name / "checkpoints")
    checkpoints.save(state, None, None)
    checkpoints.close()
    alone = dict.fromkeys(("mlm", "ict", "realm", "open_qa")) | {name: stage}
    write_json(folder / name / "config.json", {"config": to_json(stage) | {"corpus": table.fingerprint}})
    write_json(folder / "preset.json", to_json(replace(preset, questions=None, **alone)))
    (folder / "corpus").symlink_to(table.path)
    return folder, stage, params
