"""What a run may be asked; a statement with [MASK] as the examples that a pretrained one is asked with, and what it
fills in."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

from experiments.locate import Run
from experiments.show import readings
from realm.objectives.realm import Realm
from realm.protocols import Arrays, Params
from realm.text.tokenizer import Tokenizer
from realm.text.units import SentenceUnit

MASK = "[MASK]"


class AskError(ValueError):
    """A question that a run cannot be asked."""


def check_question(run: Run, question: str, pieces: int | None = None) -> None:
    """Raises AskError for a question that cannot be put to the run; needs its config and vocabulary only."""
    if not question.strip():
        raise AskError("found an empty question, wanted one with words")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise AskError(f"{ascii(question)}: found bytes that are not UTF-8 at {error.start}, wanted UTF-8") from error
    if isinstance(run.stage.objective, Realm):
        masked_examples(run.stage.objective, run.table.tokenizer, question, pieces)
    elif pieces is not None:
        raise AskError(f"found pieces={pieces}, but a fine-tuned run fills no {MASK}: wanted it with a pretrained one")


def masked_examples(
    objective: Realm, tokenizer: Tokenizer, statement: str, pieces: int | None
) -> tuple[list[Arrays], np.ndarray]:
    """One example for each number of wordpieces that [MASK] may stand for, and these numbers.

    pieces: for each [MASK]; by default a single one is tried with 1 to max_predictions, several are one piece each.
    Raises AskError for no or too many [MASK], and for a statement that is too long.
    """
    parts = statement.split(MASK)
    blanks, most = len(parts) - 1, objective.max_predictions
    if not 1 <= blanks <= most:
        raise AskError(
            f"found {blanks} {MASK} in {statement!r}, wanted 1 to {most}: a pretrained run fills masked words, as in "
            f"`The capital of France is {MASK}.` A fine-tuned run answers questions (realm finetune)"
        )
    if pieces is not None and not 1 <= pieces * blanks <= most:
        raise AskError(f"found {pieces} wordpieces for each of {blanks} {MASK}, wanted at most {most} in all")
    encoded = [tokenizer.encode(part).id_T for part in parts]
    length = objective.batch_lengths[-1]
    examples, sizes = [], []
    for n in [pieces] if pieces else [1] if blanks > 1 else range(1, most + 1):
        hidden = [np.full(n, tokenizer.mask, np.int32)] * blanks
        runs = [encoded[0], *(run for pair in zip(hidden, encoded[1:], strict=True) for run in pair)]
        token_T = np.concatenate(runs).astype(np.int32)
        if len(token_T) + 2 > length:
            break
        none = np.zeros(0, np.int32)
        unit = SentenceUnit(-1, 0, token_T, tokenizer.words(token_T), none.reshape(0, 2), none, tokenizer)
        examples.append(objective.hidden(unit, np.flatnonzero(token_T == tokenizer.mask), length))
        sizes.append(n * blanks)
    if not examples:
        raise AskError(f"{statement!r} is longer than the {length} wordpieces of a query here")
    return examples, np.array(sizes)


@cache
def filled(objective: Realm) -> Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(params, ready) -> the likeliest wordpieces [B, M], log p(y|z,x) of them [B, K] and p(z|x) [B, K]."""

    def run(params: Params, ready: Any):
        token_BM = objective.guesses(params, ready)[0]
        prior_BK, log_BK = readings(objective, params, ready | {"target_BM": token_BM})
        return token_BM, log_BK, prior_BK

    compiled = jax.jit(run)
    return lambda params, ready: jax.device_get(compiled(params, ready))
