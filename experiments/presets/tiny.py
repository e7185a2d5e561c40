"""Run card `tiny`: the smallest sibling of every preset, for tests and for trying the machinery."""

from __future__ import annotations

from experiments.config import Preset, Refresh, Stage
from index_refresh.sync import Sync
from realm.index.exact import Exact
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig
from realm.objectives.ict import Ict
from realm.objectives.mlm import Mlm
from realm.objectives.realm import Realm
from realm.text.blocks import CorpusConfig
from realm.text.masks import SalientSpan
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate
from realm.training.watch import Watch


def preset() -> Preset:
    """One minute on 2 cores: 150 paragraphs, one layer of width 32 from random weights. Teaches nothing.

    realm pretrain tiny
    """
    bert = BertConfig(width=32, layers=1, heads=2, feedforward=64, dropout=0.0, attention_dropout=0.0)
    retriever = DualEncoderConfig(bert=bert, width=32, pooling="mean", dropout=0.0)
    joint = MaskedLmConfig(bert=bert)
    optimizer = Optimizer(retriever=Rate(1e-3, start=4), joint=Rate(1e-3))
    ict_optimizer = Optimizer(retriever=Rate(1e-3))

    def training(steps: int, batch: int, optimizer: Optimizer = optimizer, **more) -> Training:
        return Training(
            steps=steps,
            batch_size=batch,
            optimizer=optimizer,
            log_every=2,
            checkpoint_every=4,
            keep_checkpoints=10,
            devices=1,
            **more,
        )

    return Preset(
        corpus=CorpusConfig(
            documents=("sample:corpus",), spans=("sample:spans",), limit=150, block_length=96, holdout=0.2
        ),
        questions="sample:questions",
        max_questions=200,
        mlm=Stage(Mlm(joint=joint, batch_lengths=(96,)), training(4, 8)),
        ict=Stage(Ict(retriever=retriever, query_length=32, batch_lengths=(96,)), training(8, 16, ict_optimizer)),
        realm=Stage(
            Realm(
                retriever=retriever,
                joint=joint,
                masking=SalientSpan(supported=True),
                candidates=4,
                max_predictions=5,
                batch_lengths=(48,),
                block_lengths=(96,),
            ),
            training(16, 8, retrieve_ahead=1, watch=Watch(blocks=32)),
            warm_start={"retriever": "ict", "joint": "mlm"},
            refresh=Refresh(
                schedule="every 6",
                index=Exact(),
                engine=Sync(keep=10),
                block_lengths=(48, 96),
                batch_rows=32,
                shard_rows=64,
            ),
        ),
        continue_ict=False,
    )
