"""Run card `tagger`: the paper's way to salient spans, a BERT that marks named entities, from CoNLL-format data."""

from __future__ import annotations

from experiments.config import Stage
from realm.models.bert import BertConfig
from realm.models.token_tagger import TokenTaggerConfig
from realm.objectives.tagging import Tagging
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate


def preset() -> Stage:
    """Under 3 processor minutes: a 2-layer BERT of width 128 learns the entities of the CoNLL files it is given.

    realm tagger train train.conll

    Span F1 to expect, exact match of ends and type: 21.6 on WNUT17's test set after its training set (30.7 whatever the
    type; 31.4 on its dev set); 40.7 on the last fifth of WikiGold after the rest of it, with --holdout 0.2 --steps 600
    (51.7 whatever the type). A small English pipeline of spaCy, its types named as theirs, has 20.1 and 53.0 (39.9 and
    73.7). REALM tags with a BERT trained on CoNLL-2003, whose text may not be passed on: bring your own. Add
    --init hf:PATH for a larger BERT (uncased, as everything here is: a small model misses capitals most).
    """
    bert = BertConfig(width=128, layers=2, heads=2, feedforward=512, dropout=0.1, attention_dropout=0.1, gelu="erf")
    return Stage(
        Tagging(joint=TokenTaggerConfig(bert=bert, init="embedded")),
        Training(
            steps=1000,
            batch_size=32,
            optimizer=Optimizer(joint=Rate(1e-3)),
            log_every=50,
            checkpoint_every=500,
            devices=1,
        ),
    )
