from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.models.masked_lm import MaskedLmConfig, masked_lm
from realm.models.weights import WeightsError, bert_config
from tests.models.bert_reference import TINY, hidden, log_probs, shaken

CONFIG = MaskedLmConfig(TINY)
NETWORK = masked_lm(CONFIG)
PARAMS = shaken(NETWORK.init(jax.random.key(0)))
call = jax.jit(NETWORK.apply, static_argnums=1)
RNG = np.random.default_rng(0)
TOKEN_BT = RNG.integers(1, 40, (3, 8)).astype(np.int32)
MASK_BT = np.arange(8) < np.array([8, 4, 6])[:, None]
SEGMENT_BT = (np.arange(8) >= 3) * np.ones((3, 1), np.int32)
POSITION_BM = np.array([[7, 2], [1, 1], [0, 5]])
TARGET_BM = np.array([[3, 39], [0, 7], [12, 12]])


def two_steps(params, network=NETWORK, token_BT=TOKEN_BT):
    hidden_BTD = network.apply(params, "hidden", token_BT, MASK_BT, SEGMENT_BT)
    return network.apply(params, "log_prob", hidden_BTD, POSITION_BM, TARGET_BM)


def in_one_go(params, network=NETWORK):
    return network.apply(params, "predict", TOKEN_BT, MASK_BT, SEGMENT_BT, POSITION_BM, TARGET_BM)


@pytest.mark.parametrize("kind", ["tanh", "erf"])
@pytest.mark.parametrize("way", [two_steps, in_one_go])
def test_log_probabilities_equal_the_float64_reference(kind, way):
    config = replace(TINY, gelu=kind, layers=1)
    network = masked_lm(MaskedLmConfig(config))
    params = shaken(network.init(jax.random.key(1)))
    found_BM = jax.jit(lambda params: way(params, network))(params)
    assert found_BM.dtype == jnp.float32
    for row in range(3):
        hidden_TD = hidden(params["bert"], config, TOKEN_BT[row], MASK_BT[row], SEGMENT_BT[row], np.arange(8))
        expected_MV = log_probs(params, config, hidden_TD[POSITION_BM[row]])
        np.testing.assert_allclose(found_BM[row], expected_MV[np.arange(2), TARGET_BM[row]], rtol=1e-5, atol=1e-5)


def test_predicting_in_one_go_has_the_values_and_gradients_of_two_steps():
    def loss(params, way):
        logp_BM = way(params)
        return (logp_BM**2).sum(), logp_BM

    both = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, logp_BM), grads = both(PARAMS, two_steps)
    (_, again_BM), again = both(PARAMS, in_one_go)
    np.testing.assert_allclose(logp_BM, again_BM, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), grads, again)


def test_probabilities_of_all_wordpieces_add_up_to_one():
    hidden_BTD = jnp.asarray(RNG.normal(size=(3, 1, 16)), jnp.float32)
    every_BM = np.tile(np.arange(40), (3, 1))
    logp_BM = call(PARAMS, "log_prob", hidden_BTD, every_BM * 0, every_BM)
    np.testing.assert_allclose(np.exp(logp_BM).sum(1), 1, rtol=1e-5)
    logit_B1V = call(PARAMS, "logits", hidden_BTD)
    np.testing.assert_allclose(jax.nn.log_softmax(logit_B1V)[:, 0], logp_BM, atol=1e-5)


def test_gradient_of_the_output_bias_is_prediction_minus_truth():
    logits_BMV = call(PARAMS, "logits", call(PARAMS, "hidden", TOKEN_BT, MASK_BT, SEGMENT_BT), POSITION_BM)
    grads = jax.jit(jax.grad(lambda params: -two_steps(params).sum()))(PARAMS)
    expected_BMV = np.asarray(jax.nn.softmax(logits_BMV)) - np.eye(40)[TARGET_BM]
    np.testing.assert_allclose(grads["head"]["bias"], expected_BMV.sum((0, 1)), atol=1e-5)


def test_input_and_output_embeddings_are_one():
    assert NETWORK.shapes.keys() == {"bert", "head"}
    assert {
        name: set(value) if isinstance(value, dict) else None for name, value in NETWORK.shapes["head"].items()
    } == {
        "dense": {"kernel", "bias"},
        "norm": {"scale", "bias"},
        "bias": None,
    }
    unseen = 0  # no input token, yet its embedding decides its own score
    assert unseen not in TOKEN_BT
    grads = jax.jit(jax.grad(lambda params: two_steps(params).sum()))(PARAMS)
    assert np.abs(grads["bert"]["word"]["embedding"][unseen]).max() > 0


@pytest.mark.parametrize("spoil", ["place", "target"])
def test_a_place_or_target_out_of_range_is_nan_in_its_slot_only(spoil):
    position_BM, target_BM = POSITION_BM.copy(), TARGET_BM.copy()
    (position_BM if spoil == "place" else target_BM)[0, 1] = 40
    hidden_BTD = call(PARAMS, "hidden", TOKEN_BT, MASK_BT, SEGMENT_BT)
    found_BM = call(PARAMS, "log_prob", hidden_BTD, position_BM, target_BM)
    assert np.argwhere(np.isnan(found_BM)).tolist() == [[0, 1]]


