from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.models.bert import Bert, BertConfig, EncoderError, layer_norm
from realm.models.functional import functional
from tests.models.bert_reference import TINY, hidden, norm, shaken


def network(config=TINY):
    return functional(lambda rngs: Bert(config, rngs))


PARAMS = shaken(network().init(jax.random.key(0)))
RNG = np.random.default_rng(0)
TOKEN_BT = RNG.integers(1, 30, (3, 9)).astype(np.int32)
LENGTH_B = np.array([9, 5, 7])
MASK_BT = np.arange(9) < LENGTH_B[:, None]
SEGMENT_BT = (np.arange(9) >= 4).astype(np.int32) * np.ones((3, 1), np.int32)


def encode(params=PARAMS, config=TINY, token_BT=TOKEN_BT, mask_BT=MASK_BT, segment_BT=SEGMENT_BT, **rest):
    return jax.jit(lambda params, *args: network(config).apply(params, "__call__", *args, **rest))(
        params, token_BT, mask_BT, segment_BT
    )


@pytest.mark.parametrize("kind", ["tanh", "erf"])
@pytest.mark.parametrize("layers", [1, 2])
def test_hidden_states_equal_the_float64_reference(kind, layers):
    config = replace(TINY, gelu=kind, layers=layers)
    params = shaken(network(config).init(jax.random.key(1)))
    position_BT = RNG.permuted(np.tile(np.arange(20), (3, 1)), axis=1)[:, :9]
    found_BTD = encode(params, config, position_BT=position_BT)
    for row in range(3):
        expected_TD = hidden(params, config, TOKEN_BT[row], MASK_BT[row], SEGMENT_BT[row], position_BT[row])
        np.testing.assert_allclose(found_BTD[row], expected_TD, atol=1e-5)


def test_positions_count_from_zero_when_not_given():
    position_BT = np.tile(np.arange(9), (3, 1))
    np.testing.assert_allclose(encode(), encode(position_BT=position_BT), atol=1e-6)


def test_jit_and_remat_change_nothing():
    def loss(params, config):
        return (network(config).apply(params, "__call__", TOKEN_BT, MASK_BT, SEGMENT_BT) ** 3).sum()

    both = jax.jit(jax.value_and_grad(loss), static_argnums=1)
    value, grads = both(PARAMS, TINY)
    again, again_grads = both(PARAMS, replace(TINY, remat=True))
    np.testing.assert_allclose([value, again], loss(PARAMS, TINY), rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), grads, again_grads)


def test_remat_saves_memory_on_a_cpu_too():
    # Kept: the hidden states between 8 layers, and what the backward pass of one layer needs.
    def temporary(remat):
        config = replace(TINY, layers=8, remat=remat)

        def loss(params, token_BT):
            mask_BT = jnp.ones(token_BT.shape, bool)
            return network(config).apply(params, "__call__", token_BT, mask_BT, token_BT * 0).sum()

        shapes = network(config).shapes
        lowered = jax.jit(jax.grad(loss)).lower(shapes, jax.ShapeDtypeStruct((256, 16), jnp.int32))
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporary(True) < 0.4 * temporary(False)


def test_remat_repeats_the_same_dropout():
    config = replace(TINY, dropout=0.3, attention_dropout=0.3)

    def loss(params, config):
        key = jax.random.key(4)
        return (network(config).apply(params, "__call__", TOKEN_BT, MASK_BT, SEGMENT_BT, key=key) ** 3).sum()

    kept, again = (jax.jit(jax.grad(loss), static_argnums=1)(PARAMS, replace(config, remat=r)) for r in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), kept, again)


plain = jax.jit(lambda *args: network().apply(PARAMS, "__call__", *args))


def test_layer_norm_keeps_its_precision_far_from_zero():
    x_BD = (1000 + RNG.normal(size=(4, 16))).astype(np.float32)
    network = functional(lambda rngs: layer_norm(16, 1e-12, rngs))
    found_BD = network.apply(network.init(jax.random.key(0)), "__call__", x_BD)
    np.testing.assert_allclose(found_BD, norm({"scale": 1.0, "bias": 0.0}, x_BD.astype(float), 1e-12), atol=1e-3)


@given(data=st.data())
@settings(deadline=None, max_examples=20)
def test_real_tokens_do_not_feel_padding_or_batch_mates(data):
    """Padding of any length and content, anywhere, and any second sequence leave the real tokens as they are."""
    length = data.draw(st.integers(2, 8))
    places_T = np.array(sorted(data.draw(st.sets(st.integers(0, 11), min_size=length, max_size=length))))
    token_T, segment_T = TOKEN_BT[0, :length], SEGMENT_BT[0, :length]
    alone_TD = plain(token_T[None], np.ones((1, length), bool), segment_T[None])[0]
    token_BT = np.array(data.draw(st.lists(st.integers(0, 39), min_size=24, max_size=24)), np.int32).reshape(2, 12)
    mask_BT, segment_BT, position_BT = np.zeros((2, 12), bool), token_BT % 2, token_BT % 20
    token_BT[0, places_T], segment_BT[0, places_T], position_BT[0, places_T] = token_T, segment_T, np.arange(length)
    mask_BT[0, places_T] = True
    mask_BT[1, : data.draw(st.integers(0, 12))] = True
    found_BTD = plain(token_BT, mask_BT, segment_BT, position_BT)
    np.testing.assert_allclose(found_BTD[0, places_T], alone_TD, atol=1e-5)
    assert np.isfinite(found_BTD).all()


