"""Token classification: BERT and one linear layer that scores every label at chosen places (Devlin et al. 2019, 5.3).

Scores are float32 whatever the compute dtype. Which labels there are is the caller's: the head has as many outputs as
it is asked for.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp
from flax import nnx

from realm.models.bert import Bert, BertConfig, EncoderError, dense, drop
from realm.models.functional import Functional, functional
from realm.models.weights import check_spec, load_bert
from realm.protocols import Params

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenTaggerConfig:
    """init: `random`, `embedded` or `hf:PATH` for the BERT, as in MaskedLmConfig; the head starts at random.

    dropout: on what the head reads, in training only.
    """

    bert: BertConfig = field(default_factory=BertConfig)
    init: str = "random"
    dropout: float = 0.1

    def __post_init__(self):
        check_spec(self.init)
        if not 0 <= self.dropout < 1:
            raise EncoderError(f"dropout is {self.dropout}, wanted 0 <= dropout < 1")


class TokenTagger(nnx.Module):
    """Parameters: `bert` and `out`."""

    def __init__(self, config: TokenTaggerConfig, labels: int, rngs: nnx.Rngs):
        self.config = config
        self.bert = Bert(config.bert, rngs)
        self.out = dense(config.bert, rngs, config.bert.width, labels, dtype="float32")

    def scores(self, token_BT, mask_BT, at_BM, key=None) -> jax.Array:
        """float32 [B, M, L]: the score of every label at the places at_BM. Arguments as in Bert; `key` for dropout.

        A place outside the sequence gives NaN; unused slots take any valid place and are the caller's to weigh with 0.
        """
        bert_key, head_key = (None, None) if key is None else jax.random.split(key)
        hidden_BMD = self.bert(token_BT, mask_BT, jnp.zeros_like(token_BT), key=bert_key, at_BM=at_BM)
        return self.out(drop(self.config.dropout, hidden_BMD, head_key if self.config.dropout else None))


@cache
def token_tagger(config: TokenTaggerConfig, labels: int) -> Functional:
    """The tagger with so many labels as pure functions; init(key) honours config.init, WeightsError as load_bert."""
    if labels < 2:
        raise EncoderError(f"found {labels} labels, wanted at least 2: O and one more")
    network = functional(lambda rngs: TokenTagger(config, labels, rngs))

    def init(key: jax.Array) -> Params:
        params = network.init(key)
        if config.init != "random":
            loaded, report = load_bert(config.init, config.bert)
            log.info("tagger from %s: %s", config.init, report)
            params["bert"] |= jax.tree.map(jnp.array, loaded["bert"])
        return params

    return network._replace(init=init)
