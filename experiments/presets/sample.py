"""Run card `sample`: the main job end to end on real text, on a laptop-sized machine."""

from __future__ import annotations

from experiments.config import Preset, Refresh, Stage
from realm.index.scann import Scann
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


def preset() -> Preset:
    """Under 20 minutes on 2 cores: 3,979 real paragraphs, mlm, ict, realm from a 2-layer BERT, 19,410 questions.

    make pretrain

    Blocks of 160 wordpieces (5,901 of them; most paragraphs fit into one), so that a step is short. All towers start
    from the embedded BERT, whose training saw MS MARCO queries. The retriever waits until step 250 of the realm stage
    and then moves slowly: with batch 16, utility near 0.2 nats is mostly noise to it, and at 3e-5 recall@5 on questions
    fell by more than a point. The README has the numbers to expect.
    """
    bert = BertConfig(width=128, layers=2, heads=2, feedforward=512, dropout=0.0, attention_dropout=0.0, gelu="erf")
    retriever = DualEncoderConfig(bert=bert, pooling="mean", dropout=0.0, init="embedded")
    joint = MaskedLmConfig(bert=bert, init="embedded")
    lengths = (96, 128, 160)
    often = {"log_every": 25, "checkpoint_every": 100}
    return Preset(
        corpus=CorpusConfig(documents=("sample:corpus",), spans=("sample:spans",), block_length=160, holdout=0.05),
        questions="sample:questions",
        mlm=Stage(
            Mlm(joint=joint, batch_lengths=lengths),
            Training(steps=300, batch_size=32, optimizer=Optimizer(joint=Rate(5e-4)), **often),
        ),
        ict=Stage(
            Ict(retriever=retriever, batch_lengths=lengths),
            Training(steps=400, batch_size=96, optimizer=Optimizer(retriever=Rate(5e-4)), **often),
        ),
        realm=Stage(
            Realm(
                retriever=retriever,
                joint=joint,
                masking=SalientSpan(supported=True),
                candidates=5,
                max_predictions=6,
                batch_lengths=(48, 64),
                block_lengths=(160,),
            ),
            Training(
                steps=400,
                batch_size=16,
                optimizer=Optimizer(retriever=Rate(1e-5, start=250), joint=Rate(5e-4)),
                retrieve_ahead=1,
                **often,
            ),
            warm_start={"retriever": "ict", "joint": "mlm"},
            # While the retriever is frozen a refresh would embed the same vectors again.
            refresh=Refresh(schedule="0-300:300,300-:50", index=Scann(), block_lengths=lengths),
        ),
    )