@pytest.mark.parametrize("remat", [False, True])
def test_asking_for_places_equals_picking_them(remat):
    at_BM = np.array([[0, 3], [4, 4], [6, 1]])

    def loss(params, ask):
        args = (TOKEN_BT, MASK_BT, SEGMENT_BT)
        apply = network(replace(TINY, remat=remat)).apply
        if ask:
            hidden_BMD = apply(params, "__call__", *args, at_BM=at_BM)
        else:
            hidden_BMD = apply(params, "__call__", *args)[np.arange(3)[:, None], at_BM]
        return (hidden_BMD**3).sum(), hidden_BMD

    both = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, asked_BMD), asked_grads = both(PARAMS, True)
    (_, picked_BMD), picked_grads = both(PARAMS, False)
    assert asked_BMD.shape == (3, 2, 16)
    np.testing.assert_allclose(asked_BMD, picked_BMD, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), asked_grads, picked_grads)


def test_gradients_reach_real_tokens_of_the_same_sequence_and_nothing_else():
    token_BT = np.arange(27, dtype=np.int32).reshape(3, 9)

    def loss(params):
        hidden_BTD = network().apply(params, "__call__", token_BT, MASK_BT, SEGMENT_BT)
        return (hidden_BTD[1, 0] ** 3).sum()

    grads = jax.jit(jax.grad(loss))(PARAMS)
    touched = np.flatnonzero(np.abs(grads["word"]["embedding"]).sum(1))
    assert touched.tolist() == list(range(9, 9 + LENGTH_B[1]))
    assert np.flatnonzero(np.abs(grads["position"]["embedding"]).sum(1)).tolist() == list(range(LENGTH_B[1]))


def random_steps(config, key):
    args = (TOKEN_BT, MASK_BT, SEGMENT_BT)
    return str(jax.make_jaxpr(lambda p, key: network(config).apply(p, "__call__", *args, key=key))(PARAMS, key))


def test_no_random_number_is_drawn_without_dropout():
    key = jax.random.key(0)
    assert "random_bits" not in random_steps(TINY, key) and "random_split" not in random_steps(TINY, key)
    assert "random_bits" not in random_steps(replace(TINY, dropout=0.1, attention_dropout=0.1), None)
    for which in ("dropout", "attention_dropout"):
        assert "random_bits" in random_steps(replace(TINY, **{which: 0.1}), key)


@pytest.mark.parametrize("which", ["dropout", "attention_dropout"])
def test_dropout_acts_only_with_a_key_and_is_a_function_of_it(which):
    config = replace(TINY, **{which: 0.5})
    clean, again = encode(config=config), encode(config=TINY)
    np.testing.assert_array_equal(clean, again)
    noisy = [encode(config=config, key=jax.random.key(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(noisy[0], noisy[1])
    assert not np.allclose(noisy[0], noisy[2]) and not np.allclose(noisy[0], clean)


def test_bfloat16_stays_close_and_keeps_state_in_float32():
    found_BTD = encode(config=replace(TINY, compute_dtype="bfloat16"))
    assert found_BTD.dtype == jnp.float32
    expected_BTD = encode()
    off_ND = np.asarray(found_BTD - expected_BTD)[MASK_BT]
    assert 0 < np.sqrt((off_ND**2).mean()) < 0.03  # hidden states have a root mean square near 1
    pool = jax.jit(lambda p, h: network(replace(TINY, compute_dtype="bfloat16")).apply(p, "pool", h))
    params = network(replace(TINY, compute_dtype="bfloat16")).init(jax.random.key(0))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    pooled_BD = pool(PARAMS, expected_BTD)
    assert pooled_BD.dtype == jnp.float32
    exact_BD = np.tanh(expected_BTD[:, 0] @ PARAMS["pooler"]["kernel"] + PARAMS["pooler"]["bias"])
    np.testing.assert_allclose(pooled_BD, exact_BD, atol=1e-5)


def test_weights_start_as_a_truncated_normal_and_norms_as_identity():
    params = network(replace(TINY, vocabulary=4000, init_scale=0.02)).init(jax.random.key(0))
    word_VD = np.asarray(params["word"]["embedding"])
    assert np.abs(word_VD).max() <= 0.04 + 1e-6
    assert abs(word_VD.std() - 0.02 * 0.8796) < 2e-4  # deviation of a normal cut at two of its deviations
    assert (params["layers"]["0"]["up"]["bias"] == 0).all() and (params["norm"]["scale"] == 1).all()


def test_sequences_longer_than_the_position_table_are_refused():
    with pytest.raises(EncoderError, match="21 tokens, but the position table has 20 rows"):
        encode(token_BT=np.ones((1, 21), int), mask_BT=np.ones((1, 21), bool), segment_BT=np.zeros((1, 21), int))


def test_ids_outside_the_vocabulary_give_nan_and_not_a_wrong_answer():
    token_BT = TOKEN_BT.copy()
    token_BT[1, 0] = TINY.vocabulary
    found_BTD = np.asarray(encode(token_BT=token_BT))
    assert np.isnan(found_BTD[1]).all() and np.isfinite(found_BTD[[0, 2]]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 15}, "width 15 is no multiple of heads 4"),
        ({"layers": 0}, "layers is 0, wanted at least 1"),
        ({"dropout": 1.0}, r"dropout is 1.0, wanted 0 <= dropout < 1"),
        ({"compute_dtype": "float16"}, "'float16', wanted 'float32' or 'bfloat16'"),
        ({"gelu": "relu"}, "'relu', wanted 'tanh' or 'erf'"),
    ],
)
def test_impossible_configs_are_refused(change, message):
    with pytest.raises(EncoderError, match=message):
        replace(TINY, **change)


def test_the_default_is_bert_base():
    leaves = jax.tree.leaves(network(BertConfig()).shapes)
    assert sum(leaf.size for leaf in leaves) == 109_482_240
