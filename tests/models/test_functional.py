import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from realm.models.functional import ParamsError, functional


class Stack(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(12)])
        self.gain = nnx.Param(jnp.ones(width))

    def double(self, x_BD, add=0.0):
        for layer in self.layers:
            x_BD = layer(x_BD)
        return 2 * x_BD * self.gain + add


NETWORK = functional(lambda rngs: Stack(3, rngs))


def keys_of(tree):
    return [key for key, value in tree.items() for key in [key, *(keys_of(value) if isinstance(value, dict) else [])]]


def test_state_is_a_plain_dict_with_string_keys_only():
    params = NETWORK.init(jax.random.key(0))
    assert type(params) is dict and set(params) == {"layers", "gain"}
    assert all(type(key) is str for key in keys_of(params))
    assert list(params["layers"]) == [str(i) for i in range(12)]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, NETWORK.shapes)


def test_each_layer_gets_its_own_arrays():
    params = NETWORK.init(jax.random.key(0))
    x_BD = np.ones((1, 3), np.float32)
    expected_BD = x_BD
    for i in range(12):
        layer = params["layers"][str(i)]
        expected_BD = expected_BD @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
    np.testing.assert_allclose(NETWORK.apply(params, "double", x_BD, add=1.0), 2 * expected_BD + 1, rtol=1e-5)


def test_describing_a_network_allocates_nothing():
    # 400 TB of parameters: this could not return if a single layer were made.
    huge = functional(lambda rngs: nnx.Linear(10**7, 10**7, rngs=rngs))
    assert huge.shapes["kernel"].shape == (10**7, 10**7)


def test_init_is_a_function_of_the_key_with_and_without_jit():
    first, again, other = (NETWORK.init(jax.random.key(seed)) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    assert not np.allclose(first["layers"]["0"]["kernel"], other["layers"]["0"]["kernel"])
    assert not np.allclose(first["layers"]["0"]["kernel"], first["layers"]["1"]["kernel"])
    jitted = jax.jit(NETWORK.init)(jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), first, jitted)


def test_apply_is_the_same_inside_jit_and_changes_nothing():
    params = NETWORK.init(jax.random.key(0))
    before = jax.tree.map(np.array, params)
    x_BD = jnp.arange(6.0).reshape(2, 3)
    eager = NETWORK.apply(params, "double", x_BD)
    jitted = jax.jit(lambda params, x_BD: NETWORK.apply(params, "double", x_BD))(params, x_BD)
    np.testing.assert_allclose(eager, jitted, rtol=1e-5, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, before, params)


def test_gradients_have_the_structure_of_the_parameters():
    params = NETWORK.init(jax.random.key(0))
    grads = jax.jit(jax.grad(lambda params: NETWORK.apply(params, "double", jnp.ones((1, 3))).sum()))(params)
    assert jax.tree.structure(grads) == jax.tree.structure(params)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads))


def test_a_network_first_described_inside_jit_leaks_no_tracer():
    made = []

    @jax.jit
    def traced(key):
        made.append(functional(lambda rngs: Stack(3, rngs)))
        return made[0].apply(made[0].init(key), "double", jnp.ones((1, 3)))

    expected = traced(jax.random.key(0))
    params = made[0].init(jax.random.key(0))
    np.testing.assert_allclose(made[0].apply(params, "double", jnp.ones((1, 3))), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda params: params["layers"].pop("3"), r"missing \['layers/3/bias', 'layers/3/kernel'\], unknown \[\]"),
        (lambda params: params.update(extra=jnp.ones(1)), r"missing \[\], unknown \['extra'\]"),
        (lambda params: params.update(gain=jnp.ones(4)), r"gain has shape \(4,\), the network wants \(3,\)"),
    ],
)
def test_parameters_of_another_network_are_refused(spoil, message):
    params = NETWORK.init(jax.random.key(0))
    spoil(params)
    with pytest.raises(ParamsError, match=message):
        NETWORK.apply(params, "double", jnp.ones((1, 3)))


def test_an_unknown_method_is_an_error():
    with pytest.raises(AttributeError, match="triple"):
        NETWORK.apply(NETWORK.init(jax.random.key(0)), "triple")
