"""Token classification: labels at first wordpieces alone, a mean over words, learned by the one trainer."""

import re
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from realm.models.bert import BertConfig
from realm.models.token_tagger import TokenTaggerConfig, token_tagger
from realm.models.weights import load_bert
from realm.objectives.bert_tagger import BertTagger
from realm.objectives.tagging import Tagging, TaggingError
from realm.text.conll import ConllError
from realm.text.corpus import Document
from realm.text.tag_units import TagUnits, Vocabulary
from realm.text.taggers import tagged
from realm.text.tokenizer import Tokenizer
from realm.training.loop import Training, train
from realm.training.optimizer import Optimizer, Rate
from realm.training.run_folder import RunFolder
from tests.objectives.small import BERT, batch_of, close, gradient_of, loss_of, program, quick, vocabulary

NAMES, PLACES = ["ada", "john", "mary", "henry"], ["paris", "london", "rome", "berlin"]
BERT_TINY = BertConfig(width=128, layers=2, heads=2, feedforward=512, gelu="erf")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text(vocabulary(), encoding="utf-8")
    return Vocabulary(Tokenizer.load(path))


@pytest.fixture(scope="module")
def tagging(tmp_path_factory):
    """Names and places in a few frames: what a word is shows in the word itself."""
    path, rng = tmp_path_factory.mktemp("conll") / "train.conll", np.random.default_rng(0)
    lines = []
    for _ in range(120):
        name, place = rng.choice(NAMES), rng.choice(PLACES)
        words = [(name, "B-PER"), ("smith", "I-PER"), ("came", "O"), ("to", "O"), (place, "B-LOC"), (".", "O")]
        lines += [f"{word}\t{label}\n" for word, label in words] + ["\n"]
    path.write_text("".join(lines))
    joint = TokenTaggerConfig(bert=BERT, dropout=0.0)
    return Tagging(joint=joint, files=(str(path),), kinds=("LOC", "PER"), batch_lengths=(16,))


@pytest.fixture(scope="module")
def params(tagging):
    return program(tagging, "init")(jax.random.key(0))


def test_an_example_asks_at_the_first_piece_of_each_word(tagging, corpus):
    words = ["ada", "unbelievabilities", "\u200b", "rome"]
    units = TagUnits([words], corpus.tokenizer, max_tokens=64, labels=[[3, 0, 4, 1]])
    length = int(units.length_N[0]) + 3
    example = tagging.example(units[0], None, length)
    count = int(example["weight_M"].sum())
    assert count == 3 and example["weight_M"].tolist() == [1.0] * 3 + [0.0] * (length - 2 - 3)
    assert example["label_M"][:3].tolist() == [3, 0, 1]
    asked = example["token_T"][example["position_M"][:3]]
    firsts = [corpus.tokenizer.encode(word).id_T[0] for word in ("ada", "unbelievabilities", "rome")]
    assert asked.tolist() == firsts and example["length"] == length - 3


def test_the_loss_is_a_mean_over_words_computed_by_hand(tagging, corpus, params):
    batch = batch_of(tagging, corpus)
    loss, metrics = loss_of(tagging, params, batch)
    score_BML = np.asarray(program(tagging, "scores_of_labels")(params, batch), np.float64)
    log_prob_BML = score_BML - np.log(np.exp(score_BML).sum(-1, keepdims=True))
    real_BM = batch["weight_BM"] > 0
    chosen = np.take_along_axis(log_prob_BML, batch["label_BM"][..., None], -1)[..., 0][real_BM]
    assert loss == pytest.approx(-chosen.mean(), rel=1e-5)
    assert metrics["weight"] == real_BM.sum() == 8 * 6
    assert metrics["right"] == pytest.approx((score_BML.argmax(-1) == batch["label_BM"])[real_BM].mean())


def test_labels_of_other_pieces_and_padding_teach_nothing(tagging, corpus, params):
    batch = batch_of(tagging, corpus)
    slot_BM = batch["weight_BM"] == 0
    other = batch | {
        "label_BM": np.where(slot_BM, 2, batch["label_BM"]),
        "token_BT": np.where(np.arange(16) >= batch["length_B"][:, None], 77, batch["token_BT"]),
    }
    (one, _), first = gradient_of(tagging, params, batch)
    (two, _), second = gradient_of(tagging, params, other)
    assert one == pytest.approx(two, rel=1e-6)
    close(first["joint"]["out"], second["joint"]["out"], atol=1e-6)


