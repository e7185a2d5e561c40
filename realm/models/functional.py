"""The one bridge between flax.nnx classes and the rest of the framework, where state is a nested dict of arrays.

A network is described by an nnx class. `functional` splits it once, without allocating anything, into its graph and the
shapes of its parameters; `apply` puts graph and parameters together again inside plain jax.jit. nnx.jit and
nnx.Optimizer are left out because their host time per step is ten times that of plain dicts.
All keys are strings: the entries of an nnx.List are '0', '1', ..., which every file format and path can carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
from flax import nnx

from realm.protocols import Params


class ParamsError(ValueError):
    """Parameters do not belong to the network they were given to."""


class Functional(NamedTuple):
    """A network as two functions and the shapes of its parameters.

    init(key) -> params: deterministic in the typed key, may be jitted.
    apply(params, method, *args, **kwargs): calls that method of the network; pure, made for use inside jax.jit.
    shapes: params with a jax.ShapeDtypeStruct in place of each array, as a target for restoring.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[..., Any]
    shapes: Params


def functional(build: Callable[[nnx.Rngs], nnx.Module]) -> Functional:
    """Init and apply of the network that `build` makes; allocates no parameters.

    apply raises ParamsError where parameters are missing, unknown or of another shape, and AttributeError for a method
    that the network lacks.
    """

    def born(key: jax.Array) -> nnx.Module:
        return build(nnx.Rngs(params=key))

    graph, state = nnx.split(nnx.eval_shape(lambda: born(jax.random.key(0))))
    module_shapes = nnx.to_pure_dict(state)
    shapes = _with_string_keys(module_shapes)

    def init(key: jax.Array) -> Params:
        return _with_string_keys(nnx.to_pure_dict(nnx.state(born(key))))

    def apply(params: Params, method: str, *args: Any, **kwargs: Any) -> Any:
        check_params(params, shapes)
        return getattr(nnx.merge(graph, _with_module_keys(params, module_shapes)), method)(*args, **kwargs)

    return Functional(init, apply, shapes)


def check_params(params: Params, shapes: Params) -> None:
    """Raises ParamsError unless `params` has exactly the paths and shapes of `shapes`."""
    found, wanted = dict(_leaves(params)), dict(_leaves(shapes))
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or unknown:
        raise ParamsError(f"parameters do not fit the network: missing {missing}, unknown {unknown}")
    for path, leaf in wanted.items():
        if found[path].shape != leaf.shape:
            raise ParamsError(f"parameter {path} has shape {found[path].shape}, the network wants {leaf.shape}")


def _leaves(tree: Params, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def _with_string_keys(tree: dict) -> Params:
    return {str(key): _with_string_keys(value) if isinstance(value, dict) else value for key, value in tree.items()}


def _with_module_keys(params: Params, module_shapes: dict) -> dict:
    """The same arrays under the keys that nnx uses, integers for the entries of an nnx.List."""
    return {
        key: _with_module_keys(params[str(key)], shape) if isinstance(shape, dict) else params[str(key)]
        for key, shape in module_shapes.items()
    }
