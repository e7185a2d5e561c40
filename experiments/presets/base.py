"""Run card `base`: the paper's main job at its own size, for a TPU or GPU host and the user's own Wikipedia."""

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
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate
from realm.training.watch import Watch


def preset() -> Preset:
    """Days on one TPU or GPU host (never run by us): the paper's BERT-base, batch 512, 200k steps, 8 candidates.

    realm pretrain base --corpus.documents wikipedia.jsonl.gz --corpus.spans spans.jsonl.gz

    The numbers are the paper's and its released code's (Guu et al. 2020; Lee et al. 2019 for ICT). Add --init hf:PATH
    to start every tower from BERT, as the paper does. One process over all devices of one host; the refresh is
    synchronous: training waits while the corpus is embedded.
    """
    bert = BertConfig(compute_dtype="bfloat16", remat=True)
    retriever, joint = DualEncoderConfig(bert=bert), MaskedLmConfig(bert=bert)
    realm_watch = Watch(blocks=2048, batch=256)
    return Preset(
        corpus=CorpusConfig(documents=("wikipedia.jsonl.gz",), holdout=0.001),
        mlm=Stage(
            Mlm(joint=joint, batch_lengths=(128, 288)),
            Training(steps=10_000, batch_size=256, optimizer=Optimizer(joint=Rate(1e-4)), log_every=100),
        ),
        ict=Stage(
            Ict(retriever=retriever),
            Training(steps=100_000, batch_size=4096, optimizer=Optimizer(retriever=Rate(1e-4)), log_every=100),
        ),
        realm=Stage(
            Realm(retriever=retriever, joint=joint, batch_lengths=(96,), block_lengths=(288,)),
            Training(
                steps=200_000,
                batch_size=512,
                optimizer=Optimizer(retriever=Rate(3e-5), joint=Rate(3e-5)),
                retrieve_ahead=1,
                query_tower="generation",
                log_every=100,
                watch=realm_watch,
                threads=8,
            ),
            warm_start={"retriever": "ict", "joint": "mlm"},
            refresh=Refresh(schedule="every 500", index=Scann(), block_lengths=(288,), batch_rows=2048),
        ),
        continue_ict=False,
    )
