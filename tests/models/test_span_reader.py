"""Span scores against a float64 reference, what they may depend on, and the fingerprint of parameters."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.models.bert import EncoderError
from realm.models.span_reader import SpanReaderConfig, span_reader
from realm.models.tree_hash import tree_hash
from realm.models.weights import WeightsError
from tests.models.bert_reference import TINY, hidden, shaken

BERT = replace(TINY, layers=1)
CONFIG = SpanReaderConfig(BERT, width=6, answer_length=3)
NETWORK = span_reader(CONFIG)
PARAMS = shaken(NETWORK.init(jax.random.key(0)))
RNG = np.random.default_rng(0)
TOKEN_BT = RNG.integers(1, 40, (3, 8)).astype(np.int32)
LENGTH_B = np.array([8, 4, 6])
MASK_BT = np.arange(8) < LENGTH_B[:, None]
SEGMENT_BT = (np.arange(8) >= 3) * np.ones((3, 1), np.int32)


# Each program runs a few times only: most of the time would go into compiling it.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@quick
def program(params, token_BT):
    return NETWORK.apply(params, "spans", token_BT, MASK_BT, SEGMENT_BT, skip=2)


def scores(params, token_BT=TOKEN_BT):
    return np.asarray(program(params, token_BT))


def by_hand(params, hidden_TD, start, end):
    """dense(LayerNorm(relu(S h_start + E h_end))) in float64, by the formula."""
    head = jax.tree.map(lambda x: np.asarray(x, np.float64), params["head"])
    kernel, bias = head["dense"]["kernel"], head["dense"]["bias"]
    wide = hidden_TD[start] @ kernel[:, :6] + hidden_TD[end] @ kernel[:, 6:] + bias[:6] + bias[6:]
    wide = np.maximum(wide, 0.0)
    wide = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-3) * head["norm"]["scale"] + head["norm"]["bias"]
    return (wide @ head["out"]["kernel"] + head["out"]["bias"]).item()


def test_every_span_has_the_score_of_the_formula():
    found_BWT = scores(PARAMS)
    assert found_BWT.shape == (3, 3, 6) and found_BWT.dtype == np.float32
    spread = []
    for row in range(3):
        hidden_TD = hidden(PARAMS["bert"], BERT, TOKEN_BT[row], MASK_BT[row], SEGMENT_BT[row], np.arange(8))
        for w in range(3):
            for t in range(6 - w):
                expected = by_hand(PARAMS, hidden_TD, 2 + t, 2 + t + w)
                assert found_BWT[row, w, t] == pytest.approx(expected, rel=1e-4, abs=1e-4)
                spread.append(expected)
    assert np.std(spread) > 0.05, "scores that are all alike would prove nothing"


def test_spans_longer_than_the_text_need_no_text():
    network = span_reader(replace(CONFIG, answer_length=12))
    longer = quick(lambda params: network.apply(params, "spans", TOKEN_BT, MASK_BT, SEGMENT_BT, skip=2))
    found_BWT = np.asarray(longer(PARAMS))
    assert found_BWT.shape == (3, 12, 6)
    np.testing.assert_allclose(found_BWT[:, :3], scores(PARAMS), rtol=1e-5, atol=1e-6)
    assert np.isfinite(found_BWT).all()


def test_padding_does_not_change_the_score_of_a_span():
    other = np.where(MASK_BT, TOKEN_BT, 7)
    changed_BWT = np.abs(scores(PARAMS, other) - scores(PARAMS)) > 1e-5
    for row, length in enumerate(LENGTH_B):
        for w in range(3):
            assert not changed_BWT[row, w, : max(0, length - 2 - w)].any()
    assert changed_BWT[1].any(), "spans that touch padding do change"


def test_the_bias_of_the_last_layer_is_nothing_to_a_softmax_over_spans():
    def log_share(params):
        score_BWT = NETWORK.apply(params, "spans", TOKEN_BT, MASK_BT, SEGMENT_BT, skip=2)
        return jax.nn.log_softmax(score_BWT.ravel())[3]

    gradient = quick(jax.grad(log_share))(PARAMS)
    assert abs(gradient["head"]["out"]["bias"].item()) < 1e-6
    assert np.abs(gradient["head"]["dense"]["kernel"]).max() > 1e-4
    assert np.abs(gradient["bert"]["word"]["embedding"]).max() > 1e-5


def test_init_takes_the_encoder_and_leaves_the_head_at_random(monkeypatch):
    loaded = {"bert": shaken(PARAMS["bert"])}
    monkeypatch.setattr("realm.models.span_reader.load_reader", lambda *asked: (loaded, str(asked)))
    params, plain = (span_reader(replace(CONFIG, init=init)).init(jax.random.key(2)) for init in ("embedded", "random"))
    jax.tree.map(np.testing.assert_array_equal, params, {"bert": loaded["bert"], "head": plain["head"]})
    assert (params["bert"]["word"]["embedding"] != plain["bert"]["word"]["embedding"]).any()


@pytest.mark.parametrize("changes", [{"width": 0}, {"answer_length": 0}])
def test_sizes_below_one_are_refused(changes):
    with pytest.raises(EncoderError, match=f"{next(iter(changes))} is 0, wanted at least 1"):
        replace(CONFIG, **changes)


def test_an_unknown_init_is_refused():
    with pytest.raises(WeightsError):
        replace(CONFIG, init="nowhere")


def test_a_hash_knows_every_bit_and_name_and_no_order():
    tree = {"a": {"x": jnp.arange(3.0), "y": jnp.zeros((2, 2))}, "b": np.ones(2, np.int32)}
    same = {
        "b": jnp.ones(2, jnp.int32),
        "a": {"y": np.zeros((2, 2), np.float32), "x": np.arange(3.0, dtype=np.float32)},
    }
    assert tree_hash(tree) == tree_hash(same) and len(tree_hash({})) == 64
    nudged = np.nextafter(np.arange(3, dtype=np.float32), np.float32(9))
    others = [
        tree | {"b": np.array([1, 2], np.int32)},
        tree | {"b": np.ones(2, np.int64)},
        tree | {"b": np.ones((1, 2), np.int32)},
        tree | {"a": {"x": nudged, "y": tree["a"]["y"]}},
        {"a": tree["a"], "c": tree["b"]},
        tree | {"a": {"x": tree["a"]["x"], "y": -tree["a"]["y"]}},
        {},
    ]
    assert len({tree_hash(one) for one in (tree, *others)}) == 1 + len(others)
