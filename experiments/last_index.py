"""A stage's last index: of the towers as training left them, where the block tower was trained.

Between the last refresh and the last step the block tower goes on; whoever asks the finished run would search its old
vectors with its new questions. Measuring embeds the corpus by the last towers anyway: that is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.config import Stage
from experiments.console import told
from experiments.recipe_of import recipe_of
from index_refresh.build import make_generation
from index_refresh.claim import Claim, RefresherTaken
from index_refresh.generation import GenerationCorrupt, GenerationMismatch
from index_refresh.store import GenerationStore
from realm.protocols import Params
from realm.text.table import BlockTable


def last_index(name: str, stage: Stage, params: Params, step: int, table: BlockTable, folder: Path) -> None:
    """Makes a generation of step `step` in the stage's folder, where it has none and the block tower was trained.

    None of a rolling schedule, which never embeds a whole corpus. One that was killed is taken up where it stood. What
    cannot be made (a refresher of its own still works there, or an older index is damaged) is said on stderr.
    """
    recipe = recipe_of(stage, table)
    if not getattr(stage.objective, "train_documents", False) or recipe.slices > 1:
        return
    try:
        claim = Claim(folder)
        try:
            store = GenerationStore(folder, recipe)
            newest = store.newest()
            if newest is None or newest.step < step:
                print(
                    f"{name:13s}  the last index: {table.indexed} blocks by the towers of step {step}", file=sys.stderr
                )
                make_generation(store, step, params, told("blocks"))
                store.log_published()
        finally:
            claim.release()
    except (RefresherTaken, GenerationCorrupt, GenerationMismatch) as error:
        print(f"{name:13s}  no last index: {error}", file=sys.stderr)
