"""Run card `sample`: the main job end to end on real text, on a laptop-sized machine."""

from __future__ import annotations

from realm.index.scann import Scann
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig

from experiments.config import Preset, Refresh, Stage
from realm.objectives.ict import Ict
from realm.objectives.mlm import Mlm
from realm.objectives.realm import Realm
from realm.text.blocks import CorpusConfig
from realm.text.masks import SalientSpan
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate


def preset() -> Preset:
    """SQuAD sample."""
    bert = BertConfig(width=128, layers=2, heads=2, feedforward=512, dropout=0.0, attention_dropout=0.0, gelu="erf")
    retriever = DualEncoderConfig(bert=bert, pooling="mean", dropout=0.0, init="embedded")
    joint = MaskedLmConfig(bert=bert, init="embedded")
    return Preset(
        corpus=CorpusConfig(documents="sample:corpus", spans="sample:spans", holdout=0.05),
        questions="sample:questions",
        mlm=Stage(
            Mlm(joint=joint, batch_lengths=(128, 192, 288)),
            Training(steps=300, batch_size=32, optimizer=Optimizer(joint=Rate(5e-4))),
        ),
        ict=Stage(
            Ict(retriever=retriever, batch_lengths=(128, 192, 288)),
            Training(steps=250, batch_size=96, optimizer=Optimizer(retriever=Rate(5e-4))),
        ),
        realm=Stage(
            Realm(
                retriever=retriever,
                joint=joint,
                masking=SalientSpan(supported=True),
                max_predictions=6,
                batch_lengths=(64,),
                block_lengths=(192, 288),
            ),
            Training(
                steps=500,
                batch_size=16,
                optimizer=Optimizer(retriever=Rate(2e-5, start=300), joint=Rate(5e-4)),
                retrieve_ahead=1,
            ),
            warm_start={"retriever": "ict", "joint": "mlm"},
            refresh=Refresh(schedule="every 100", index=Scann()),
        ),
    )
