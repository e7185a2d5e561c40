"""Token classification: which words of a sentence are a named entity, and of which type (Devlin et al. 2019, 5.3).

REALM finds the spans it masks with a BERT tagger trained on CoNLL data (arXiv 2002.08909, section 3.4). Labels are BIO
over words; each is predicted at its word's first wordpiece, the word's other pieces are read only. Nothing is
retrieved; the trainer is the one of all objectives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from realm.models.token_tagger import TokenTaggerConfig, token_tagger
from realm.protocols import Arrays, Items, Metrics, Params
from realm.text.tag_units import NOWHERE, TagUnit, TagUnits, label_names


class TaggingError(ValueError):
    """A tagging objective that nothing can be learned with."""


@dataclass(frozen=True)
class Tagging:
    """files: CoNLL files to train on, plain or packed. kinds: the types of entity; the labels are O, and B- and I- of
    each. holdout: the last share of each file's sentences that training never sees. batch_lengths: padded lengths in
    wordpieces; a longer sentence is cut between words."""

    items: ClassVar[Items] = "nothing"
    candidates: ClassVar[int] = 0
    joint: TokenTaggerConfig = field(default_factory=TokenTaggerConfig)
    files: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    holdout: float = 0.0
    batch_lengths: tuple[int, ...] = (32, 64, 128)

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise TaggingError(f"found holdout={self.holdout}, wanted a share of at least 0 and below 1")
        if len(set(self.kinds)) < len(self.kinds):
            raise TaggingError(f"found kinds={self.kinds}, wanted each type of entity once")
        if max(self.batch_lengths) > self.joint.bert.positions:
            raise TaggingError(
                f"found batch_lengths={self.batch_lengths} and joint.bert.positions={self.joint.bert.positions}, "
                "wanted no length above it"
            )

    @property
    def labels(self) -> list[str]:
        return label_names(self.kinds)

    def init(self, key: Any) -> Params:
        return {"joint": self._network().init(key)}

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        """An earlier tagger as it is where it has as many labels; of anything else its BERT."""
        same = "out" in earlier and earlier["out"]["bias"].shape == own["out"]["bias"].shape
        return earlier if same else own | {"bert": earlier["bert"]}

    def groups(self) -> dict[str, str]:
        return {"joint": "joint"}

    def units(self, corpus: Any, heldout: bool | None = False) -> TagUnits:
        """The sentences of `files`; of the corpus only its tokenizer is used. Raises ConllError, TaggingError."""
        if not self.files or not self.kinds:
            raise TaggingError(f"found files={self.files} and kinds={self.kinds}, wanted both to train")
        return TagUnits.read(
            self.files,
            corpus.tokenizer,
            self.kinds,
            max_tokens=self.batch_lengths[-1],
            holdout=self.holdout,
            heldout=heldout,
        )

    def example(self, unit: TagUnit, rng: np.random.Generator | None, length: int) -> Arrays:
        """[CLS] words [SEP]; position_M: where each word begins, label_M its label, weight_M 0 where there is none.

        There are length - 2 slots, since every wordpiece may be a word.
        """
        special, places = unit.special, length - 2
        token_T = np.full(length, special.pad, np.int32)
        body = len(unit.token_T)
        token_T[0], token_T[1 + body] = special.cls, special.sep
        token_T[1 : 1 + body] = unit.token_T
        here_W = np.flatnonzero(unit.first_W != NOWHERE)
        count = len(here_W)
        position_M, label_M, weight_M = np.zeros(places, np.int32), np.zeros(places, np.int32), np.zeros(places)
        position_M[:count], label_M[:count], weight_M[:count] = unit.first_W[here_W] + 1, unit.label_W[here_W], 1.0
        return {
            "token_T": token_T,
            "length": np.int32(body + 2),
            "position_M": position_M,
            "label_M": label_M,
            "weight_M": weight_M.astype(np.float32),
        }

    def embed_queries(self, params: Params, batch: Arrays, key: Any = None) -> Any:
        raise TypeError("a tagger retrieves nothing: it has no queries to embed")

    def embed_items(self, params: Params, blocks: Arrays, key: Any = None) -> Any:
        raise TypeError("a tagger retrieves nothing: it has no items to embed")

    def found(self, batch: Arrays, retrieved: Arrays) -> Arrays:
        return batch

    def scores_of_labels(self, params: Params, batch: Arrays, key: Any = None) -> jax.Array:
        """float32 [B, M, L] at the first wordpiece of every word."""
        token_BT = batch["token_BT"]
        mask_BT = jnp.arange(token_BT.shape[1]) < batch["length_B"][:, None]
        return self._network().apply(params["joint"], "scores", token_BT, mask_BT, batch["position_BM"], key=key)

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[jax.Array, Metrics]:
        """Mean over words of the negative log-likelihood of the label, in nats. right: share of words labelled so."""
        log_prob_BML = jax.nn.log_softmax(self.scores_of_labels(params, batch, key), axis=-1)
        label_BM, weight_BM = batch["label_BM"], batch["weight_BM"]
        chosen_BM = jnp.take_along_axis(log_prob_BML, label_BM[..., None], axis=-1)[..., 0]
        weight = weight_BM.sum()
        whole = jnp.maximum(weight, 1e-9)
        right = ((log_prob_BML.argmax(-1) == label_BM) * weight_BM).sum() / whole
        return -(chosen_BM * weight_BM).sum() / whole, {"weight": weight, "right": right}

    def predict(self, params: Params, batch: Arrays) -> jax.Array:
        """int [B, M]: the number of the best label of each word, in the slots of `example`."""
        return self.scores_of_labels(params, batch).argmax(-1)

    def _network(self):
        return token_tagger(self.joint, len(self.labels))
