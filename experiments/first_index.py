"""A stage's first index, without embedding: from where its retriever comes from, or from kept vectors.

Embedding a corpus is what a short job costs most, so what was embedded by the same block tower is taken over: whole,
by links, where the index is of the same settings too; otherwise the vectors, and the index is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax

from experiments.config import Preset, Stage
from experiments.recipe_of import recipe_of
from experiments.warm_start import PreflightError, initial_params, is_run, run_folder
from index_refresh.claim import RefresherTaken
from index_refresh.generation import Generation, GenerationCorrupt, GenerationMismatch
from index_refresh.recipe import Recipe
from index_refresh.reuse import carry_over, refresh_edited, unlike
from index_refresh.store import GenerationStore
from realm.protocols import Params
from realm.text.table import BlockTable

UNFIT = (GenerationMismatch, GenerationCorrupt, FileNotFoundError)  # the last: its run deleted it meanwhile


def check_vectors(preset: Preset, table: BlockTable, out: Path) -> None:
    """Raises PreflightError where a stage's `refresh.vectors` has nothing of this corpus and its settings.

    Which tower made them is not looked at: it may be trained by an earlier stage. A stage that has an index in its
    folder in `out` needs none.
    """
    for name, stage in preset.stages().items():
        if not stage.objective.candidates or stage.refresh.vectors is None:
            continue
        recipe = recipe_of(stage, table)
        if not GenerationStore(out / name, recipe).numbers():
            _fitting(name, stage.refresh.vectors, recipe, None)


def first_index(name: str, stage: Stage, table: BlockTable, folder: Path, finished: dict[str, Path]) -> None:
    """Makes generation 0 of the stage in `folder` from vectors that are there, where it has none of its own yet.

    They are those of `refresh.vectors`, or else of the stage or run that the retriever comes from, if its block tower
    made its newest index. Raises PreflightError where `refresh.vectors` has nothing that fits.
    """
    if not stage.objective.candidates:
        return
    recipe = recipe_of(stage, table)
    if GenerationStore(folder, recipe).numbers():
        return
    try:
        if stage.refresh.vectors is not None:
            params = _retriever(stage, finished)
            _taken(name, _fitting(name, stage.refresh.vectors, recipe, params), recipe, folder, params)
        else:
            _taken_from_source(name, stage, recipe, folder, finished)
    except RefresherTaken as error:  # one of an External engine is there first, and embeds the corpus itself
        _said(name, f"no vectors taken over: {error}")


def _taken_from_source(name: str, stage: Stage, recipe: Recipe, folder: Path, finished: dict[str, Path]) -> None:
    """Nothing where the retriever comes from nowhere, or from what has no index that fits; the corpus is embedded."""
    source = stage.warm_start.get("retriever", "")
    run = run_folder(source) if is_run(source) else finished.get(source)
    try:
        earlier = run and GenerationStore(run, recipe).newest()
        if earlier is None:
            return
        params = _retriever(stage, finished)
        if not unlike(earlier, recipe, params):
            _taken(name, earlier, recipe, folder, params)
    except UNFIT as error:
        _said(name, f"no vectors taken over: {error}")


def _retriever(stage: Stage, finished: dict[str, Path]) -> Params:
    return {"retriever": jax.device_get(initial_params(stage, finished)["retriever"])}


def _taken(name: str, earlier: Generation, recipe: Recipe, folder: Path, params: Params) -> None:
    made = carry_over(earlier, recipe, folder, params)
    rows = made.manifest["rows"] if made else refresh_edited(earlier, recipe, folder, params, step=0).reused
    what = "index" if made else f"{rows} vectors"
    _said(name, f"{what} taken over from {earlier.path}: of the same block tower")


def _said(name: str, text: str) -> None:
    print(f"{name:13s}  {text}", file=sys.stderr)


def _fitting(name: str, path: str, recipe: Recipe, params: Params | None) -> Generation:
    """The newest generation in `path`, or in a folder in it, whose vectors are those that the recipe would make; by
    whatever tower where params are None."""
    wrong = []
    for folder in (Path(path), *sorted(one for one in Path(path).glob("*") if one.is_dir())):
        try:
            found = GenerationStore(folder, recipe).newest()
            if found is None:
                continue
            reason = unlike(found, recipe, params)
            if not reason:
                return found
            wrong.append(f"{found.path}: {reason}")
        except UNFIT as error:
            wrong.append(str(error))
    raise PreflightError(
        f"{name}.refresh.vectors={path!r} has no vectors that fit; found {'; '.join(wrong) or 'no generation'}"
    )
