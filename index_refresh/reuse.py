"""After a corpus edit only what changed is embedded: the other vectors are copied from an earlier generation.

A block's vector is a function of its wordpieces, the block tower and the shapes it is computed at. So where that
tower's parameters have the same fingerprint, and the retriever's configuration, padded lengths, batch rows and vector
type are the same, a row whose wordpieces the parent corpus has too (`realm.text.changed`) has the same vector, bit for
bit. The query tower, and what else an objective says, of questions, beam or reader, count for nothing. Anything else
embeds all.
In the same way a stage whose block tower is that of an earlier generation takes over its whole index.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from index_refresh import files, snapshot
from index_refresh.build import Here, make_generation, peaks, refreshing
from index_refresh.claim import Claim
from index_refresh.draft import Draft
from index_refresh.embed import Shards, Tick, embedding
from index_refresh.generation import ENCODER, Generation, recorded_files, verify
from index_refresh.recipe import Recipe, Table
from index_refresh.store import GenerationStore
from index_refresh.vectors import StoredVectors
from realm.protocols import Params
from realm.text.changed import changed_rows

SAME = ("vector_dtype", "lengths", "batch_rows")  # of a recipe's settings: what a vector depends on besides the encoder
# Of a retriever's configuration: how it began and is trained. Its parameters are compared by themselves.
NO_MATTER = ("init", "init_scale", "dropout", "attention_dropout", "shared")
# Objectives that embed blocks by the same code, `dual_encoder`; any other is like itself alone.
ALIKE = ("Ict", "Realm", "OpenQa")
# Fields that came later, and what was done before them.
BEFORE = {"retriever.block_segments": "2"}


def retriever_of(objective: str) -> dict[str, str]:
    """What of an objective makes a block's vector, from its repr as manifests hold it: its class, unless it is of those
    that embed alike, and the retriever's fields by path, those that came later as they were before. An objective
    without a retriever, or with a repr that is no expression, counts as a whole."""
    try:
        call = ast.parse(objective, mode="eval").body
    except SyntaxError:
        return {"objective": objective}
    found = [word.value for word in getattr(call, "keywords", ()) if word.arg == "retriever"]
    if not found or not isinstance(found[0], ast.Call):
        return {"objective": objective}
    name = ast.unparse(call.func)
    return {"objective": "dual encoder" if name in ALIKE else name} | BEFORE | dict(_fields(found[0], "retriever"))


def _fields(call: ast.Call, path: str) -> Iterator[tuple[str, str]]:
    for word in call.keywords:
        if isinstance(word.value, ast.Call):
            yield from _fields(word.value, f"{path}.{word.arg}")
        elif word.arg not in NO_MATTER:
            yield f"{path}.{word.arg}", ast.unparse(word.value)


def other_vectors(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Why recipes of these settings give one block other vectors: "another NAME: found X, wanted Y; ..."; empty where
    they do not."""
    pairs = {name: (found.get(name), wanted[name]) for name in SAME}
    theirs, ours = retriever_of(str(found.get("objective"))), retriever_of(wanted["objective"])
    pairs |= {name: (theirs.get(name, "nothing"), ours.get(name, "nothing")) for name in theirs | ours}
    return "; ".join(f"another {name}: found {one}, wanted {two}" for name, (one, two) in pairs.items() if one != two)


def other_tower(earlier: Generation, params: Params) -> str:
    """Why `params` = {'retriever': tree} embed blocks by another tower than an earlier generation's did; empty where by
    the same.

    Of two towers only the block's counts. Raises GenerationCorrupt where the earlier parameters are damaged.
    """
    wanted, found = snapshot.fingerprint(params), earlier.manifest["encoder_fingerprint"]
    if found == wanted:
        return ""
    towers = [one["retriever"].get("block", one["retriever"].get("tower")) for one in (params, earlier.query_params())]
    if None not in towers and snapshot.fingerprint(towers[0]) == snapshot.fingerprint(towers[1]):
        return ""
    return f"other parameters: fingerprint {wanted[:12]}, {earlier} has {found[:12]}"


def unlike(earlier: Generation, recipe: Recipe, params: Params | None) -> str:
    """Why the vectors of an earlier generation are not those that `recipe` makes with `params`, or where these are None
    with the right ones; empty where they are. Which corpus they are of is another question. Raises as `other_tower`."""
    if len(earlier.documents()) > 1:
        return f"{earlier} rolls: its vectors are of several steps"
    if other := other_vectors(earlier.manifest["recipe"], recipe.settings()):
        return f"{other} ({earlier})"
    return "" if params is None else other_tower(earlier, params)


class Reuse(NamedTuple):
    """old_row_N int64 [rows of the new table]: a row of `vectors` that holds a row's vector, -1 where it is to be
    made."""

    vectors: StoredVectors
    old_row_N: np.ndarray

    def copy(self, vector_NE: np.ndarray, low: int) -> int:
        """Fills the rows of [n, E], the first of which is row `low`, that there are; how many."""
        old_row_N = self.old_row_N[low : low + len(vector_NE)]
        known_N = np.flatnonzero(old_row_N >= 0)
        vector_NE[known_N] = self.vectors.take(old_row_N[known_N])
        return len(known_N)


