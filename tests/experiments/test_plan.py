"""The bytes plan: what it says of small jobs is what they really take."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.arguments import parse
from experiments.bench_vectors import folder_bytes
from experiments.cli import Pretrain
from experiments.config import Preset
from experiments.plan import PlanError, corpus_of, plan, plan_stage
from experiments.plan_command import plan_preset
from experiments.plan_fit import DoesNotFit, Limits, cheaper, check_fits, limits
from experiments.presets import squad_open, tiny
from experiments.step_bytes import abstract_batch, embed_bytes, step_bytes
from index_refresh.external import External
from index_refresh.process import Process
from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.random_rows import RandomRows
from realm.index.scann import Scann
from realm.index.sharded import Sharded
from realm.retrieve import Candidates, Retrieval, distinct_sizes
from realm.text.plan import example_rng
from realm.training.feed import collate
from realm.training.loop import Training
from realm.training.step import init_state
from tests.index.index_kinds import clustered
from tests.training.jobs import build_table

PRESET = tiny.preset()
PRESET = dataclasses.replace(
    PRESET,
    realm=dataclasses.replace(
        PRESET.realm, objective=dataclasses.replace(PRESET.realm.objective, batch_lengths=(40,), block_lengths=(64,))
    ),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def real_bytes(tree):
    return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree))


def test_parameters_and_moments_are_counted_exactly(table):
    for stage in PRESET.stages().values():
        found = step_bytes(stage, table, 1, compiled=False)
        params = stage.objective.init(jax.random.key(0))
        state = init_state(stage.objective, stage.training.optimizer, params, stage.training.steps)
        assert (found.params, found.moments) == (real_bytes(params), real_bytes(state["opt"]))
        assert found.gradients == real_bytes(params) and found.step is None


def test_the_planned_batch_has_the_shapes_of_the_largest_real_one(table):
    stage, rows = PRESET.realm, 12
    objective, k = stage.objective, stage.objective.candidates
    planned = abstract_batch(stage, table, rows)
    units = objective.units(table)
    batch = collate([objective.example(units[n], example_rng(0, 0, n), 40) for n in range(rows)])
    id_BK = np.arange(rows * k, dtype=np.int32).reshape(rows, k)
    id_BK[:, 0] = -1
    found = Candidates(id_BK, np.ones_like(id_BK, bool), np.zeros(rows, bool))
    retrieval = Retrieval(table, candidates=k, block_lengths=(64,))
    real = objective.found(batch, retrieval.retrieved(found))
    assert {name: (one.shape, one.dtype) for name, one in planned.items()} == {
        name: (np.shape(array), np.asarray(array).dtype) for name, array in real.items() if "host_" not in name
    }


def test_an_in_batch_step_is_planned_with_the_blocks_of_its_whole_batch(tmp_path):
    """Every question brings three blocks that no other one brings: U of them, and beams that are as wide."""
    stage, table = squad_open.tiny().open_qa, build_table(tmp_path / "corpus")
    batch = {"vectors": "batch", "train_documents": True, "read": 1, "questions": "sample:questions"}
    stage = dataclasses.replace(stage, objective=dataclasses.replace(stage.objective, **batch))
    planned = abstract_batch(stage, table, 12)
    most = distinct_sizes(12, 4)[-1]
    assert planned["block_token_UT"].shape == (most, 96)
    assert {name: planned[name].shape for name in planned if name.endswith("_BL")} == {
        name: (12, 1 + most) for name in ("valid_BL", "correct_BL", "ignored_BL")
    }
    params = jax.eval_shape(stage.objective.init, jax.random.key(0))
    assert jax.eval_shape(stage.objective.loss, params, planned, jax.random.key(0))[0].shape == ()


def test_what_a_program_needs_falls_with_microbatches(table):
    def needs(**changed):
        stage = dataclasses.replace(PRESET.mlm, training=dataclasses.replace(PRESET.mlm.training, **changed))
        return step_bytes(stage, table, 1, compiled=True).step

    assert needs(batch_size=64, accumulate=8) < 0.7 * needs(batch_size=64)


KINDS = {
    "exact": Exact(chunk=256),
    "scann": Scann(),
    "scann-hash": Scann(dims_per_block=2),
    "scann-tree-hash": Scann(leaves=30, dims_per_block=2, reorder=50),
    "scann-bfloat16": Scann(leaves=30, dims_per_block=2, reorder=50, reorder_dtype="bfloat16"),
    "scann-tree": Scann(leaves=30),
    "scann-no-reorder": Scann(leaves=30, dims_per_block=2, reorder=0),
    "alsh": Alsh(functions=8, tables=12),
    "alsh-bfloat16": Alsh(functions=0, dtype="bfloat16"),
    "sharded-scann": Sharded(Scann(leaves=20, dims_per_block=2, reorder=50), 3),
    "random": RandomRows(),
}


@pytest.mark.parametrize("index", KINDS.values(), ids=KINDS)
def test_an_index_on_disk_is_as_large_as_planned_within_a_tenth(index, tmp_path):
    vector_NE = clustered(4000, 32)
    searcher = index.build([vector_NE], rows=4000)
    searcher.save(tmp_path)
    planned = index.bytes_plan(4000, 32)
    assert folder_bytes(tmp_path) == pytest.approx(planned.disk, rel=0.1, abs=2000)
    assert planned.build_host >= planned.host and planned.build_device >= planned.device


def test_the_vectors_of_an_exact_index_are_counted_as_they_lie_on_the_device():
    for rows, index in ((300, Exact(chunk=128)), (1000, Exact(dtype="bfloat16")), (5, Exact())):
        searcher = index.build([np.ones((rows, 8), np.float32)])
        assert index.bytes_plan(rows, 8).device == searcher.vector_CNE.nbytes
    parts = Sharded(Exact(chunk=128), 3)
    searcher = parts.build([np.ones((1000, 8), np.float32)])
    assert parts.bytes_plan(1000, 8).device == sum(part.vector_CNE.nbytes for part in searcher.parts)


def test_a_second_index_is_there_during_a_swap_and_a_build_instead_of_it():
    whole, parts = Scann().bytes_plan(13_353_718, 128), Sharded(Scann()).bytes_plan(13_353_718, 128)
    assert parts.build_host < 0.4 * whole.build_host  # why it is built in parts
    assert whole.disk == pytest.approx(326 * 13_353_718, rel=0.02)  # measured: 326 bytes a row
    assert whole.host == pytest.approx(301 * 13_353_718, rel=0.1)  # and 301 loaded


def test_totals_take_the_larger_of_what_is_not_there_at_once(table):
    found = plan_stage("realm", PRESET.realm, corpus_of(table, 1_000_000), 1, compiled=False)
    lines = {line.what: line for line in found.lines}
    swap, build = lines["second index during a swap"], lines["index while it is built"]
    alone = sum(line.device for line in found.lines) - min(swap.device, build.device)
    assert found.total("device") == alone  # of the programs only embedding has a figure here
    assert lines["index in use"].device == Exact().bytes_plan(1_000_000, 32).device
    on_child = dataclasses.replace(
        PRESET.realm, refresh=dataclasses.replace(PRESET.realm.refresh, engine=Process(cores=None))
    )
    assert any("process" in line.what for line in plan_stage("realm", on_child, corpus_of(table), 1, False).lines)
    far = dataclasses.replace(PRESET.realm, refresh=dataclasses.replace(PRESET.realm.refresh, engine=External()))
    assert plan_stage("realm", far, corpus_of(table, 10**6), 1, False).total("host") < found.total("host")


def test_what_cannot_fit_is_refused_with_cheaper_options(table):
    found = plan_stage("realm", PRESET.realm, corpus_of(table, 13_353_718), 1, compiled=False)
    check_fits(found, Limits(10**12, 10**12))
    with pytest.raises(DoesNotFit, match=r"realm needs .* GB on each device without activations.*remat ") as error:
        check_fits(found, Limits(10**8, 10**12))
    for option in ("bfloat16", "accumulate 2", "batch-size", "fewer", "index.dtype", '"Scann"', '"External"'):
        assert option in str(error.value), option
    typed = [option.split(" (")[0].split() for option in cheaper(found) if option.startswith("--")]
    assert len(typed) >= 4
    for words in typed:  # what a message tells to type is taken
        parse(Pretrain, words, "realm pretrain tiny", preset=(Preset, PRESET))
    with pytest.raises(DoesNotFit, match="the host") as error:
        check_fits(found, Limits(10**12, 10**6))
    assert "remat" not in str(error.value)  # of no use to the host
    with pytest.raises(DoesNotFit, match="the host"):  # a CPU's devices are host memory
        check_fits(found, Limits(None, found.total("host") + found.total("device") - 1))
    alone = dataclasses.replace(PRESET.mlm, training=Training(batch_size=1))
    assert "accumulate" not in " ".join(cheaper(plan_stage("mlm", alone, corpus_of(table), 1, compiled=False)))
    assert limits().host > 10**8


def test_the_plan_of_a_preset_is_printed_and_written(table, tmp_path, capsys):
    with pytest.raises(PlanError, match="--plan-blocks"):
        plan_preset(PRESET, tmp_path, None, None)
    with pytest.raises(PlanError, match="does not split over 3 devices"):
        plan(PRESET, corpus_of(table), 3)
    (tmp_path / "corpus").symlink_to(table.path)
    found = plan_preset(dataclasses.replace(PRESET, mlm=None, ict=None), tmp_path, 5000, 1)
    assert found["rows"] == 5000 and list(found["stages"]) == ["realm"]
    for one in found["stages"].values():
        assert one["compiled"] and one["together"]["device"] > 0
        assert one["together"]["device"] <= sum(line["device"] for line in one["lines"])
    printed = capsys.readouterr().out
    assert "5,000 blocks" in printed and "activations, gradients, temporary" in printed


def test_a_width_is_that_of_the_vectors():
    assert embed_bytes(PRESET.realm, compiled=False).width == 32


def test_only_indexes_that_take_less_are_named(table):
    def named(index, rows):
        stage = dataclasses.replace(PRESET.realm, refresh=dataclasses.replace(PRESET.realm.refresh, index=index))
        options = cheaper(plan_stage("realm", stage, corpus_of(table, rows), 1, compiled=False), on_host=True)
        return [option for option in options if "index" in option]

    bfloat16, parts = named(Scann(), 10_000_000)  # 1.3 GB of vectors: kept in float32, and built as a whole
    assert "reorder-dtype bfloat16" in bfloat16 and "Sharded" in parts
    (parts,) = named(Scann(), 30_000_000)  # so many are in bfloat16 already
    assert "Sharded" in parts
    assert named(Sharded(Scann()), 30_000_000) == []
