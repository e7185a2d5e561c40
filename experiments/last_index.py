"""The last index of question answering: of the towers as training left them, where the block tower was trained.

Between the last refresh and the last step the block tower goes on; whoever asks the finished run would search its old
vectors with its new questions. Measuring embeds the corpus by the last towers anyway: that is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.config import Stage
from experiments.console import progress
from experiments.recipe_of import recipe_of
from index_refresh.build import BuildError, make_generation, refreshing
from index_refresh.claim import RefresherTaken
from index_refresh.embed import EmbedError
from index_refresh.generation import GenerationCorrupt, GenerationMismatch
from index_refresh.snapshot import SnapshotError, StaleSnapshot
from index_refresh.store import Overtaken
from realm.protocols import Params
from realm.text.table import BlockTable

PATIENCE = 10.0  # seconds that a refresher of a finished stage gets to leave
UNMADE = (
    RefresherTaken,
    GenerationCorrupt,
    GenerationMismatch,
    StaleSnapshot,
    SnapshotError,
    Overtaken,
    EmbedError,
    BuildError,
    OSError,
)


def last_index(name: str, stage: Stage, params: Params, step: int, table: BlockTable, folder: Path) -> None:
    """Makes a generation of step `step` in the stage's folder, where it has none and `train_documents` is on.

    None of a rolling schedule, which never embeds a whole corpus, nor where another host embeds and builds. One that
    was killed is taken up where it stood. Where it cannot be made (no room on the disk, a refresher that stays), that
    is said on stderr: the measurement goes on without it.
    """
    recipe = recipe_of(stage, table)
    if not getattr(stage.objective, "train_documents", False) or recipe.slices > 1 or stage.refresh.elsewhere:
        return
    try:
        with refreshing(folder, recipe, PATIENCE) as store:
            newest = store.sound()
            if newest is None or newest.step < step:
                what = f"the last index: {table.indexed} blocks by the towers of step {step}"
                print(f"{name:13s}  {what}", file=sys.stderr)
                make_generation(store, step, params, progress("blocks"))
    except UNMADE as error:
        print(f"{name:13s}  no last index: {error}", file=sys.stderr)
