"""Run card `squad_open`: open-domain question answering on the sample, split by article; and its tiny sibling."""

from __future__ import annotations

from experiments.config import Preset, Refresh, Stage
from experiments.presets.tiny import preset as tiny_job
from realm.index.exact import Exact
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.span_reader import SpanReaderConfig
from realm.objectives.ict import Ict
from realm.objectives.open_qa import OpenQa
from realm.text.blocks import CorpusConfig
from realm.training.loop import Training
from realm.training.optimizer import Optimizer, Rate
from realm.training.watch import Watch

TRAIN, TEST = "sample:questions-dev", "sample:questions-test"


def preset() -> Preset:
    """1.5 hours on one busy core, not tuned: ICT, then retriever and reader; 10,568 questions of unseen articles.

    realm finetune squad_open
    realm finetune squad_open --warm-start runs/sample        # instead of ICT: towers, reader and corpus of a REALM run
    realm finetune squad_open --corpus.documents corpus.jsonl.gz --train train.jsonl.gz --questions test.jsonl.gz
    realm finetune squad_open --init hf:FOLDER                # a sentence encoder or REALM: no ICT; a BERT: with ICT
    realm finetune squad_open --init hf:FOLDER --open-qa.objective.vectors batch --open-qa.objective.train-documents
              # both towers, the batch's blocks as negatives (DPR): wants many questions and a small rate, see README

    Trained on the questions of 44 articles, measured on the 10,568 about 48 others (two more are worded like questions
    trained on); the blocks of all 92 are searched. The block tower stays as ICT left it, the index is made once. One
    run to its end: gold@20 75.2 -> 77.7 (BM25 94.8), EM 7.9, and 12.3 on BM25's blocks; 11 minutes of ICT, 60 of
    fine-tuning, 19 of measuring. More is learned from a better start: the README has runs on facts (EM 73.3, 11
    minutes with pretraining) and on all of SQuAD from MiniLM (gold@20 92.8, or a MiniLM reader with EM 35.9).

    On a GPU (never run by us): --init hf:bert-base-uncased-folder, --corpus.block-length 288 with lengths to match,
    --open-qa.objective.beam 5000, both rates 1e-5. REALM's and ORQA's released recipe is that with one question a step
    for 4 epochs of NQ-open on one GPU of 12 GB. ORQA reported EM 20.2 on SQuAD-open, BM25 with its reader 33.2.
    """
    bert = BertConfig(width=128, layers=2, heads=2, feedforward=512, dropout=0.0, attention_dropout=0.0, gelu="erf")
    tower = DualEncoderConfig(bert=bert, pooling="mean", dropout=0.0, init="embedded")
    lengths = (96, 128, 160)
    often = {"log_every": 25, "checkpoint_every": 100}
    return Preset(
        corpus=CorpusConfig(documents=("sample:corpus",), spans=("sample:spans",), block_length=160),
        questions=TEST,
        ict=Stage(
            Ict(retriever=tower, batch_lengths=lengths),
            Training(steps=400, batch_size=96, optimizer=Optimizer(retriever=Rate(5e-4)), **often),
        ),
        open_qa=Stage(
            OpenQa(
                retriever=DualEncoderConfig(bert=bert, pooling="mean", dropout=0.0, shared=False, init="embedded"),
                joint=SpanReaderConfig(bert=bert, init="embedded"),
                questions=TRAIN,
                beam=1000,
                batch_lengths=(32, 64),
                block_lengths=(160,),
            ),
            Training(
                steps=1500,
                batch_size=16,
                optimizer=Optimizer(retriever=Rate(1e-4), joint=Rate(5e-4)),
                watch=Watch(blocks=64),
                **often,
            ),
            warm_start={"retriever": "ict"},
            refresh=Refresh(schedule="never", index=Exact(), block_lengths=lengths),
        ),
        continue_ict=False,
    )


def tiny() -> Preset:
    """One minute on 2 cores: the machinery of squad_open on 150 paragraphs, width 32. Teaches nothing.

    realm finetune tiny_open
    """
    bert = BertConfig(width=32, layers=1, heads=2, feedforward=64, dropout=0.0, attention_dropout=0.0)

    def training(steps: int, batch: int, **more) -> Training:
        optimizer = Optimizer(retriever=Rate(1e-3), joint=Rate(1e-3))
        return Training(
            steps=steps, batch_size=batch, optimizer=optimizer, log_every=2, checkpoint_every=4, devices=1, **more
        )

    return Preset(
        corpus=tiny_job().corpus,
        max_questions=40,
        ict=Stage(
            Ict(retriever=DualEncoderConfig(bert=bert, width=32, pooling="mean", dropout=0.0), batch_lengths=(96,)),
            training(4, 16),
        ),
        open_qa=Stage(
            OpenQa(
                retriever=DualEncoderConfig(bert=bert, width=32, pooling="mean", dropout=0.0, shared=False),
                joint=SpanReaderConfig(bert=bert, width=16, answer_length=6),
                beam=40,
                read=3,
                batch_lengths=(48,),
                block_lengths=(96,),
            ),
            training(8, 8, retrieve_ahead=1, watch=Watch(blocks=8)),
            warm_start={"retriever": "ict"},
            refresh=Refresh(schedule="never", index=Exact(), block_lengths=(48, 96), batch_rows=32, shard_rows=64),
        ),
        continue_ict=False,
    )
