"""A stage's first index, without embedding: from where its retriever comes from, or from kept vectors.

Embedding a corpus is what a short job costs most, so what was embedded by the same block tower is taken over: whole,
by links, where the index is of the same settings too; otherwise the vectors, and the index is built.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jax

from experiments.config import Preset, Stage
from experiments.recipe_of import recipe_of
from experiments.warm_start import PreflightError, initial_params, is_run, run_folder
from index_refresh.claim import RefresherTaken
from index_refresh.generation import Generation, GenerationCorrupt, GenerationMismatch
from index_refresh.recipe import Recipe
from index_refresh.reuse import carry_over, other_tower, other_vectors, refresh_edited
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
    named, source = stage.refresh.vectors, _source(stage, finished)
    if not stage.objective.candidates or (named is None and source is None):
        return
    recipe = recipe_of(stage, table)
    if GenerationStore(folder, recipe).numbers():
        return
    params = {"retriever": jax.device_get(initial_params(stage, finished)["retriever"])}
    try:
        if named is not None:
            _taken(name, _fitting(name, named, recipe, params), recipe, folder, params)
            return
        for found in _generations(source, recipe):
            if not isinstance(found, Generation):
                raise found
            if not _unlike(found, recipe, params):
                _taken(name, found, recipe, folder, params)
    except RefresherTaken as error:  # one of an External engine is there first, and embeds the corpus itself
        print(f"{name:13s}  no vectors taken over: {error}", file=sys.stderr)
    except UNFIT as error:
        if named is not None:
            raise
        print(f"{name:13s}  no vectors taken over: {error}", file=sys.stderr)


def _taken(name: str, earlier: Generation, recipe: Recipe, folder: Path, params: Params) -> None:
    made = carry_over(earlier, recipe, folder, params)
    rows = made.manifest["rows"] if made else refresh_edited(earlier, recipe, folder, params, step=0).reused
    what = "index" if made else f"{rows} vectors"
    print(f"{name:13s}  {what} taken over from {earlier.path}: of the same block tower", file=sys.stderr)


def _source(stage: Stage, finished: dict[str, Path]) -> Path | None:
    """The run folder that the retriever comes from, if any."""
    source = stage.warm_start.get("retriever", "")
    return run_folder(source) if is_run(source) else finished.get(source)


def _fitting(name: str, path: str, recipe: Recipe, params: Params | None) -> Generation:
    """The newest generation in `path`, or in a folder in it, whose vectors are those that the recipe would make; by
    whatever tower where params are None."""
    wrong = []
    for folder in (Path(path), *sorted(one for one in Path(path).glob("*") if one.is_dir())):
        for found in _generations(folder, recipe):
            try:
                reason = _unlike(found, recipe, params) if isinstance(found, Generation) else str(found)
            except UNFIT as error:
                reason = str(error)
            if not reason:
                return found
            wrong.append(f"{found.path}: {reason}" if isinstance(found, Generation) else reason)
    raise PreflightError(
        f"{name}.refresh.vectors={path!r} has no vectors that fit; found {'; '.join(wrong) or 'no generation'}"
    )


def _generations(folder: Path, recipe: Recipe) -> Iterator[Generation | Exception]:
    """The newest generation of a folder, if it has any; or why it cannot be used."""
    try:
        if (found := GenerationStore(folder, recipe).newest()) is not None:
            yield found
    except UNFIT as error:
        yield error


def _unlike(found: Generation, recipe: Recipe, params: Params | None) -> str:
    """Why the vectors of a generation are not those that the recipe would make; empty where they are."""
    if len(found.documents()) > 1:
        return "a rolling index, whose vectors are of several steps"
    other = other_vectors(found.manifest["recipe"], recipe.settings())
    return other or (other_tower(found, params) if params is not None else "")
