"""What a model knows is in its index: documents are exchanged, the index follows, and the prediction changes untrained.

REALM's table 4 (Guu et al. 2020). The edit makes a new version of the corpus; blocks that stayed keep their vectors,
the others are embedded by the towers that made the index; no parameter moves, which hashes before and after show.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from experiments.asking import Asking
from experiments.recipe_of import recipe_of
from index_refresh.generation import Generation
from index_refresh.reuse import refresh_edited
from realm.models.tree_hash import tree_hash
from realm.protocols import Params
from realm.text.edit import CorpusEdit, edit_corpus
from realm.text.table import BlockTable
from realm.training.run_folder import remove_folder


class Edited(NamedTuple):
    """A new version of a corpus in `out`/corpus, and the seconds that it took."""

    table: BlockTable
    out: Path
    overwrite: bool
    seconds: float


def edited(corpus: Path, edit: CorpusEdit, out: Path, *, overwrite: bool = False) -> Edited:
    """Makes the new version; no run needs to be loaded for that. overwrite: what is there goes, and with the swap the
    indexes of other versions. Raises EditError for an edit that does not fit."""
    began = time.perf_counter()
    table = edit_corpus(corpus, edit, Path(out) / "corpus", overwrite=overwrite)
    return Edited(table, Path(out), overwrite, time.perf_counter() - began)


def hotswap(asking: Asking, new: Edited, questions: list[str], count: int = 3) -> dict[str, Any]:
    """{"before", "after"}: one record a question as `Asking.ask` gives it; "swap": blocks, seconds and parameters of
    the change.

    The index of the new version is made in its folder (`index-FINGERPRINT`). `parameters`: before and after, tree_hash
    of the retriever, of the `joint` encoder (a fine-tuned run's reader) and of the retriever that the index is made
    with. Raises AskError as `ask`.
    """
    table = new.table
    before = [asking.ask(question, count) for question in questions]
    hashes = {"before": _hashes(asking.params, asking.generation)}
    began = time.perf_counter()
    recipe = replace(recipe_of(asking.run.stage, table), slices=1)
    folder = new.out / f"index-{table.fingerprint[:12]}"
    if new.overwrite:
        for other in sorted(set(new.out.glob("index-*")) - {folder}):
            remove_folder(other)
    made = refresh_edited(asking.generation, recipe, folder)
    swapped = asking.over(table, made.generation)
    seconds = {"edit": new.seconds, "refresh": time.perf_counter() - began}
    after = [swapped.ask(question, count) for question in questions]
    return {
        "run": str(asking.run.folder),
        "before": before,
        "after": after,
        "swap": {
            "corpus": str(table.path),
            "fingerprint": table.fingerprint,
            "blocks": table.indexed,
            "embedded": made.embedded,
            "reason": made.reason,
            "lineage": table.manifest["lineage"],
            "parameters": hashes | {"after": _hashes(swapped.params, made.generation)},
            "seconds": seconds,
        },
    }


def _hashes(params: Params, generation: Generation) -> dict[str, str]:
    parts = {part: tree_hash(params[part]) for part in ("retriever", "joint")}
    return parts | {"index": tree_hash(generation.query_params()["retriever"])}
