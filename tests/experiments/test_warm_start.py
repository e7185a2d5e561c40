"""Starting from pretrained weights: their vocabulary is the corpus's, and what they fill is told."""

import json
import shutil
from dataclasses import replace

import jax
import pytest

from experiments.config import with_init
from experiments.preflight import preflight
from experiments.presets import PRESETS
from experiments.warm_start import PreflightError, check_vocabulary, noted_start, told_weights
from realm.models.bert import BertConfig
from realm.models.export import export_bert
from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.weights import WeightsError, vocabulary_of
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from realm.text.tokenizer import Tokenizer
from tests.training.jobs import build_table

BERT = BertConfig(width=16, layers=1, heads=2, feedforward=32, positions=128)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


@pytest.fixture(scope="module")
def own_table(tmp_path_factory):
    """A corpus that trained its vocabulary, which is smaller than BERT's."""
    config = CorpusConfig(documents=str(sample_path("corpus")), limit=60, block_length=64, vocabulary="train:900")
    return build_corpus(config, tmp_path_factory.mktemp("own") / "corpus")


@pytest.fixture
def folder(tmp_path):
    """A BERT of 30,522 wordpieces that does not say which."""
    export_bert(masked_lm(MaskedLmConfig(BERT)).init(jax.random.key(0)), BERT, tmp_path / "bert")
    return tmp_path / "bert"


def started(folder):
    tiny = PRESETS["tiny"]()
    return with_init(replace(tiny, questions=None, realm=None, mlm=None), f"hf:{folder}")


def test_weights_of_another_vocabulary_are_refused_before_training(folder, own_table):
    Tokenizer.load().save(folder / "vocab.txt")
    with pytest.raises(PreflightError, match=r"of 30522 wordpieces .*vocab.txt.* was cut with \w+ of 900"):
        preflight(started(folder), own_table)
    with pytest.raises(PreflightError, match="embedded reads the vocabulary"):
        check_vocabulary("embedded", own_table)


def test_weights_of_the_same_vocabulary_pass_in_silence(folder, table, capsys):
    Tokenizer.load().save(folder / "vocab.txt")
    preflight(started(folder), table)
    assert check_vocabulary("embedded", table) is None and capsys.readouterr().err == ""


def test_weights_without_a_vocabulary_are_warned_of_once(folder, table, capsys):
    preflight(started(folder), table)
    assert capsys.readouterr().err.count("no vocab.txt and no tokenizer.json") == 1


def test_a_vocabulary_is_read_from_either_file(folder, table):
    spec, pieces = f"hf:{folder}", tuple(map(table.tokenizer.piece, range(table.tokenizer.size)))
    assert vocabulary_of(spec) is None and vocabulary_of("embedded") is None
    model = {"type": "WordPiece", "vocab": {piece: n for n, piece in enumerate(pieces) if piece != "[MASK]"}}
    added = [{"content": "[MASK]", "id": table.tokenizer.mask}]
    (folder / "tokenizer.json").write_text(json.dumps({"model": model, "added_tokens": added}))
    assert vocabulary_of(spec).pieces == pieces and vocabulary_of(spec).fingerprint == table.tokenizer.fingerprint
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "merges": []}}))
    with pytest.raises(WeightsError, match="type 'BPE'"):
        vocabulary_of(spec)
    (folder / "vocab.txt").write_bytes("\r\n".join(pieces).encode())
    assert vocabulary_of(spec).fingerprint == table.tokenizer.fingerprint
    (folder / "vocab.txt").write_bytes(b"\xff\n")
    with pytest.raises(WeightsError, match="not UTF-8"):
        vocabulary_of(spec)


def test_a_stage_that_begins_from_weights_says_on_stderr_what_they_fill(folder, tmp_path, capsys):
    preset = with_init(PRESETS["tiny_open"](), "embedded")
    noted_start(preset.ict, {}, tmp_path)
    assert capsys.readouterr().err == (
        "retriever from embedded: 37 tensors of BertForMaskedLM, 5 unused (cls.predictions.bias, "
        "cls.predictions.transform.LayerNorm.bias, cls.predictions.transform.LayerNorm.weight, ...), "
        "pooler and projection random\n"
    )
    [reader] = told_weights(preset.open_qa)  # its retriever comes from the stage before
    assert reader.startswith("joint from embedded: 37 tensors") and reader.endswith("pooler and spans random")
    both = replace(preset.open_qa, warm_start={})
    assert told_weights(both)[0].startswith("retriever from embedded: 37 tensors")
    (tmp_path / "checkpoints" / "4").mkdir(parents=True)  # resumed: it starts from its own
    noted_start(preset.ict, {}, tmp_path)
    assert capsys.readouterr().err == ""
    shutil.rmtree(tmp_path / "checkpoints")
    noted_start(PRESETS["tiny"]().ict, {}, tmp_path)  # random weights have nothing to tell
    assert capsys.readouterr().err == ""
