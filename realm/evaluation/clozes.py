"""Held-out statements with a known answer and a known block: does retrieval find it, does the reader use it?

The statement's object is hidden. Recall looks for a block of the document that holds the fact; accuracy asks whether
every wordpiece of the object is the model's first guess, once by the marginal over retrieved blocks and once given
the null block alone (the same network without its documents).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from realm.protocols import Arrays, Objective, Params, Searcher
from realm.retrieve import Retrieval, queries_of

FEW = 2  # wordpieces of most objects


class Guesser(Objective, Protocol):
    """An objective that fills in masked words. `guesses`: likeliest wordpieces [B, M] with retrieval and without, and
    the log-likelihood of the true ones [B], with and without."""

    def guesses(self, params: Params, batch: Arrays) -> tuple[Any, Any, Any, Any]: ...


class ClozeScores(NamedTuple):
    """One value a statement: rank_Q int, the place of the first gold block among what was searched (`searched` where
    it was not found), correct_Q and correct_null_Q bool, log_prob_Q and log_prob_null_Q float nats a wordpiece."""

    rank_Q: np.ndarray
    searched: int
    correct_Q: np.ndarray
    correct_null_Q: np.ndarray
    log_prob_Q: np.ndarray
    log_prob_null_Q: np.ndarray

    def recall(self, k: int) -> np.ndarray:
        """bool [Q]: a gold block among the first k. Raises ValueError for k above what was searched."""
        if not 1 <= k <= self.searched:
            raise ValueError(f"found recall at {k}, wanted 1 to the {self.searched} blocks that were searched")
        return self.rank_Q < k


def ranks(id_QK: np.ndarray, valid_QK: np.ndarray, gold: Sequence[np.ndarray]) -> np.ndarray:
    """int64 [Q]: the column of each query's first gold row, K where there is none."""
    rank_Q = np.full(len(gold), id_QK.shape[1], np.int64)
    for number, rows in enumerate(gold):
        found = np.flatnonzero(np.isin(id_QK[number], rows) & valid_QK[number])
        if len(found):
            rank_Q[number] = found[0]
    return rank_Q


def cloze_rows(
    objective: Objective,
    params: Params,
    examples: Sequence[Arrays],
    *,
    collate: Callable[[list[Arrays]], Arrays],
    searcher: Searcher,
    k: int,
    batch_size: int = 64,
) -> np.ndarray:
    """int64 [Q, k]: the rows found first, -1 where the index has no more."""
    embed = jax.jit(objective.embed_queries)
    parts = []
    for batch, real in _batches(examples, collate, batch_size):
        hits = searcher.search(_embedded(embed, params, batch), k)
        parts.append(np.where(hits.valid_BK, hits.id_BK, -1)[:real])
    return np.concatenate(parts)


def cloze_ranks(
    objective: Objective,
    params: Params,
    examples: Sequence[Arrays],
    gold: Sequence[np.ndarray],
    *,
    collate: Callable[[list[Arrays]], Arrays],
    searcher: Searcher,
    search: int = 20,
    batch_size: int = 64,
) -> np.ndarray:
    """int64 [Q]: the place of the first gold row among `search` rows, `search` where it was not found."""
    k = min(search, searcher.rows)
    row_QK = cloze_rows(objective, params, examples, collate=collate, searcher=searcher, k=k, batch_size=batch_size)
    return ranks(row_QK, row_QK >= 0, gold)


def cloze_scores(
    objective: Guesser,
    params: Params,
    examples: Sequence[Arrays],
    gold: Sequence[np.ndarray],
    *,
    collate: Callable[[list[Arrays]], Arrays],
    retrieval: Retrieval,
    searcher: Searcher,
    search: int = 20,
    batch_size: int = 64,
) -> ClozeScores:
    """Scores of `examples` (of one length, as `objective.hidden` makes them), whose gold rows are `gold`.

    Most objects are one or two wordpieces: such examples are scored together, without the places they leave empty,
    because every place costs a distribution over the vocabulary for each candidate.
    """
    masked_Q = (collate(list(examples))["weight_BM"] > 0).sum(axis=1)
    order_Q = np.argsort(masked_Q > FEW, kind="stable")
    examples = [examples[q] for q in order_Q]
    embed = jax.jit(objective.embed_queries)
    guess = jax.jit(objective.guesses)
    parts: list[tuple[np.ndarray, ...]] = []
    search = min(search, searcher.rows)
    for batch, real in _batches(examples, collate, batch_size):
        if (batch["weight_BM"][:, FEW:] == 0).all():
            batch = {name: array[:, :FEW] if name.endswith("_BM") else array for name, array in batch.items()}
        q_BE = _embedded(embed, params, batch)
        hits = searcher.search(q_BE, search)
        candidates = retrieval.search(searcher, q_BE, batch["own_B"])
        guess_BM, null_BM, log_B, log_null_B = jax.device_get(
            guess(params, objective.found(batch, retrieval.retrieved(candidates)))
        )
        masked_BM = batch["weight_BM"] > 0
        right = [np.all((token_BM == batch["target_BM"]) | ~masked_BM, axis=1) for token_BM in (guess_BM, null_BM)]
        parts.append(tuple(array[:real] for array in (hits.id_BK, hits.valid_BK, *right, log_B, log_null_B)))
    back_Q = np.argsort(order_Q)
    id_QK, valid_QK, *of_reader = (np.concatenate(one)[back_Q] for one in zip(*parts, strict=True))
    return ClozeScores(ranks(id_QK, valid_QK, gold), search, *of_reader)


def _batches(
    examples: Sequence[Arrays], collate: Callable[[list[Arrays]], Arrays], size: int
) -> Iterator[tuple[Arrays, int]]:
    """(batch, how many of its examples count): the last batch is filled up with its first example."""
    for start in range(0, len(examples), size):
        some = list(examples[start : start + size])
        yield collate(some + some[:1] * (size - len(some))), len(some)


def _embedded(embed: Callable[..., Any], params: Params, batch: Arrays) -> np.ndarray:
    return np.asarray(embed({"retriever": params["retriever"]}, queries_of(batch)))
