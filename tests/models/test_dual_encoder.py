import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm.models.bert import EncoderError
from realm.models.dual_encoder import DualEncoderConfig, dual_encoder
from realm.models.weights import WeightsError, bert_config, load_bert, tower_settings
from tests.models.bert_reference import TINY, dense, hidden, norm, shaken
from tests.models.hf_folders import BLOCK, QUERY, embedder, same, write

CONFIG = DualEncoderConfig(TINY, width=6, dropout=0.1)
POOLINGS = pytest.mark.parametrize("pooling", ["cls", "mean"])
RNG = np.random.default_rng(0)
TOKEN_NT = RNG.integers(1, 40, (4, 12)).astype(np.int32)
LENGTH_N = np.array([12, 4, 9, 3])
BODY_N = np.array([5, 2, 3, 2])


def params_of(config):
    return shaken(dual_encoder(config).init(jax.random.key(0)))


def embed_blocks(config, params, token_NT=TOKEN_NT, length_N=LENGTH_N, body_N=BODY_N, key=None):
    apply = jax.jit(lambda *args: dual_encoder(config).apply(args[0], "embed_blocks", *args[1:], key=key))
    return np.asarray(apply(params, token_NT, length_N, body_N))


@POOLINGS
def test_block_vectors_equal_the_float64_reference(pooling):
    config = replace(CONFIG, pooling=pooling)
    params = params_of(config)
    found_NE = embed_blocks(config, params)
    assert found_NE.dtype == np.float32 and found_NE.shape == (4, 6)
    tower = jax.tree.map(lambda x: np.asarray(x, np.float64), params["tower"])
    places = np.arange(12)
    for row, (length, body) in enumerate(zip(LENGTH_N, BODY_N, strict=True)):
        segment_T = (places >= body).astype(int)
        hidden_TD = hidden(tower["bert"], TINY, TOKEN_NT[row], places < length, segment_T, places)
        first_D = np.tanh(dense(tower["bert"]["pooler"], hidden_TD[0]))
        pooled_D = first_D if pooling == "cls" else hidden_TD[:length].mean(0)
        expected_E = norm(tower["norm"], dense(tower["projection"], pooled_D), 1e-3)
        np.testing.assert_allclose(found_NE[row], expected_E, atol=2e-5)


@POOLINGS
def test_a_vector_does_not_depend_on_batch_mates_padding_or_the_call(pooling):
    config = replace(CONFIG, pooling=pooling)
    params = params_of(config)
    together_NE = embed_blocks(config, params)
    np.testing.assert_array_equal(together_NE, embed_blocks(config, params))
    for row, length in enumerate(LENGTH_N):
        args = TOKEN_NT[row : row + 1, :length], LENGTH_N[row : row + 1], BODY_N[row : row + 1]
        np.testing.assert_allclose(embed_blocks(config, params, *args)[0], together_NE[row], atol=1e-5)
    other_padding_NT = np.where(np.arange(12) < LENGTH_N[:, None], TOKEN_NT, 0)
    np.testing.assert_allclose(embed_blocks(config, params, other_padding_NT), together_NE, atol=1e-5)


@POOLINGS
def test_no_gradient_flows_between_blocks_or_from_padding(pooling):
    config = replace(CONFIG, pooling=pooling)
    token_NT = np.arange(36, dtype=np.int32).reshape(3, 12)

    def one(params):
        args = token_NT, np.array([12, 7, 9]), np.array([2, 2, 2])
        return (dual_encoder(config).apply(params, "embed_blocks", *args)[1] ** 3).sum()

    grads = jax.jit(jax.grad(one))(params_of(config))
    touched = np.flatnonzero(np.abs(grads["tower"]["bert"]["word"]["embedding"]).sum(1))
    assert touched.tolist() == list(range(12, 12 + 7))


def test_title_and_body_are_told_apart_and_queries_are_of_the_first_segment():
    params = params_of(CONFIG)
    moved_NE = embed_blocks(CONFIG, params, body_N=BODY_N + 1)
    assert np.abs(moved_NE - embed_blocks(CONFIG, params)).max(1).min() > 1e-3
    q_BE = jax.jit(dual_encoder(CONFIG).apply, static_argnums=1)(params, "embed_queries", TOKEN_NT, LENGTH_N)
    np.testing.assert_allclose(q_BE, embed_blocks(CONFIG, params, body_N=LENGTH_N), atol=1e-5)


def test_in_one_segment_a_block_is_embedded_like_a_query_of_its_wordpieces():
    params, one = params_of(CONFIG), replace(CONFIG, block_segments=1)
    v_NE = embed_blocks(one, params)
    np.testing.assert_array_equal(v_NE, embed_blocks(one, params, body_N=BODY_N + 1))
    np.testing.assert_allclose(v_NE, embed_blocks(CONFIG, params, body_N=LENGTH_N), atol=1e-5)
    assert np.abs(v_NE - embed_blocks(CONFIG, params)).max(1).min() > 1e-3


def test_vectors_start_with_norm_root_of_their_width():
    v_NE = embed_blocks(CONFIG, dual_encoder(CONFIG).init(jax.random.key(0)))
    np.testing.assert_allclose((v_NE**2).sum(1), 6, rtol=0.02)
    np.testing.assert_allclose(v_NE.mean(1), 0, atol=1e-5)


