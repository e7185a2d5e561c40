"""What `realm evaluate` and `realm report` print."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.text import Text

from experiments.arguments import UsageError
from experiments.console import wide_console
from experiments.heldout_words import masked_words, masked_words_line
from experiments.locate import Run, open_run
from experiments.open_answers import AnswerTable, StoredRows, chosen_mode
from experiments.questions import KS, QuestionSet, asked_of, embed_questions
from experiments.recall_rows import RecallRows
from experiments.searching import block_vectors, exact_searcher, search_all
from realm.evaluation.bm25 import Bm25
from realm.evaluation.scores import Mode
from realm.evaluation.table import ResultTable
from realm.index.exact import Exact
from realm.index.recall import recall_at_k
from realm.objectives.marginal import log_prior
from realm.objectives.open_qa import OpenQa
from realm.objectives.realm import Realm
from realm.protocols import Hits, Params
from realm.retrieve import Retrieval
from realm.text.plan import example_rng
from realm.text.table import BlockTable
from realm.training.checkpoint import restore_params
from realm.training.feed import collate


class NothingToShow(ValueError):
    """The run has no part that the command shows."""


def evaluate_run(
    path: Path, questions: str | None, limit: int | None, mode: Mode | None = None, dumps: Path | None = None
) -> dict[str, Any]:
    """Recall of the run's retriever and of BM25 in one table, index recall against exact; masked-word loss or, of a
    fine-tuned run, answers, scored by `mode`; question by question, ranks and answers go into the folder `dumps`.

    limit: a sample of so many questions; None takes the preset's own limit for the preset's own questions, else all.
    Raises NothingToShow where the stage has none of these; before any work UsageError for a mode or dumps that would
    change nothing, and ScoreError for a mode that is not for answers of this kind.
    """
    run = open_run(path)
    console, found = wide_console(), {}
    answering = isinstance(run.stage.objective, OpenQa)
    if mode is not None and not answering:
        raise UsageError(f"found --mode, but stage {run.name} of {run.folder} answers nothing: wanted a fine-tuned run")
    # The preset's own questions are asked as for the summary, hence with the same numbers.
    own = questions is None or questions == run.preset.questions
    asked = asked_of(
        run.preset if own else replace(run.preset, questions=questions, max_questions=None), run.table, limit
    )
    if answering:
        chosen_mode(asked, mode)
    params, step = restore_params(run.folder / "checkpoints")
    if dumps is not None:
        if not ("retriever" in params and asked):
            raise UsageError(
                f"found --dumps, but {run.folder} is asked nothing: wanted a stage with a retriever, and --questions"
            )
        dumps.mkdir(parents=True, exist_ok=True)
    runs = [(run.stage, run.folder)] if run.stage.objective.candidates else []
    vectors = cache(lambda: list(block_vectors(run.stage, params, run.table, runs)))
    if "retriever" in params and asked:
        numbers, hits, bm25 = _recall(run, params, step, asked, vectors(), console, dumps)
        found |= numbers
    if answering:
        answers = AnswerTable(run.stage, params, step, run.table, asked, mode)
        stored = StoredRows(vectors())
        found["answers"] = answers.all(hits, bm25, lambda: stored, dumps)
        console.print(answers.rows)
    elif run.stage.objective.candidates:
        found |= masked_words(run.stage, params, step, run.table, lambda: Exact().build(vectors()))
        console.print(masked_words_line(found), markup=False)
    if not found:
        raise NothingToShow(
            f"{run.folder}: stage {run.name} has no retriever, or no questions were given (--questions)"
        )
    return found


def _recall(
    run: Run,
    params: Params,
    step: int,
    asked: QuestionSet,
    vectors: list[np.ndarray],
    console: Console,
    dumps: Path | None,
) -> tuple[dict[str, Any], Hits, Hits]:
    """`recall`, the table as JSON, with what belongs beside it; the hits of exact search and of BM25."""
    table = ResultTable(f"Retrieval of {run.folder.name} at step {step}", asked.warnings)
    rows = RecallRows(asked, table, dumps)
    objective, refresh = run.stage.objective, run.stage.refresh
    exact = Exact().build(vectors)
    q_QE = embed_questions(objective, params, run.table, asked.questions)
    best = search_all(exact, q_QE, max(KS))
    rows.add(run.name, "exact", best, step=step)
    ann = refresh.index.build(vectors)
    if ann.kind != "exact":
        hits = search_all(ann, q_QE, max(KS))
        more = {"ANN recall": f"{recall_at_k(hits, best):.1%}"}
        rows.add(f"{run.name} {ann.kind}", ann.kind, hits, shown_as=run.name, more=more, step=step)
    bm25 = Bm25(run.table).search([q.question for q in asked.questions], max(KS))
    rows.add("bm25", "bm25", bm25)
    console.print(table)
    return {"recall": table.to_json(), **rows.to_json()}, best, bm25


def report_run(path: Path, examples: int, seed: int) -> dict[str, Any]:
    """Held-out sentences with their masked span underlined, and each candidate with p(z|x), utility and snippet.

    Raises NothingToShow for a stage that retrieves nothing for masked words, and for less than one example.
    """
    if examples < 1:
        raise NothingToShow(f"found {examples} examples, wanted at least 1")
    run = open_run(path)
    objective = run.stage.objective
    if not isinstance(objective, Realm):
        raise NothingToShow(f"{run.folder}: stage {run.name} retrieves nothing for masked words; give a realm stage")
    params, step = restore_params(run.folder / "checkpoints")
    units = objective.units(run.table, heldout=True)
    if not len(units):
        units = objective.units(run.table, heldout=None)
    rng = np.random.default_rng(seed)
    chosen = [int(i) for i in rng.permutation(len(units))[:examples]]
    length = objective.batch_lengths[-1]
    batch = collate([objective.example(units[i], example_rng(seed, 0, i), length) for i in chosen])
    searcher = exact_searcher(run.stage, params, run.table)
    retrieval = Retrieval(run.table, candidates=objective.candidates, block_lengths=objective.block_lengths)
    candidates = retrieval.search(searcher, np.asarray(objective.embed_queries(params, batch)), batch["own_B"])
    ready = objective.found(batch, retrieval.retrieved(candidates))
    prior_BK, log_BK = jax.device_get(jax.jit(lambda p, b: readings(objective, p, b))(params, ready))
    console = wide_console()
    console.print(f"{run.folder} at step {step}: p = p(z|x), u = log p(y|z,x) - log p(y|null,x) in nats")
    shown = []
    for i, unit in enumerate(chosen):
        record = _example(run.table, units[unit], batch, candidates, prior_BK, log_BK, i)
        shown.append(record)
        _print_example(console, record)
    return {"run": str(run.folder), "step": step, "examples": shown}


def readings(objective: Realm, params: Params, batch) -> tuple[jax.Array, jax.Array]:
    """p(z|x) [B, K] and log p(y|z,x) of the whole span [B, K]."""
    prior_BK = jnp.exp(log_prior(objective.scores(params, batch), batch["valid_BK"]))
    log_BKM = objective.log_probs(params, batch)
    return prior_BK, (log_BKM * batch["weight_BM"][:, None, :]).sum(axis=-1)


def _example(table: BlockTable, unit, batch, candidates, prior_BK, log_BK, i: int) -> dict[str, Any]:
    char_start, char_end = (int(x) for x in table.sentences(unit.row)[unit.sentence][2:])
    sentence = table.text(unit.row)[char_start:char_end]
    encoding = table.tokenizer.encode(sentence)
    positions = batch["position_BM"][i][batch["weight_BM"][i] > 0] - 1
    masked = [(int(encoding.start_T[p]), int(encoding.end_T[p])) for p in positions]
    found = []
    for k in np.argsort(-prior_BK[i], kind="stable"):
        if not candidates.valid_BK[i, k]:
            continue
        row = int(candidates.id_BK[i, k])
        found.append(
            {
                "block": None if row < 0 else table.block_id(row),
                "title": "(null block)" if row < 0 else table.title(row),
                "probability": float(prior_BK[i, k]),
                "utility": float(log_BK[i, k] - log_BK[i, 0]),
                "snippet": "" if row < 0 else table.text(row)[:160],
            }
        )
    return {"block": table.block_id(unit.row), "sentence": sentence, "masked": masked, "candidates": found}


def _print_example(console: Console, record: dict[str, Any]) -> None:
    sentence = Text(record["sentence"])
    for start, end in record["masked"]:
        sentence.stylize("underline bold", start, end)
    console.print()
    console.print(Text(f"{record['block']}: ", style="dim") + sentence)
    if not console.is_terminal:  # no underline in a file: say what was hidden
        console.print("  hidden: " + " ".join(record["sentence"][a:b] for a, b in record["masked"]), markup=False)
    for c in record["candidates"]:
        line = f"  p {c['probability']:.3f}  u {c['utility']:+.2f}  {c['title']}"
        console.print(Text(line) + Text(f"  {c['snippet']}" if c["snippet"] else "", style="dim"), soft_wrap=False)
