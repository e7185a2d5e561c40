"""The step and its optimiser: groups, start steps, exact accumulation, non-finite guard, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from realm.training.mesh import MeshError, data_mesh, replicate, shard_batch
from realm.training.optimizer import Optimizer, OptimizerError, Rate, decayed
from realm.training.step import gradient_names, init_state, make_step, microbatches
from realm.training.watch import RetrieverCollapse, Watch, Watcher, WatchError
from tests.training.fakes import Linear, linear_batch

OBJECTIVE = Linear()
BOTH = ("joint", "retriever")


def run(optimizer, batches, *, active=BOTH, accumulate=1, devices=1, steps=10):
    mesh = data_mesh(devices)
    state = replicate(init_state(OBJECTIVE, optimizer, OBJECTIVE.init(jax.random.key(0)), steps), mesh)
    step = make_step(OBJECTIVE, optimizer, steps=steps, active=active, accumulate=accumulate, seed=0)
    metrics = None
    for batch in batches:
        state, metrics = step(state, shard_batch(batch, mesh))
    return jax.device_get(state), jax.device_get(metrics)


def close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_microbatches_of_unequal_weight_add_up_to_the_whole_batch(accumulate):
    optimizer = Optimizer(retriever=Rate(1e-2), joint=Rate(1e-2))
    whole, whole_metrics = run(optimizer, [linear_batch()])
    parts, part_metrics = run(optimizer, [linear_batch()], accumulate=accumulate)
    close(whole["params"], parts["params"], rtol=1e-6, atol=1e-7)
    for name in ("loss", "weight", "mean", "grad_norm"):
        assert part_metrics[name] == pytest.approx(float(whole_metrics[name]), rel=1e-5)


def test_microbatches_keep_distinct_blocks_whole_and_refuse_uneven_parts():
    batch = {"x_BD": np.arange(12).reshape(6, 2), "block_token_UT": np.zeros((5, 3))}
    shared, parts = microbatches(batch, 3)
    assert shared["block_token_UT"].shape == (5, 3) and parts["x_BD"].shape == (3, 2, 2)
    assert sorted(parts["x_BD"].ravel()) == list(range(12))
    with pytest.raises(ValueError, match="6 does not split into 4"):
        microbatches(batch, 4)


def test_one_and_eight_devices_agree():
    optimizer = Optimizer(retriever=Rate(1e-2), joint=Rate(1e-2))
    batches = [linear_batch(seed=s) for s in range(3)]
    one, one_metrics = run(optimizer, batches, devices=1)
    eight, eight_metrics = run(optimizer, batches, devices=8)
    close(one["params"], eight["params"], rtol=1e-6, atol=1e-7)
    assert eight_metrics["loss"] == pytest.approx(float(one_metrics["loss"]), rel=1e-6)


def test_a_group_before_its_start_is_untouched_moments_included():
    optimizer = Optimizer(retriever=Rate(1e-2, start=5), joint=Rate(1e-2))
    assert optimizer.active(OBJECTIVE.groups(), 4) == ("joint",)
    assert optimizer.active(OBJECTIVE.groups(), 5) == BOTH
    first = jax.device_get(init_state(OBJECTIVE, optimizer, OBJECTIVE.init(jax.random.key(0)), 10))
    after, _ = run(optimizer, [linear_batch()], active=("joint",))
    close(first["params"]["retriever"], after["params"]["retriever"], rtol=0)
    close(first["opt"]["retriever"], after["opt"]["retriever"], rtol=0)
    assert after["params"]["joint"]["bias"] != first["params"]["joint"]["bias"]


def test_a_late_group_warms_up_from_its_own_start():
    schedule = Optimizer(retriever=Rate(1.0, start=60, warmup=4)).schedule("retriever", 100)
    assert [float(schedule(i)) for i in range(4)] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert float(schedule(4)) == pytest.approx(1.0) and float(schedule(40)) == pytest.approx(0.0)
    assert float(schedule(22)) == pytest.approx(0.5)


def test_first_update_is_adamw_with_clipping():
    optimizer = Optimizer(retriever=Rate(0.1, warmup=1), joint=Rate(0.1, warmup=1), weight_decay=0.5, clip=1e-3)
    params = OBJECTIVE.init(jax.random.key(0))
    batch = {k: jnp.asarray(v) for k, v in linear_batch().items()}
    grads = jax.grad(lambda p: OBJECTIVE.loss(p, batch, None)[0])(params)
    grads = jax.tree.map(lambda g: g * 1e-3 / optax.tree.norm(grads), grads)
    reference = optax.adamw(0.1, 0.9, 0.999, 1e-6, weight_decay=0.5, mask=decayed)
    updates, _ = reference.update(grads, reference.init(params), params)
    after, metrics = run(optimizer, [linear_batch()])
    close(after["params"], optax.apply_updates(params, updates), rtol=1e-5)
    assert metrics["grad_norm"] > 1e-3


def test_weight_decay_spares_biases_and_scales():
    tree = {"a": {"kernel": 1, "bias": 1}, "norm": {"scale": 1, "bias": 1}, "embedding": 1}
    assert decayed(tree) == {
        "a": {"kernel": True, "bias": False},
        "norm": {"scale": False, "bias": False},
        "embedding": True,
    }


def test_a_non_finite_step_changes_nothing_and_says_which_gradient():
    optimizer = Optimizer(retriever=Rate(1e-2), joint=Rate(1e-2))
    good, _ = run(optimizer, [linear_batch()])
    bad = linear_batch()
    bad["x_BD"][3, 1] = np.nan
    after, metrics = run(optimizer, [linear_batch(), bad])
    close(good, after, rtol=0)
    assert not metrics["finite"]
    names = gradient_names(OBJECTIVE.init(jax.random.key(0)), BOTH)
    assert (
        [n for n, ok in zip(names, metrics["finite_P"], strict=True) if not ok]
        == names
        == [
            "joint/bias",
            "retriever/kernel",
        ]
    )


def test_a_batch_that_does_not_split_over_devices_is_refused():
    with pytest.raises(MeshError, match="6 rows, which do not split over 4"):
        shard_batch({"x_BD": np.zeros((6, 2))}, data_mesh(4))
    with pytest.raises(MeshError, match="99 devices asked"):
        data_mesh(99)


def test_unknown_group_is_named():
    with pytest.raises(OptimizerError, match="'reader'"):
        Optimizer().rate("reader")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *[(Rate, "peak", v) for v in (0.0, -1.0, float("inf"), float("nan"))],
        (Rate, "start", -1),
        (Rate, "warmup", 0),
        *[(Optimizer, name, v) for name in ("b1", "b2") for v in (-0.1, 1.0)],
        *[(Optimizer, "eps", 0.0), (Optimizer, "clip", 0.0), (Optimizer, "weight_decay", -0.1)],
        *[(Watch, "blocks", -1), (Watch, "query_length", 3), (Watch, "batch", 0)],
        *[(Watch, "max_null", v) for v in (0.0, 1.1)],
    ],
)
def test_a_setting_out_of_range_is_named(kind, field, value):
    with pytest.raises(WatchError if kind is Watch else OptimizerError, match=f"found {field} .*, wanted"):
        kind(**{field: value})


def test_settings_at_the_edge_are_taken():
    assert Rate(start=0, warmup=1) and Optimizer(b1=0.0, weight_decay=0.0)
    assert Watch(blocks=0, max_null=1.0, query_length=4, batch=1, max_drop=-1.0)


def warned(probe, last, **watch):
    said = []
    Watcher(Watch(**watch), said.append, best=0.9).look(7, {"recall@5": 0.5, **probe}, last)
    return said[0]


def test_a_warning_names_the_fields_as_they_are_typed():
    said = warned({"heldout": True}, {"rate/retriever": 1e-5, "utility": 0.01})
    assert said.startswith("WARNING own-sentence recall@5 on held-out blocks is 50.0%") and "utility 0.01 nats" in said
    for name in ("optimizer.retriever.peak", "optimizer.retriever.start", "batch-size", "watch.stop ends"):
        assert f"--realm.training.{name}" in said


def test_a_warning_says_held_out_only_of_blocks_that_are():
    assert "held-out blocks" not in warned({"heldout": False}, {})


def test_a_retriever_that_has_not_started_is_not_blamed():
    said = warned({"heldout": True}, {"rate/retriever": 0.0, "utility": 0.01})
    assert "gradient" not in said and "index" in said and "joint encoder" in said


def test_the_watch_ends_the_run_with_the_warning_as_its_reason():
    with pytest.raises(RetrieverCollapse, match="^WARNING.*recall@5"):
        warned({"heldout": True}, {}, stop=True)
