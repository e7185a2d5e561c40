"""Run card `facts`: does the retriever learn from masked words alone? Real facts, held-out statements, minutes."""

from __future__ import annotations

from dataclasses import replace

from experiments.config import Preset, Refresh, Stage
from realm.index.exact import Exact
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig
from realm.objectives.ict import Ict
from realm.objectives.mlm import Mlm
from realm.objectives.realm import Realm
from realm.text.blocks import CorpusConfig
from realm.text.facts import FactsConfig
from realm.text.masks import SalientSpan
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate
from realm.training.watch import Watch

EVERY = 5  # steps between two refreshes while the retriever moves


def preset() -> Preset:
    """7 minutes on one core: 6,000 one-fact blocks of real places, from random weights; recall@1 from 19 to 86 %.

    realm pretrain facts

    Masked language modelling hides the object of a statement in front of the fact in another wording, so that the joint
    encoder learns to copy; ICT teaches the retriever to find a place's three blocks. Then the joint encoder reads what
    a frozen retriever finds, and at last the retriever learns from masked objects alone which block holds the fact.
    `realm sweep facts-controls` takes one of these away at a time. On a GPU raise facts.blocks (at most 300,000).
    """
    bert = BertConfig(
        vocabulary=8000,
        width=64,
        layers=2,
        heads=4,
        feedforward=256,
        positions=96,
        dropout=0.0,
        attention_dropout=0.0,
        init_scale=0.1,  # BERT's 0.02 at width 64 lets next to nothing through a layer: reading starts much later
    )
    tower = replace(bert, layers=1, init_scale=0.02)
    retriever = DualEncoderConfig(bert=tower, width=128, pooling="mean", dropout=0.0)
    joint = MaskedLmConfig(bert=bert)
    lengths = (32, 40, 48)

    def stage(candidates: int, steps: int, optimizer: Optimizer, warm_start: dict[str, str], schedule: str) -> Stage:
        objective = Realm(
            retriever=retriever,
            joint=joint,
            masking=SalientSpan(supported=True),
            candidates=candidates,
            max_predictions=4,
            batch_lengths=(16, 24, 32),
            block_lengths=lengths,
        )
        training = Training(
            steps=steps,
            batch_size=64,
            optimizer=optimizer,
            retrieve_ahead=1,
            log_every=20,
            checkpoint_every=40,
            keep_checkpoints=20,
            watch=Watch(blocks=256, query_length=32),
        )
        refresh = Refresh(schedule=schedule, index=Exact(), block_lengths=lengths, batch_rows=256)
        return Stage(objective, training, warm_start, refresh)

    often = {"log_every": 50, "checkpoint_every": 500}
    frozen, moving = Optimizer(retriever=Rate(start=10**6), joint=Rate(2e-3)), Optimizer(Rate(5e-4), Rate(1e-3))
    return Preset(
        corpus=CorpusConfig(vocabulary="train:8000", block_length=48),
        facts=FactsConfig(),
        mlm=Stage(
            Mlm(joint=joint, masking=SalientSpan(), max_predictions=4, batch_lengths=(*lengths, 64)),
            Training(steps=700, batch_size=64, optimizer=Optimizer(joint=Rate(2e-3)), **often),
        ),
        ict=Stage(
            Ict(retriever=retriever, query_length=24, batch_lengths=lengths),
            Training(steps=500, batch_size=128, optimizer=Optimizer(retriever=Rate(3e-3)), **often),
        ),
        read=stage(4, 160, frozen, {"retriever": "ict", "joint": "mlm"}, "never"),
        realm=stage(4, 160, moving, {"retriever": "read", "joint": "read"}, f"every {EVERY}"),
        continue_ict=False,
    )
