"""A rolling refresh: each generation embeds one slice of the corpus and takes the rest over from the one before.

Every generation is whole: the shards it takes over are hard links to the same bytes (copies, where a file system has no
links), so that each can be checked, searched and deleted without the others, and nothing has to be kept for its sake.
A slice is a run of shards, and which one follows from the generation's number, so a resumed run comes to the same.
The index is that of the base, with the new rows put into it; kinds that cannot are built anew from the stored vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from index_refresh import files
from index_refresh.draft import Draft
from index_refresh.embed import choose_devices, plan_batches
from index_refresh.generation import INDEX, Generation, GenerationMissing, content_of, renewed_spans
from index_refresh.recipe import Index, Recipe, Table
from index_refresh.schedule import Schedule, ScheduleError, slices_of
from index_refresh.store import GenerationStore, Overtaken
from index_refresh.vectors import shard_name
from realm.protocols import Searcher


def check_slices(recipe: Recipe, schedule: Schedule, indexed: Callable[[], int]) -> None:
    """Raises ScheduleError where recipe and schedule disagree on the slices, or there are fewer shards than slices.
    `indexed` counts the blocks, and is asked only where there are slices."""
    wanted = slices_of(schedule)
    if (recipe.slices, recipe.rebuild) != wanted:
        raise ScheduleError(
            f"{schedule} divides the corpus into {wanted[0]} slices (rebuild {wanted[1]}), the recipe into "
            f"{recipe.slices} (rebuild {recipe.rebuild}): give both the same"
        )
    if recipe.slices == 1:
        return
    rows = indexed()
    shards = -(-rows // recipe.shard_rows)
    if recipe.slices > max(shards, 1):
        raise ScheduleError(
            f"{schedule}: {rows} blocks in files of shard_rows={recipe.shard_rows} are {shards} files, wanted "
            f"{recipe.slices} or more, because a slice is made of whole files; give shard_rows of at most "
            f"{max(1, rows // recipe.slices)}, or fewer slices"
        )


def slice_shards(recipe: Recipe, rows: int, number: int) -> range:
    """The shards that generation `number` embeds: all of them for 0 and where nothing rolls."""
    shards = -(-rows // recipe.shard_rows)
    if recipe.slices == 1 or number == 0:
        return range(shards)
    part = (number - 1) % recipe.slices
    return range(part * shards // recipe.slices, (part + 1) * shards // recipe.slices)


def most_batches(recipe: Recipe, table: Table) -> int:
    """How many batches `embedding` counts for the slice with the most, on the devices of this process."""
    rows = recipe.batch_rows * choose_devices(recipe, table.indexed).size

    def batches(shard: int) -> int:
        low = shard * recipe.shard_rows
        length_N = np.asarray(table.length_N[low : min(low + recipe.shard_rows, table.indexed)])
        return sum(1 for _ in plan_batches(length_N, recipe.lengths, rows))

    parts = (slice_shards(recipe, table.indexed, number) for number in range(1, recipe.slices + 1))
    return max(sum(map(batches, shards)) for shards in parts)


def base_of(store: GenerationStore, draft: Draft) -> Generation | None:
    """The generation that the draft takes over from; None where it embeds everything. Raises Overtaken where it is
    gone: a trainer went back."""
    if "base" not in draft.identity:
        return None
    try:
        base = store.open(draft.number - 1)
    except GenerationMissing as error:
        raise Overtaken(f"{draft.folder}: the generation it takes over from is gone ({error})") from error
    if content_of(base.manifest) != draft.identity["base"]:
        raise Overtaken(f"{draft.folder}: {base} is not the generation it takes over from")
    return base


def take_over(recipe: Recipe, draft: Draft, base: Generation) -> None:
    """Links the shards that stay into the draft and records them as done, each with the step of its vectors.

    Called again after a kill it links what is missing. A shard of the base whose bytes are not those of its manifest is
    embedded with the rest: `embedding` compares checksums before it believes that a shard is done.
    """
    anew = {shard_name(n) for n in slice_shards(recipe, base.manifest["rows"], draft.number)}
    kept = [shard for shard in base.manifest["shards"] if shard["file"] not in anew]
    progress = files.read_json(draft.progress)
    for shard in kept:
        made = {"step": base.step, "taken": base.taken} | shard
        known = progress["shards"].get(shard["file"])
        if known is not None and "step" not in known:  # damaged in the base, and embedded before a kill
            continue
        progress["shards"][shard["file"]] = made | {"seconds": 0.0}
        target = draft.folder / shard["file"]
        if not target.is_file() or target.stat().st_size != shard["bytes"]:
            files.link(base.path / shard["file"], target)
    files.write_json(draft.progress, progress)


@dataclass(frozen=True)
class Renewed:
    """An index config that puts the rows of `spans` into the index saved in `saved`, for kinds that have `renew`;
    others are built anew."""

    index: Index
    saved: str
    spans: tuple[tuple[int, int], ...]

    def build(self, shards: Iterable[np.ndarray], mesh: Any = None, rows: int | None = None) -> Searcher:
        renew = getattr(self.index, "renew", None)
        return self.index.build(shards, mesh, rows) if renew is None else renew(self.saved, shards, self.spans)

    def load(self, folder: Any, shards: Iterable[np.ndarray], mesh: Any = None) -> Searcher:
        return self.index.load(folder, shards, mesh)


def renewing(recipe: Recipe, draft: Draft, base: Generation, shards: Sequence[dict[str, Any]]) -> Recipe:
    """The recipe that builds the index of a draft from that of its base; unchanged where it is time to build it from
    all vectors, or the base's index is damaged."""
    rounds = recipe.slices * recipe.rebuild
    own = {name: record for name, record in base.manifest["files"].items() if name.startswith(f"{INDEX}/")}
    intact = all(_is(base.path / name, record["sha256"]) for name, record in own.items())
    if not intact or (rounds and draft.number % rounds == 0):
        return recipe
    return replace(recipe, index=Renewed(recipe.index, str(base.path / INDEX), renewed_spans(shards, draft.step)))


def _is(path: Path, checksum: str) -> bool:
    return path.is_file() and files.sha256(path) == checksum
