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
from realm.text.facts import FactsConfig
from realm.text.masks import SalientSpan
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate


def preset() -> Preset:
    """12 to 20 minutes on 2 cores: 3,979 paragraphs and 6,000 facts in one index, mlm, ict, read, realm.

    make pretrain

    SQuAD's paragraphs in blocks of 160 wordpieces (5,901 of them; most fit into one) and the facts corpus of the preset
    `facts`, masked and searched together. All towers start from the embedded 2-layer BERT, whose training saw MS MARCO
    queries. Masked LM hides a salient span and shows the rest of its block, so that the joint encoder reads from the
    first retrieving step; the retriever moves only in the last stage. 6,000 of 19,410 questions and the
    held-out statements measure both halves: the README has the numbers to expect.
    """
    bert = BertConfig(width=128, layers=2, heads=2, feedforward=512, dropout=0.0, attention_dropout=0.0, gelu="erf")
    retriever = DualEncoderConfig(bert=bert, pooling="mean", dropout=0.0, init="embedded")
    joint = MaskedLmConfig(bert=bert, init="embedded")
    lengths = (32, 48, 96, 128, 160)
    often = {"log_every": 25, "checkpoint_every": 100}
    objective = Realm(
        retriever=retriever,
        joint=joint,
        masking=SalientSpan(supported=True),
        candidates=4,
        max_predictions=6,
        batch_lengths=(24, 64),
        block_lengths=(48, 160),
    )

    def stage(steps: int, optimizer: Optimizer, retriever_from: str, joint_from: str, schedule: str) -> Stage:
        training = Training(steps=steps, batch_size=32, optimizer=optimizer, retrieve_ahead=1, **often)
        refresh = Refresh(schedule=schedule, index=Scann(), block_lengths=lengths)
        return Stage(objective, training, {"retriever": retriever_from, "joint": joint_from}, refresh)

    return Preset(
        corpus=CorpusConfig(documents=("sample:corpus",), spans=("sample:spans",), block_length=160, holdout=0.05),
        facts=FactsConfig(),
        questions="sample:questions",
        max_questions=6000,
        mlm=Stage(
            Mlm(joint=joint, masking=SalientSpan(), max_predictions=6, batch_lengths=(32, 48, 64, 96, 128, 160)),
            Training(steps=450, batch_size=32, optimizer=Optimizer(joint=Rate(1e-3)), **often),
        ),
        ict=Stage(
            Ict(retriever=retriever, batch_lengths=lengths),
            Training(steps=250, batch_size=96, optimizer=Optimizer(retriever=Rate(5e-4)), **often),
        ),
        read=stage(50, Optimizer(Rate(start=10**6), Rate(5e-4)), "ict", "mlm", "never"),
        realm=stage(90, Optimizer(Rate(7e-5), Rate(5e-4)), "read", "read", "every 45"),
        continue_ict=False,
    )
