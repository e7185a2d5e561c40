"""Small real jobs for the loop's tests: 60 paragraphs of the embedded sample and the tiny preset's models."""

import dataclasses
from pathlib import Path

import jax
import numpy as np

from experiments.presets.tiny import preset
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.training.loop import Outcome, train
from realm.training.run_folder import RunFolder

STAGE = preset().realm


def build_table(folder: Path) -> BlockTable:
    config = CorpusConfig(
        documents=str(sample_path("corpus")), spans=str(sample_path("spans")), limit=60, block_length=64, holdout=0.2
    )
    return build_corpus(config, folder)


def objective():
    return dataclasses.replace(STAGE.objective, batch_lengths=(40,), block_lengths=(64,))


def training(**changes):
    return dataclasses.replace(STAGE.training, **({"steps": 8, "checkpoint_every": 3} | changes))


def run_job(
    table, folder, *, existing="refuse", objective=None, training=None, schedule="every 3", init=None, report=None
) -> Outcome:
    """Trains the tiny realm stage in `folder`."""
    chosen = globals()["objective"]() if objective is None else objective
    settings = globals()["training"]() if training is None else training
    run = RunFolder(folder, existing)
    run.write_config({})
    refresher = None
    if chosen.candidates:
        refresh = dataclasses.replace(STAGE.refresh, block_lengths=(64,))
        recipe = Recipe(chosen, str(table.path), refresh.index, shard_rows=64, batch_rows=16, lengths=(64,))
        refresher = refresh.engine.start(recipe, parse_schedule(schedule), run.path)
    said = [] if report is None else report
    return train(
        chosen,
        table,
        settings,
        run,
        init=init or (lambda: chosen.init(jax.random.key(0))),
        refresher=refresher,
        report=said.append,
    )


def same_bits(a, b) -> bool:
    """Whether two trees of arrays agree to the last bit."""
    leaves_a, leaves_b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(leaves_a) == len(leaves_b) and all(
        np.asarray(x).dtype == np.asarray(y).dtype and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(leaves_a, leaves_b, strict=True)
    )


def flip_one_bit(tree):
    """A copy of a tree in which the lowest bit of one number is another."""
    leaves, shape = jax.tree.flatten(jax.device_get(tree))
    changed = np.array(leaves[-1], copy=True)
    changed.reshape(-1).view(np.uint8)[0] ^= 1
    return jax.tree.unflatten(shape, [*leaves[:-1], changed])
