"""What a model knows is in its index: documents are exchanged, the index follows, and the prediction changes untrained.

REALM's table 4 (Guu et al. 2020). The edit makes a new version of the corpus; blocks that stayed keep their vectors,
the others are embedded by the towers that made the index; no parameter moves.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.asking import Asking
from experiments.recipe_of import recipe_of
from index_refresh.reuse import refresh_edited
from realm.text.edit import CorpusEdit, edit_corpus
from realm.training.run_folder import remove_folder


def hotswap(
    asking: Asking, edit: CorpusEdit, questions: list[str], out: Path, *, overwrite: bool = False, count: int = 3
) -> dict[str, Any]:
    """{"before", "after"}: one record a question as `Asking.ask` gives it; "swap": blocks and seconds of the change.

    out: folder for the new version (`corpus`) and its index (`index-FINGERPRINT`). overwrite: what is there goes, the
    corpus and the indexes of other versions. Raises EditError for an edit that does not fit, AskError as `ask`.
    """
    before = [asking.ask(question, count) for question in questions]
    began = time.perf_counter()
    table = edit_corpus(asking.table.path, edit, Path(out) / "corpus", overwrite=overwrite)
    edited = time.perf_counter()
    recipe = replace(recipe_of(asking.run.stage, table), slices=1)
    folder = Path(out) / f"index-{table.fingerprint[:12]}"
    if overwrite:
        for other in sorted(set(Path(out).glob("index-*")) - {folder}):
            remove_folder(other)
    made = refresh_edited(asking.generation, recipe, folder)
    swapped = asking.over(table, made.generation)
    seconds = {"edit": edited - began, "refresh": time.perf_counter() - edited}
    return {
        "run": str(asking.run.folder),
        "before": before,
        "after": [swapped.ask(question, count) for question in questions],
        "swap": {
            "corpus": str(table.path),
            "fingerprint": table.fingerprint,
            "blocks": table.indexed,
            "embedded": made.embedded,
            "reason": made.reason,
            "lineage": table.manifest["lineage"],
            "seconds": seconds,
        },
    }