def test_padding_between_query_and_block_changes_nothing():
    """[CLS] query [SEP] pad body [SEP] pad, with positions that count real tokens only, equals the packed form."""
    packed = dict(token_BT=TOKEN_BT[:1], mask_BT=np.ones((1, 8), bool), segment_BT=SEGMENT_BT[:1])
    loose = {name: np.zeros((1, 13), value.dtype) for name, value in packed.items()}
    places = np.array([0, 1, 2, 6, 7, 8, 9, 10])
    for name in packed:
        loose[name][:, places] = packed[name]
    position_BT = np.zeros((1, 13), np.int32)
    position_BT[:, places] = np.arange(8)
    target_BM = np.array([[3, 39]])
    short = call(PARAMS, "predict", **packed, position_BM=np.array([[1, 6]]), target_BM=target_BM)
    padded = call(
        PARAMS, "predict", **loose, position_BM=places[[[1, 6]]], target_BM=target_BM, position_BT=position_BT
    )
    np.testing.assert_allclose(short, padded, atol=1e-5)


def test_bfloat16_log_probabilities_are_float32_and_close():
    low = masked_lm(MaskedLmConfig(replace(TINY, compute_dtype="bfloat16")))
    low_BM = jax.jit(lambda params: two_steps(params, low))(PARAMS)
    assert low_BM.dtype == jnp.float32
    assert 0 < np.abs(low_BM - two_steps(PARAMS)).max() < 0.2
    assert (low_BM <= 1e-6).all()


def test_starting_weights_are_a_function_of_the_key():
    first, again, other = (NETWORK.init(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.allclose(first["head"]["dense"]["kernel"], other["head"]["dense"]["kernel"])


def test_weights_of_another_size_are_refused():
    with pytest.raises(WeightsError, match="vocabulary 30522, wanted 40"):
        masked_lm(replace(CONFIG, init="embedded")).init(jax.random.key(0))


# Wordpiece ids of BERT's lower-casing vocabulary, the place that is masked, and the id that stood there.
SENTENCES = [
    # the cat sat on the mat and looked at the [dog] .
    ([101, 1996, 4937, 2938, 2006, 1996, 13523, 1998, 2246, 2012, 1996, 103, 1012, 102], 11, 3899),
    # she went to the [doctor] because she was sick .
    ([101, 2016, 2253, 2000, 1996, 103, 2138, 2016, 2001, 5305, 1012, 102], 5, 3460),
    # he plays the guitar in a rock [band] .
    ([101, 2002, 3248, 1996, 2858, 1999, 1037, 2600, 103, 1012, 102], 8, 2316),
    # the earth moves around the [sun] once a year .
    ([101, 1996, 3011, 5829, 2105, 1996, 103, 2320, 1037, 2095, 1012, 102], 6, 3103),
    # rome is a city in [italy] .
    ([101, 4199, 2003, 1037, 2103, 1999, 103, 1012, 102], 6, 3304),
    # i would like a [cup] of coffee with milk .
    ([101, 1045, 2052, 2066, 1037, 103, 1997, 4157, 2007, 6501, 1012, 102], 5, 2452),
]
LENGTH = max(len(token_T) for token_T, _, _ in SENTENCES)
EMBEDDED = MaskedLmConfig(bert_config("embedded"), "embedded")


def masked_word_scores(config):
    """(log p of the true word, how many of the 30,522 wordpieces score higher) for each sentence."""
    token_BT = np.array([token_T + [0] * (LENGTH - len(token_T)) for token_T, _, _ in SENTENCES])
    position_BM = np.array([[place] for _, place, _ in SENTENCES])
    target_BM = np.array([[target] for _, _, target in SENTENCES])
    network = masked_lm(config)
    params, apply = network.init(jax.random.key(0)), jax.jit(network.apply, static_argnums=1)
    hidden_BTD = apply(params, "hidden", token_BT, token_BT > 0, token_BT * 0)
    logit_BV = np.asarray(apply(params, "logits", hidden_BTD, position_BM))[:, 0]
    rank_B = (logit_BV > np.take_along_axis(logit_BV, target_BM, 1)).sum(1)
    return np.asarray(apply(params, "log_prob", hidden_BTD, position_BM, target_BM))[:, 0], rank_B


def test_the_embedded_weights_predict_masked_words():
    """Measured: mean log p -7.0 against -10.3 of random weights, true words at ranks 15 to 412 of 30,522."""
    logp_B, rank_B = masked_word_scores(EMBEDDED)
    random_B, _ = masked_word_scores(replace(EMBEDDED, init="random"))
    assert abs(random_B.mean() + np.log(30522)) < 0.3
    assert (logp_B > random_B + 2).all() and logp_B.mean() > random_B.mean() + 3
    assert rank_B.max() < 500


def test_the_embedded_weights_answer_as_their_readme_says():
    """paris is the capital of [MASK]: the topical answers city, mountains, where, which their README names."""
    network = masked_lm(EMBEDDED)
    params, apply = network.init(jax.random.key(0)), jax.jit(network.apply, static_argnums=1)
    token_BT = np.array([[101, 3000, 2003, 1996, 3007, 1997, 103, 102]])
    hidden_BTD = apply(params, "hidden", token_BT, token_BT > 0, token_BT * 0)
    logit_V = apply(params, "logits", hidden_BTD, np.array([[6]]))[0, 0]
    assert np.argsort(-logit_V)[:3].tolist() == [2103, 4020, 2073]