def reusable(recipe: Recipe, table: Table, params: Params, earlier: Generation) -> tuple[Reuse | None, str]:
    """(what of an earlier generation serves for `table`, why so much or why nothing).

    params: {'retriever': tree}, those to embed with. Raises GenerationCorrupt where the earlier vectors are damaged.
    """
    if other := unlike(earlier, recipe, params):
        return None, other
    old = earlier.recipe.open_table()
    if old.tokenizer.fingerprint != table.tokenizer.fingerprint:
        return None, "another vocabulary"
    verify(earlier)
    old_row_N = np.asarray(changed_rows(old, table).old_row_N[: table.indexed])
    vectors = earlier.vectors()
    old_row_N = np.where(old_row_N < vectors.rows, old_row_N, -1)  # a row that is only masked has no vector
    return Reuse(vectors, old_row_N), "same parameters"


class Reusing(Here):
    """This process embeds and builds, and takes over what an earlier generation has; see `build.Hands`.

    After the embedding `embedded` and `reused` count rows, and `reason` says why.
    """

    def __init__(self, earlier: Generation):
        self.earlier = earlier
        self.embedded = self.reused = 0
        self.reason = "not begun"

    def embedding(
        self, recipe: Recipe, table: Table, params: Params, draft: Draft, tick: Tick
    ) -> Generator[int, None, Shards]:
        reuse, self.reason = reusable(recipe, table, params, self.earlier)
        self.reused = 0 if reuse is None else int((reuse.old_row_N >= 0).sum())
        self.embedded = table.indexed - self.reused
        return embedding(recipe, table, params, draft, tick, reuse)


class Refreshed(NamedTuple):
    """The generation of a new corpus version; how many rows were embedded and taken over, and why."""

    generation: Generation
    embedded: int
    reused: int
    reason: str


def refresh_edited(
    earlier: Generation, recipe: Recipe, out: str | Path, params: Params | None = None, step: int | None = None
) -> Refreshed:
    """Makes in the folder `out` a generation of the corpus that `recipe` names, as new as `earlier` or of `step`.

    params: {'retriever': tree}, by default those of `earlier`; with another block tower every block is embedded. Raises
    RefresherTaken where another process works on `out`, StaleSnapshot where it holds a later generation, EmbedError,
    BuildError, GenerationCorrupt.
    """
    hands = Reusing(earlier)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with refreshing(out, recipe) as store:
        step = earlier.step if step is None else step
        made = make_generation(store, step, params or earlier.query_params(), _silent, hands=hands)
    if hands.reason == "not begun":
        return Refreshed(made, 0, made.manifest["rows"], "made before")
    return Refreshed(made, hands.embedded, hands.reused, hands.reason)


def carry_over(earlier: Generation, recipe: Recipe, out: str | Path, params: Params) -> Generation | None:
    """Makes generation 0, of step 0, of the run in `out` from another run's generation, by hard links: nothing is
    embedded or built. None where the run has generations already, or anything that vectors and index depend on differs:
    the block tower, corpus, vocabulary, or a setting of the recipe (of its objective: the retriever's configuration).

    Raises RefresherTaken where another process works on `out`, GenerationCorrupt where the earlier files are damaged.
    """
    out = Path(out)
    store, manifest = GenerationStore(out, recipe), earlier.manifest
    wanted = {
        "corpus_fingerprint": store.table.fingerprint,
        "tokenizer_fingerprint": store.table.tokenizer.fingerprint,
    }
    found, settings = manifest["recipe"], recipe.settings()
    same = found | {"objective": settings["objective"]} == settings
    began = store.numbers() or any(store.folder.glob(".aside-*"))  # a draft alone is what a kill left of this very call
    if began or recipe.slices > 1 or not same or not wanted.items() <= manifest.items():
        return None
    if unlike(earlier, recipe, params):
        return None
    verify(earlier)
    out.mkdir(parents=True, exist_ok=True)
    claim = Claim(out)
    try:
        draft = store.begin(0, snapshot.fingerprint(params))
        for name in recorded_files(manifest):
            files.make_folder((draft.folder / name).parent)
            if name != ENCODER:
                files.link(earlier.path / name, draft.folder / name)
        snapshot.write_params(draft.folder / ENCODER, params)  # the query tower may be another
        kept = {name: manifest[name] for name in ("dim", "dtype", "shards", "index")}
        cost = {"seconds_embed": 0.0, "seconds_build": 0.0, "blocks_per_second": 0.0, **peaks()}
        made = store.publish(draft, kept | cost | {"taken": time.time()})
        store.log_published()
    finally:
        claim.release()
    return made


def _silent(*_: Any) -> None:
    """Reports nothing."""