def test_dropout_acts_on_the_vectors_with_a_key_only():
    params, clean_NE = params_of(CONFIG), embed_blocks(CONFIG, params_of(CONFIG))
    noisy_NE = embed_blocks(CONFIG, params, key=jax.random.key(1))
    dropped = noisy_NE == 0
    assert 0 < dropped.sum() < dropped.size / 2
    np.testing.assert_allclose(noisy_NE[~dropped], (clean_NE / 0.9)[~dropped], rtol=1e-5)
    off = replace(CONFIG, dropout=0.0)
    np.testing.assert_array_equal(embed_blocks(off, params, key=jax.random.key(1)), embed_blocks(off, params))


def test_two_towers_start_alike_and_learn_apart():
    config = replace(CONFIG, shared=False)
    params = dual_encoder(config).init(jax.random.key(0))
    assert set(params) == {"query", "block"} and set(dual_encoder(CONFIG).shapes) == {"tower"}
    jax.tree.map(np.testing.assert_array_equal, params["query"], params["block"])

    def query_loss(params):
        return (dual_encoder(config).apply(params, "embed_queries", TOKEN_NT, LENGTH_N) ** 3).sum()

    def block_loss(params):
        return (dual_encoder(config).apply(params, "embed_blocks", TOKEN_NT, LENGTH_N, BODY_N) ** 3).sum()

    for loss, own, other in ((query_loss, "query", "block"), (block_loss, "block", "query")):
        grads = jax.jit(jax.grad(loss))(params)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(grads[other]))
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads[own]["projection"]))


@pytest.mark.parametrize("jit", [False, True])
def test_two_towers_can_be_donated(jit):
    init = dual_encoder(replace(CONFIG, shared=False)).init
    params = (jax.jit(init) if jit else init)(jax.random.key(0))
    buffers = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(params)]
    assert len(set(buffers)) == len(buffers)


@pytest.mark.parametrize("shared", [True, False])
def test_embedded_weights_fill_the_encoder_and_leave_the_rest_random(shared, caplog):
    bert = bert_config("embedded")
    config = DualEncoderConfig(bert, init="embedded", shared=shared)
    with caplog.at_level(logging.INFO):
        params, other = (dual_encoder(config).init(jax.random.key(seed)) for seed in (0, 1))
    assert "retriever from embedded: mapped 37 of BertForMaskedLM" in caplog.text
    assert "initialised [pooler, projection]" in caplog.text
    loaded, _ = load_bert("embedded", bert)
    for tower in params:
        assert params[tower]["bert"].keys() == loaded["bert"].keys() | {"pooler"}
        mine = {name: params[tower]["bert"][name] for name in loaded["bert"]}
        jax.tree.map(np.testing.assert_array_equal, mine, loaded["bert"])
        kernels = [
            (tree[tower]["projection"]["kernel"], tree[tower]["bert"]["pooler"]["kernel"]) for tree in (params, other)
        ]
        assert not np.allclose(kernels[0][0], kernels[1][0]) and not np.allclose(kernels[0][1], kernels[1][1])


def test_init_with_embedded_weights_may_be_jitted():
    init = dual_encoder(DualEncoderConfig(bert_config("embedded"), init="embedded")).init
    eager, jitted = init(jax.random.key(0)), jax.jit(init)(jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), eager, jitted)


def test_weights_of_a_realm_fill_projection_and_both_towers(tmp_path):
    towers = embedder(BLOCK, "embedder.") | embedder(QUERY, "query_embedder.")
    spec = write(tmp_path, towers)
    config = DualEncoderConfig(bert_config(spec), shared=False, init=spec, **tower_settings(spec))
    params = dual_encoder(config).init(jax.random.key(0))
    same(jax.tree.map(np.asarray, params), {"query": QUERY, "block": BLOCK})
    with pytest.raises(WeightsError, match="has two towers"):
        dual_encoder(replace(config, shared=True)).init(jax.random.key(0))


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(WeightsError, match="width 128, wanted 16"):
        dual_encoder(replace(CONFIG, init="embedded")).init(jax.random.key(0))


def test_bfloat16_gives_float32_vectors_close_by():
    params = params_of(CONFIG)
    low_NE = embed_blocks(replace(CONFIG, bert=replace(TINY, compute_dtype="bfloat16")), params)
    assert low_NE.dtype == jnp.float32
    assert 0 < np.sqrt(((low_NE - embed_blocks(CONFIG, params)) ** 2).mean()) < 0.05


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"width": 0}, EncoderError, "width is 0"),
        ({"pooling": "max"}, EncoderError, "'max', wanted 'cls' or 'mean'"),
        ({"block_segments": 3}, EncoderError, "block_segments is 3, wanted 1 or 2"),
        ({"dropout": -0.1}, EncoderError, "wanted 0 <= dropout < 1"),
        ({"init": "bert-base"}, WeightsError, "'bert-base', wanted 'random', 'embedded' or 'hf:PATH'"),
    ],
)
def test_impossible_retriever_configs_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        replace(CONFIG, **change)
