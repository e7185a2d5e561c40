"""Asking a run: a question to a fine-tuned one, a statement with [MASK] to a pretrained one.

The index is the newest generation of the run; where there is none, one is built beside it (`ask/`) and kept. Table and
stored vectors stay memory maps, of which a question reads the rows it needs; the exact index copies the matrix of all
vectors onto the device, the longer the more blocks there are. A fine-tuned run answers with spans of blocks. A
pretrained one fills masked words: it says the likeliest wordpieces by the marginal over the retrieved blocks, and what
each block makes of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.cloze_question import AskError, check_question, filled, masked_examples
from experiments.locate import Run, open_run
from experiments.recipe_of import recipe_of
from index_refresh.build import make_generation
from index_refresh.claim import Claim
from index_refresh.generation import Generation, GenerationCorrupt, GenerationMismatch
from index_refresh.store import GenerationStore
from realm.evaluation.reader import read_answers
from realm.objectives.open_qa import OpenQa
from realm.objectives.realm import Realm
from realm.protocols import Params, Searcher
from realm.retrieve import Retrieval, queries_of
from realm.text.answer_places import wanted
from realm.text.question_units import question_unit
from realm.text.questions import Question
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.feed import collate

SPANS = 10  # spans looked at for each block that is shown
KEPT = 2  # indexes built for asking: the newest, and one that another question may still be put to


@dataclass(frozen=True)
class Asking:
    """A run ready to be asked. vectors: the stored ones of the index; age: how many steps older they are than the
    parameters."""

    run: Run
    params: Params
    step: int
    table: BlockTable
    searcher: Searcher
    vectors: Any
    generation: Generation
    retrieval: Retrieval
    embed: Callable[..., Any]
    towers: Params

    @property
    def index(self) -> dict[str, Any]:
        """What is searched."""
        made = self.generation
        return {
            "kind": self.searcher.kind,
            "rows": self.searcher.rows,
            "generation": made.number,
            "generation_step": made.step,
            "index_age": self.step - made.step,
            "corpus": self.table.fingerprint,
        }

    @property
    def masked(self) -> bool:
        """Whether the run fills masked words, rather than answers questions."""
        return isinstance(self.run.stage.objective, Realm)

    def ask(self, question: str, count: int = 3, pieces: int | None = None) -> dict[str, Any]:
        """The answer with its evidence, best first, as JSON values: `answer`, `p`, `evidence` (each `answer`, `block`,
        `title`, `text`, `spans` of characters, `p_block` = p(z|x), `p_answer` = p(y|z,x)), `seconds`, `index`.

        `p` of a span is among all spans of the blocks read, p(z|x) among the whole beam; `p` of masked words is their
        marginal. `warnings` tell what of a question was not read. count: how many blocks are shown. pieces: wordpieces
        of one [MASK], of a pretrained run only; by default all numbers are tried. Raises AskError.
        """
        check_question(self.run, question, pieces)
        found = self._fill(question, count, pieces) if self.masked else self._answer(question, count)
        return {"question": question, "step": self.step, "index": self.index} | found

    def over(self, table: BlockTable, generation: Generation) -> Asking:
        """The same parameters over another version of the corpus."""
        return replace(
            self,
            table=table,
            generation=generation,
            searcher=generation.searcher(),
            vectors=generation.vectors(),
            retrieval=_retrieval(self.run, table),
        )

    def _search(self, batch: dict[str, Any], search: Callable[[np.ndarray], Any]) -> tuple[Any, dict[str, float]]:
        """What `search` finds for the query vectors of a batch, and the seconds of both."""
        began = time.perf_counter()
        q_BE = np.asarray(self.embed(self.towers, queries_of(batch)))
        embedded = time.perf_counter()
        found = search(q_BE)
        return found, {"embed": embedded - began, "search": time.perf_counter() - embedded}

    def _answer(self, question: str, count: int) -> dict[str, Any]:
        objective: OpenQa = self.run.stage.objective
        unit = question_unit(question, self.table.tokenizer)
        length = next((n for n in objective.batch_lengths if n >= len(unit.token_T) + 2), objective.batch_lengths[-1])
        batch = collate([objective.example(unit, None, length)])
        unread = max(len(unit.token_T) + 2 - length, 0)
        cut = f"the last {unread} of {len(unit.token_T)} wordpieces were not read: a question here has {length - 2}"
        width = min(objective.beam, self.searcher.rows)
        hits, seconds = self._search(batch, lambda q_BE: self.searcher.search(q_BE, width))
        began = time.perf_counter()
        answers = read_answers(
            objective,
            self.params,
            [Question("", question, (), None)],
            hits,
            join=lambda candidates: self.retrieval.retrieved(candidates, lambda: self.vectors),
            places=self.retrieval.places,
            collate=collate,
            batch_size=1,
            count=SPANS * count,
        )[0]
        # Neighbouring spans of one block are next to each other in this list: of each block the best one is shown.
        answers = list({one.row: one for one in reversed(answers)}.values())
        answers = sorted(answers, key=lambda one: -one.log_prob)[:count]
        evidence = [
            self._evidence(one.row, one.block_log_prob, one.span_log_prob)
            | {"answer": one.text, "spans": [[one.start, one.end]], "p": float(np.exp(one.log_prob))}
            for one in answers
        ]
        return {
            "answer": evidence[0]["answer"] if evidence else None,
            "p": evidence[0]["p"] if evidence else None,
            "evidence": evidence,
            "warnings": [cut] if unread else [],
            "seconds": seconds | {"read": time.perf_counter() - began},
        }

    def _fill(self, statement: str, count: int, pieces: int | None) -> dict[str, Any]:
        objective: Realm = self.run.stage.objective
        examples, sizes = masked_examples(objective, self.table.tokenizer, statement, pieces)
        batch = collate(examples)
        candidates, seconds = self._search(
            batch, lambda q_BE: self.retrieval.search(self.searcher, q_BE, batch["own_B"])
        )
        began = time.perf_counter()
        ready = objective.found(batch, self.retrieval.retrieved(candidates, lambda: self.vectors))
        token_BM, log_BK, prior_BK = filled(objective)(self.params, ready)
        joint_BK = np.log(np.maximum(prior_BK, 1e-38)) + log_BK
        joint_BK = np.where(candidates.valid_BK, joint_BK, -np.inf)
        total_B = np.logaddexp.reduce(joint_BK, axis=1)
        # The pieces of an answer are predicted apart from one another, so that a mean over pieces would rather repeat
        # a piece it is sure of ("24 24 24") than say it once: the likeliest whole is taken.
        best = int(np.argmax(total_B))
        tokens = token_BM[best, : sizes[best]].tolist()
        answer = self.table.tokenizer.decode(tokens)
        evidence = []
        for k in np.argsort(-joint_BK[best], kind="stable")[: count + 1]:
            if candidates.valid_BK[best, k]:
                row = int(candidates.id_BK[best, k])
                one = self._evidence(row, float(np.log(max(prior_BK[best, k], 1e-38))), float(log_BK[best, k]))
                evidence.append(one | {"answer": answer, "spans": self._places(row, answer)})
        return {
            "answer": answer,
            "p": float(np.exp(total_B[best])),
            "wordpieces": int(sizes[best]),
            "evidence": evidence,
            "warnings": [],
            "seconds": seconds | {"read": time.perf_counter() - began},
        }

    def _evidence(self, row: int, log_p_block: float, log_p_answer: float) -> dict[str, Any]:
        known = {"p_block": float(np.exp(log_p_block)), "p_answer": float(np.exp(log_p_answer))}
        if row < 0:
            return {"block": None, "title": "(null block)", "text": ""} | known
        return {"block": self.table.block_id(row), "title": self.table.title(row), "text": self.table.text(row)} | known

    def _places(self, row: int, answer: str) -> list[list[int]]:
        """Where the answer stands in a block, in characters."""
        places = self.retrieval.places
        if row < 0 or not wanted([answer]):
            return []
        return [list(places.characters(row, *span)) for span in places.spans(row, [answer])]


def answering_run(path: Path) -> Run:
    """The run at `path`, not loaded yet. Raises AskError for a stage that cannot answer, RunFolderError."""
    run = open_run(path)
    if not isinstance(run.stage.objective, Realm | OpenQa):
        raise AskError(f"{run.folder}: stage {run.name} answers nothing; give a realm or open_qa stage")
    return run


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def open_asking(path: Path, report: Callable[[str], None] = _say) -> Asking:
    """The run at `path` with its newest index. Raises as `answering_run` and `loaded` do."""
    return loaded(answering_run(path), report)


def loaded(run: Run, report: Callable[[str], None] = _say) -> Asking:
    """A run of `answering_run` with its newest index. Raises RefresherTaken where another process builds the index that
    is missing."""
    objective = run.stage.objective
    params, step = restore_params(run.folder / "checkpoints")
    generation = _generation(run, params, step, report)
    towers = {"retriever": params["retriever"]}
    if run.stage.training.query_tower == "generation":
        towers = generation.query_params()
    return Asking(
        run=run,
        params=params,
        step=step,
        table=run.table,
        searcher=generation.searcher(),
        vectors=generation.vectors(),
        generation=generation,
        retrieval=_retrieval(run, run.table),
        embed=jax.jit(objective.embed_queries),
        towers=towers,
    )


def _generation(run: Run, params: Params, step: int, report: Callable[[str], None]) -> Generation:
    """The newest generation of the run, or one built for asking where it has none that can be used."""
    recipe = recipe_of(run.stage, run.table)
    try:
        newest = GenerationStore(run.folder, recipe).newest()
        if newest is not None:
            return newest
        why = "it has none"
    except (GenerationMismatch, GenerationCorrupt) as error:
        why = str(error)
    beside = run.folder / "ask"
    store = GenerationStore(beside, recipe)
    newest = store.newest()
    if newest is None or newest.step < step:
        report(f"{run.folder}: no index to ask ({why}): building one in {beside}, {run.table.indexed} blocks")
        claim = Claim(beside)  # two questions at once must not write one draft
        try:
            store.clear()
            newest = make_generation(store, step, params, lambda phase, done, total: None)
            store.retain(KEPT)
        finally:
            claim.release()
    return newest


def _retrieval(run: Run, table: BlockTable) -> Retrieval:
    objective = run.stage.objective
    return Retrieval(table, candidates=objective.candidates, block_lengths=objective.block_lengths)
