"""The recipe of a stage: its objective, corpus, index and batch shapes, and the slices that its schedule rolls over."""

from __future__ import annotations

from experiments.config import Stage
from index_refresh.recipe import Recipe
from index_refresh.schedule import parse_schedule, slices_of
from realm.text.table import BlockTable


def recipe_of(stage: Stage, table: BlockTable) -> Recipe:
    """How the stage's snapshots become indexes."""
    slices, rebuild = slices_of(parse_schedule(stage.refresh.schedule))
    return Recipe(
        objective=stage.objective,
        corpus=str(table.path),
        index=stage.refresh.index,
        shard_rows=stage.refresh.shard_rows,
        batch_rows=stage.refresh.batch_rows,
        lengths=stage.refresh.block_lengths,
        slices=slices,
        rebuild=rebuild,
    )
