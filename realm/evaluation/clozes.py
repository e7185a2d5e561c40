"""Held-out statements with a known answer and a known block: does retrieval find it, does the reader use it?

The statement's object is hidden. Recall looks for a block of the document that holds the fact; accuracy asks whether
every wordpiece of the object is the model's first guess, once by the marginal over retrieved blocks and once given
the null block alone (the same network without its documents).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from realm.protocols import Arrays, Objective, Params, Searcher
from realm.retrieve import Retrieval


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
    """Scores of `examples` (of one length, as `objective.hidden` makes them), whose gold rows are `gold`."""
    embed = jax.jit(objective.embed_queries)
    guess = jax.jit(objective.guesses)
    parts: list[tuple[np.ndarray, ...]] = []
    search = min(search, searcher.rows)
    for start in range(0, len(examples), batch_size):
        some = list(examples[start : start + batch_size])
        real = len(some)
        batch = collate(some + some[:1] * (batch_size - real))  # the last batch is filled up, and cut again below
        queries = {name: array for name, array in batch.items() if name.startswith("query_")}
        q_BE = np.asarray(embed({"retriever": params["retriever"]}, queries))
        hits = searcher.search(q_BE, search)
        rank_B = ranks(hits.id_BK[:real], hits.valid_BK[:real], gold[start : start + real])
        candidates = retrieval.search(searcher, q_BE, batch["own_B"])
        guess_BM, null_BM, log_B, log_null_B = jax.device_get(
            guess(params, objective.found(batch, retrieval.pack(candidates)))
        )
        masked_BM = batch["weight_BM"] > 0
        right = [np.all((token_BM == batch["target_BM"]) | ~masked_BM, axis=1) for token_BM in (guess_BM, null_BM)]
        parts.append((rank_B, *(array[:real] for array in (*right, log_B, log_null_B))))
    rank_Q, correct_Q, correct_null_Q, log_Q, log_null_Q = (np.concatenate(one) for one in zip(*parts, strict=True))
    return ClozeScores(rank_Q, search, correct_Q, correct_null_Q, log_Q, log_null_Q)
