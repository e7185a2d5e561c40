"""The three ways to mask: whole words, one span, everything hidden can be predicted, and the right chances."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.masks import MaskingError, RandomSpan, RandomToken, SalientSpan
from realm.text.tokenizer import Tokenizer
from realm.text.units import SentenceUnit, SentenceUnits
from tests.text.text_tables import small_table

TOKENIZER = Tokenizer.load(None)
WAYS = [SalientSpan(), SalientSpan(supported=True), RandomSpan(), RandomSpan(0.5, max_tokens=3), RandomToken()]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return small_table(tmp_path_factory.mktemp("masks"))


def unit_of(words, spans=(), support=None):
    """A sentence of words with the given numbers of pieces."""
    word_T = np.repeat(np.arange(len(words), dtype=np.int32), words)
    return SentenceUnit(
        row=5,
        sentence=2,
        token_T=1000 + np.arange(len(word_T), dtype=np.int32),
        word_T=word_T,
        span_P2=np.array(spans, np.int32).reshape(-1, 2),
        support_P=np.array(support if support is not None else [1] * len(spans), np.int32),
        special=TOKENIZER,
    )


def is_whole_words(unit, hidden_M):
    words = set(unit.word_T[hidden_M])
    return sorted(hidden_M) == [place for place, word in enumerate(unit.word_T) if word in words]


def is_one_run(hidden_M):
    return list(hidden_M) == list(range(hidden_M[0], hidden_M[-1] + 1))


@pytest.mark.parametrize("masking", WAYS)
@pytest.mark.parametrize("max_predictions", [1, 2, 10])
def test_every_unit_can_be_masked(table, masking, max_predictions):
    """What `usable` lets through, `choose` never refuses: never empty, never more than can be predicted."""
    units = SentenceUnits(table, masking, heldout=None, max_tokens=64, max_predictions=max_predictions)
    assert len(units) > 10
    for number, unit in enumerate(units):
        hidden_M = masking.choose(unit, np.random.default_rng(number), max_predictions)
        assert 1 <= len(hidden_M) <= max_predictions
        assert (np.diff(hidden_M) > 0).all() and 0 <= hidden_M[0] and hidden_M[-1] < len(unit.token_T)
        if not isinstance(masking, RandomToken):
            assert is_one_run(hidden_M) and is_whole_words(unit, hidden_M)
        if isinstance(masking, SalientSpan):
            assert [hidden_M[0], hidden_M[-1] + 1] in unit.span_P2.tolist()


@pytest.mark.parametrize("masking", WAYS)
@pytest.mark.parametrize("max_predictions", [1, 2, 10])
def test_usable_is_exactly_what_choose_can_do(table, masking, max_predictions):
    usable_S = masking.usable(table, max_predictions)
    assert usable_S.dtype == bool and len(usable_S) == len(table.sentence_S4)
    number = 0
    for row in range(table.rows):
        for ordinal, (start, end, *_) in enumerate(table.sentences(row)):
            here = table.spans(row)[:, 0] == ordinal
            token_T = table.token_T(row)[start:end]
            unit = SentenceUnit(
                row,
                ordinal,
                token_T,
                table.tokenizer.words(token_T),
                table.spans(row)[here, 1:3] - start,
                table.support(row)[here],
                table.tokenizer,
            )
            if usable_S[number]:
                masking.choose(unit, np.random.default_rng(0), max_predictions)
            else:
                with pytest.raises(MaskingError, match=f"sentence {ordinal} of row {row}"):
                    masking.choose(unit, np.random.default_rng(0), max_predictions)
            number += 1


def test_usable_looks_at_the_corpus_in_pieces(table, monkeypatch):
    whole_S = RandomSpan().usable(table, 1)
    monkeypatch.setattr("realm.text.masks._CHUNK", 7)
    np.testing.assert_array_equal(RandomSpan().usable(table, 1), whole_S)


def test_salient_spans_are_equally_likely_and_hidden_whole():
    unit = unit_of([1, 3, 1, 1, 2, 1], spans=[(1, 4), (5, 6), (6, 8)])
    draws = Counter(tuple(SalientSpan().choose(unit, np.random.default_rng(n), 10)) for n in range(3000))
    assert set(draws) == {(1, 2, 3), (5,), (6, 7)}
    assert all(900 < count < 1100 for count in draws.values())


def test_a_span_longer_than_can_be_predicted_is_never_taken():
    unit = unit_of([1, 11, 1, 1], spans=[(1, 12), (12, 13)])
    assert {tuple(SalientSpan().choose(unit, np.random.default_rng(n), 10)) for n in range(50)} == {(12,)}
    with pytest.raises(MaskingError, match="sentence 2 of row 5 without a salient span of at most 10"):
        SalientSpan().choose(unit_of([1, 11], spans=[(1, 12)]), np.random.default_rng(0), 10)


def test_supported_takes_only_what_another_block_holds():
    unit = unit_of([1, 1, 1], spans=[(0, 1), (2, 3)], support=[0, 4])
    masking = SalientSpan(supported=True)
    assert {tuple(masking.choose(unit, np.random.default_rng(n), 10)) for n in range(50)} == {(2,)}
    with pytest.raises(MaskingError):
        masking.choose(unit_of([1, 1], spans=[(0, 1)], support=[0]), np.random.default_rng(0), 10)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.integers(1, 12), st.integers(0, 10**6))
def test_random_span_is_whole_words(words, max_predictions, seed):
    unit = unit_of(words)
    if min(words) > min(max_predictions, 10):
        with pytest.raises(MaskingError, match="without a word of at most"):
            RandomSpan().choose(unit, np.random.default_rng(seed), max_predictions)
        return
    hidden_M = RandomSpan().choose(unit, np.random.default_rng(seed), max_predictions)
    assert 1 <= len(hidden_M) <= min(max_predictions, 10)
    assert is_one_run(hidden_M) and is_whole_words(unit, hidden_M)


def test_random_span_lengths_are_geometric_and_starts_uniform():
    unit, draws = unit_of([1] * 60), 6000
    spans = [RandomSpan().choose(unit, np.random.default_rng(n), 10) for n in range(draws)]
    length = np.array([len(hidden_M) for hidden_M in spans])
    chance = 0.2 * 0.8 ** np.arange(10)
    chance /= chance.sum()
    assert abs(np.bincount(length, minlength=11)[1:] / draws - chance).max() < 0.02
    assert abs(length.mean() - 3.8) < 0.1  # SpanBERT: 3.8 words on average
    start = np.array([hidden_M[0] for hidden_M in spans])[length == 1]
    assert len(set(start)) == 60 and np.bincount(start).max() < 3 * len(start) / 60


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 120), st.integers(1, 12), st.floats(0.01, 0.99), st.integers(0, 10**6))
def test_random_tokens(tokens, max_predictions, rate, seed):
    unit = unit_of([1] * tokens)
    hidden_M = RandomToken(rate).choose(unit, np.random.default_rng(seed), max_predictions)
    assert len(hidden_M) == len(set(hidden_M)) == min(max(round(rate * tokens), 1), max_predictions)
    assert list(hidden_M) == sorted(hidden_M) and hidden_M[-1] < tokens


def test_random_tokens_may_hide_parts_of_words():
    unit = unit_of([4] * 10)
    hidden_M = RandomToken().choose(unit, np.random.default_rng(0), 10)
    assert not is_whole_words(unit, hidden_M)


@pytest.mark.parametrize("masking", [RandomSpan(), RandomToken()])
def test_two_ways_of_masking_can_be_compared_on_the_same_sentences(table, masking):
    salient = SalientSpan().usable(table, 10)
    assert 0 < salient.sum() < len(salient)
    anywhere, there = masking.usable(table, 10), replace(masking, salient_sentences=True).usable(table, 10)
    np.testing.assert_array_equal(there, anywhere & SalientSpan().usable(table, 10**6))
    assert anywhere.sum() > there.sum() > 0


def test_same_rng_same_mask():
    unit = unit_of([1, 2, 3, 1, 1], spans=[(0, 1), (1, 3), (6, 8)])
    for masking in WAYS:
        one, two = (masking.choose(unit, np.random.default_rng(9), 10) for _ in range(2))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomSpan(geometric_p=0),
        lambda: RandomSpan(geometric_p=1.5),
        lambda: RandomSpan(max_tokens=0),
        lambda: RandomToken(rate=0),
        lambda: RandomToken(rate=1),
        lambda: RandomToken().choose(unit_of([1]), np.random.default_rng(0), 0),
        lambda: RandomToken().choose(unit_of([]), np.random.default_rng(0), 10),
    ],
)
def test_impossible_masking(make):
    with pytest.raises(MaskingError, match="wanted"):
        make()