def test_accumulated_halves_equal_the_whole(tagging, corpus, params):
    batch = batch_of(tagging, corpus)
    whole, _ = loss_of(tagging, params, batch)
    halves = [loss_of(tagging, params, {name: a[i::2] for name, a in batch.items()}) for i in (0, 1)]
    weights = [metrics["weight"] for _, metrics in halves]
    assert whole == pytest.approx(np.average([loss for loss, _ in halves], weights=weights), rel=1e-5)


def test_the_trainer_teaches_it_and_the_tagger_finds_what_was_taught(tagging, corpus, tmp_path):
    training = Training(
        steps=60, batch_size=16, optimizer=Optimizer(joint=Rate(1e-2)), log_every=30, checkpoint_every=60, devices=1
    )
    init = partial(tagging.init, jax.random.key(0))
    outcome = train(tagging, corpus, training, RunFolder(tmp_path / "run"), init=init, report=lambda _: None)
    tagger = BertTagger(tagging, outcome.params, corpus.tokenizer)
    assert tagger.labels([["Henry", "Smith", "came", "to", "Berlin", "."], []]) == [
        ["B-PER", "I-PER", "O", "O", "B-LOC", "O"],
        [],
    ]
    text = "\n Ada Smith came to Paris. Mary Smith came to Rome.\n"
    ((_, spans),) = tagged([(Document("d", "", text), [])], tagger)
    assert [(text[one.start : one.end], one.kind, one.tagger) for one in spans] == [
        ("Ada Smith", "PER", tagger.name),
        ("Paris", "LOC", tagger.name),
        ("Mary Smith", "PER", tagger.name),
        ("Rome", "LOC", tagger.name),
    ]


def test_spans_of_two_models_are_told_apart_by_the_taggers_name(tagging, corpus, params):
    def name(objective=tagging, params=params, **more):
        return BertTagger(objective, params, corpus.tokenizer, **more).name

    assert re.fullmatch("bert:[0-9a-f]{8}", name()) and name() == name(params=jax.tree.map(np.asarray, params))
    other = jax.tree.map(lambda leaf: leaf + 1e-3, params)
    names = [name(), name(params=other), name(replace(tagging, kinds=("PER", "LOC"))), name(language="de")]
    assert len(set(names)) == 4


def test_labels_do_not_depend_on_batch_mates_or_length(tagging, corpus, params):
    rng = np.random.default_rng(1)
    sentences = [rng.choice(NAMES + PLACES + ["came", "to"], rng.integers(1, 12)).tolist() for _ in range(70)]
    tagger = BertTagger(replace(tagging, batch_lengths=(8, 16)), params, corpus.tokenizer)
    together = tagger.labels(sentences)
    assert [tagger.labels([one])[0] for one in sentences[::10]] == together[::10]
    assert all(len(one) == len(labels) for one, labels in zip(sentences, together, strict=True))


def test_its_bert_starts_from_the_weights_it_names():
    config = TokenTaggerConfig(bert=replace(BERT_TINY, dropout=0.0), init="embedded")
    params = token_tagger(config, 5).init(jax.random.key(0))
    loaded, _ = load_bert("embedded", config.bert)
    close(params["bert"]["word"], loaded["bert"]["word"], rtol=0)
    assert params["out"]["kernel"].shape == (128, 5)


def test_what_it_takes_from_an_earlier_stage(tagging, params):
    other = quick(replace(tagging, kinds=("X",)).init)(jax.random.key(1))["joint"]
    taken = tagging.taken("joint", params["joint"], other)
    close(taken["bert"], other["bert"], rtol=0)
    close(taken["out"], params["joint"]["out"], rtol=0)
    assert tagging.taken("joint", params["joint"], params["joint"]) is params["joint"]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"holdout": 1.0}, "found holdout=1.0"),
        ({"kinds": ("A", "A")}, "wanted each type of entity once"),
        ({"batch_lengths": (200,)}, "wanted no length above it"),
    ],
)
def test_what_cannot_be_learned_is_named(tagging, changes, said):
    with pytest.raises(TaggingError, match=said):
        replace(tagging, **changes)


def test_units_need_files_and_their_types(tagging, corpus):
    with pytest.raises(TaggingError, match="wanted both to train"):
        replace(tagging, files=()).units(corpus)
    with pytest.raises(ConllError, match=r"found an entity of \['PER'\], wanted one of \['LOC'\]"):
        replace(tagging, kinds=("LOC",)).units(corpus)
