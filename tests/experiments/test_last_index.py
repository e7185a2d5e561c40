"""The index of the last towers: made once, where it is of use, and never at the cost of a measurement."""

import dataclasses
import fcntl

import jax
import numpy as np
import pytest

from experiments import last_index as room
from experiments.last_index import last_index
from experiments.presets.squad_open import tiny
from experiments.recipe_of import recipe_of
from experiments.searching import embedded
from index_refresh.build import make_generation
from index_refresh.claim import OWNER
from index_refresh.external import External
from index_refresh.store import GenerationStore
from realm.index.exact import Exact
from tests.training.jobs import build_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def stage(objective=None, **refresh):
    stage = tiny().open_qa
    changes = {"vectors": "batch", "train_documents": True} if objective is None else objective
    objective = dataclasses.replace(stage.objective, **changes)
    return dataclasses.replace(stage, objective=objective, refresh=dataclasses.replace(stage.refresh, **refresh))


@pytest.fixture(scope="module")
def params():
    return stage().objective.init(jax.random.key(0))


def logged(folder, table):
    store = GenerationStore(folder, recipe_of(stage(), table))
    return [(event["event"], event["step"]) for event in store.log.events()]


def test_it_is_made_of_the_last_towers_and_once(table, params, tmp_path, capsys):
    make_generation(GenerationStore(tmp_path, recipe_of(stage(), table)), 0, params, lambda *_: None)  # and not logged
    moved = jax.tree.map(lambda array: array + 0.01, params)
    last_index("open_qa", stage(), moved, 5, table, tmp_path)
    assert f"{table.indexed} blocks by the towers of step 5" in capsys.readouterr().err
    newest = GenerationStore(tmp_path, recipe_of(stage(), table)).newest()
    fresh_NE = np.concatenate(list(embedded(stage(), moved, table)))
    np.testing.assert_allclose(np.concatenate(list(newest.vectors())), fresh_NE, rtol=1e-5, atol=1e-6)
    assert logged(tmp_path, table) == [("published", 0), ("published", 5)]
    last_index("open_qa", stage(), moved, 5, table, tmp_path)
    assert capsys.readouterr().err == "" and newest.number == 1 and len(logged(tmp_path, table)) == 2


def test_one_that_was_killed_before_it_was_logged_is_logged(table, params, tmp_path):
    make_generation(GenerationStore(tmp_path, recipe_of(stage(), table)), 5, params, lambda *_: None)
    last_index("open_qa", stage(), params, 5, table, tmp_path)
    assert logged(tmp_path, table) == [("published", 5)]


@pytest.mark.parametrize(
    "chosen",
    [
        stage({}),
        stage(schedule="rolling 4 every 2"),
        stage(engine=External()),
        dataclasses.replace(tiny().ict, refresh=tiny().open_qa.refresh),
    ],
    ids=["frozen", "rolling", "elsewhere", "no retrieval"],
)
def test_where_it_is_of_no_use_nothing_is_made(chosen, table, params, tmp_path, capsys):
    last_index("open_qa", chosen, params, 5, table, tmp_path)
    assert not list(tmp_path.iterdir()) and capsys.readouterr().err == ""


def test_a_disk_without_room_is_said_and_costs_no_measurement(table, params, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "make_generation", full)
    last_index("open_qa", stage(), params, 5, table, tmp_path)
    assert "no last index: [Errno 28] No space left on device" in capsys.readouterr().err
    monkeypatch.undo()
    last_index("open_qa", stage(index=Exact()), params, 5, table, tmp_path)  # and nothing is held on to
    assert GenerationStore(tmp_path, recipe_of(stage(), table)).newest().step == 5


def test_a_refresher_that_stays_keeps_its_place(table, params, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 0.2)
    with (tmp_path / OWNER).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("a refresher")
        file.flush()
        last_index("open_qa", stage(), params, 5, table, tmp_path)
    assert "no last index" in (said := capsys.readouterr().err) and "a refresher" in said
    assert GenerationStore(tmp_path, recipe_of(stage(), table)).newest() is None
