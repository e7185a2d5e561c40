"""A stage's first index, without embedding: from where its retriever comes from, or from kept vectors.

Embedding a corpus is what a short job costs most, so what was embedded by the same block tower is taken over.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax

from experiments.config import Stage
from experiments.recipe_of import recipe_of
from experiments.warm_start import PreflightError, initial_params, is_run, run_folder
from index_refresh.claim import RefresherTaken
from index_refresh.generation import Generation, GenerationMismatch
from index_refresh.recipe import Recipe
from index_refresh.reuse import carry_over, other_tower, other_vectors, refresh_edited
from index_refresh.store import GenerationStore
from realm.protocols import Params
from realm.text.table import BlockTable


def first_index(name: str, stage: Stage, table: BlockTable, folder: Path, finished: dict[str, Path]) -> None:
    """Makes generation 0 of the stage in `folder` from vectors that are there, where it has none of its own yet.

    From `refresh.vectors` the vectors are copied and the index is built. Otherwise the whole index of the stage or run
    that the retriever comes from is taken over, if its block tower has not moved since. Raises PreflightError where
    `refresh.vectors` has nothing that fits.
    """
    if not stage.objective.candidates:
        return
    recipe = recipe_of(stage, table)
    if GenerationStore(folder, recipe).numbers():
        return
    try:
        if stage.refresh.vectors is not None:
            params = _retriever(stage, finished)
            earlier = _fitting(name, Path(stage.refresh.vectors), recipe, params)
            made = refresh_edited(earlier, recipe, folder, params, step=0)
            print(f"{name:13s}  {made.reused} vectors taken over from {earlier.path}", file=sys.stderr)
            return
        source = _source(stage, finished)
        newest = source and GenerationStore(source, recipe).newest()
        if newest and carry_over(newest, recipe, folder, _retriever(stage, finished)):
            print(f"{name:13s}  index taken over from {source.name}: its retriever has not moved", file=sys.stderr)
    except RefresherTaken:  # one of an External engine is there before its trainer, and will embed the corpus itself
        return


def _retriever(stage: Stage, finished: dict[str, Path]) -> Params:
    return {"retriever": jax.device_get(initial_params(stage, finished)["retriever"])}


def _source(stage: Stage, finished: dict[str, Path]) -> Path | None:
    """The run folder that the retriever comes from, if any."""
    source = stage.warm_start.get("retriever", "")
    return run_folder(source) if is_run(source) else finished.get(source)


def _fitting(name: str, path: Path, recipe: Recipe, params: Params) -> Generation:
    """The newest generation in `path`, or in a folder in it, whose vectors are those that the recipe would make."""
    wrong = []
    for folder in (path, *sorted(one for one in path.glob("*") if one.is_dir())):
        try:
            found = GenerationStore(folder, recipe).newest()
        except GenerationMismatch as error:  # of another corpus or tokenizer
            wrong.append(str(error))
            continue
        if found is None:
            continue
        if len(found.documents()) > 1:
            reason = "a rolling index, whose vectors are of several steps"
        else:
            reason = other_vectors(found.manifest["recipe"], recipe.settings()) or other_tower(found, params)
        if not reason:
            return found
        wrong.append(f"{found.path}: {reason}")
    raise PreflightError(
        f"{name}.refresh.vectors={str(path)!r} has no vectors that fit; found {'; '.join(wrong) or 'no generation'}"
    )
