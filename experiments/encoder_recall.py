"""`realm evaluate hf:FOLDER`: how well a pretrained encoder retrieves as it is, beside BM25, over a built corpus.

A folder without a projection gives its pooled vectors under a random one, which says little: wanted is a sentence
encoder or a REALM.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from experiments.config import Refresh, Stage
from experiments.console import progress, wide_console
from experiments.questions import KS, QuestionSet, embed_questions
from experiments.recall_rows import RecallRows
from experiments.recipe_of import recipe_of
from experiments.searching import search_all
from experiments.warm_start import check_vocabulary
from index_refresh.build import make_generation
from index_refresh.snapshot import fingerprint
from index_refresh.store import GenerationStore
from realm.evaluation.bm25 import Bm25
from realm.evaluation.table import ResultTable
from realm.index.exact import Exact
from realm.models.bert import EncoderError
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.weights import bert_config, tower_settings
from realm.objectives.ict import Ict
from realm.text.table import BlockTable

BLOCK_LENGTHS = (64, 96, 128, 160, 192, 256, 384, 512)


def evaluate_encoder(
    spec: str,
    corpus: Path,
    questions: str,
    limit: int | None = None,
    vectors: Path | None = None,
    dumps: Path | None = None,
) -> dict[str, Any]:
    """{"recall": a table, "intervals": row -> k -> interval over articles (null where there is no number), "seconds":
    of embedding, and what `RecallRows.to_json` has} of `hf:FOLDER`.

    vectors: folder where they are kept, so that a killed measurement goes on and a job may start from them, those of
    each encoder, corpus and setting in a folder of their own inside it; None: nowhere. dumps: folder for the ranks of
    each question; None: nowhere. Raises WeightsError for a folder of something else, CorpusError for no corpus,
    EncoderError for blocks too long.
    """
    table = BlockTable.open(corpus)
    if warning := check_vocabulary(spec, table):
        print(f"WARNING {warning}", file=sys.stderr)
    asked = QuestionSet(questions, table, limit)
    config = DualEncoderConfig(bert_config(spec), init=spec, **tower_settings(spec))
    longest = int(np.max(table.length_N[: table.indexed]))
    if longest > config.bert.positions:
        raise EncoderError(
            f"{corpus}: found a block of {longest} wordpieces, wanted at most {config.bert.positions}, as {spec} has "
            "positions: build the corpus with a smaller --block-length"
        )
    lengths = tuple(one for one in BLOCK_LENGTHS if one < longest) + (longest,)
    stage = Stage(Ict(retriever=config), refresh=Refresh(block_lengths=lengths, batch_rows=32, shard_rows=1024))
    params = stage.objective.init(jax.random.key(0))
    shown = ResultTable(f"Retrieval by {Path(spec.removeprefix('hf:')).name} as it is", asked.warnings)
    found = {}
    if dumps is not None:
        dumps.mkdir(parents=True, exist_ok=True)
    recipe = replace(recipe_of(stage, table), index=Exact())
    made_by = hashlib.sha256(json.dumps(recipe.settings(), sort_keys=True, default=str).encode()).hexdigest()
    parts = fingerprint({"retriever": params["retriever"]}), table.fingerprint, made_by
    with kept_in(vectors and vectors / "-".join(part[:12] for part in parts)) as folder:
        store = GenerationStore(folder, recipe)
        made = make_generation(store, 0, params, progress("blocks"))
        searcher, seconds = made.searcher(), made.manifest["seconds_embed"]
    q_QE = embed_questions(stage.objective, params, table, asked.questions)
    found["encoder"] = search_all(searcher, q_QE, max(KS))
    found["bm25"] = Bm25(table).search([q.question for q in asked.questions], max(KS))
    rows = RecallRows(asked, shown, dumps)
    for name, hits in found.items():
        rows.add(name, "exact" if name == "encoder" else "bm25", hits)
    wide_console().print(shown)
    firsts = {name: {str(k): of_row[f"gold@{k}"] for k in (1, 5, 20)} for name, of_row in rows.intervals.items()}
    return {
        "encoder": spec,
        "recall": shown.to_json(),
        "intervals": firsts,
        "fingerprint": asked.fingerprint,
        "seconds": round(seconds, 1),
        **rows.to_json(),
    }


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """The folder, made where there is none, or one that goes away."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with TemporaryDirectory() as gone:
            yield Path(gone)
