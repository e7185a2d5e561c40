"""A stage's first index from vectors that are there: the same bits as embedding would give, or a plain refusal."""

import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments.first_index import check_vectors, first_index
from experiments.presets import PRESETS
from experiments.recipe_of import recipe_of
from experiments.warm_start import PreflightError
from index_refresh.build import make_generation
from index_refresh.store import GenerationStore
from realm.index.exact import Exact
from realm.objectives.ict import Ict
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from tests.experiments.run_folders import job
from tests.training.jobs import build_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def stage_of(**refresh):
    stage = PRESETS["tiny_open"]().open_qa
    return replace(stage, warm_start={}, refresh=replace(stage.refresh, **refresh))


def made(folder, stage, table, params, **changes):
    store = GenerationStore(folder, replace(recipe_of(stage, table), **changes))
    return make_generation(store, 0, params, lambda phase, done, total: None)


def vectors(generation):
    return np.concatenate([np.array(shard) for shard in generation.vectors()])


def test_kept_vectors_of_the_same_block_tower_become_the_first_index(table, tmp_path, capsys):
    """Kept by ICT's objective with its one tower, in files of another size, in a folder of several."""
    stage = stage_of(vectors=str(tmp_path / "kept"))
    params = stage.objective.init(jax.random.key(stage.training.seed))
    one = Ict(retriever=replace(stage.objective.retriever, shared=True))
    tower = {"retriever": {"tower": params["retriever"]["block"]}}
    other = jax.tree.map(lambda array: array + 1, tower)
    made(tmp_path / "kept" / "a", replace(stage, objective=one), table, other)
    kept = made(tmp_path / "kept" / "b", replace(stage, objective=one), table, tower, index=Exact(), shard_rows=16)
    whole = made(tmp_path / "whole", stage, table, params)
    first_index("open_qa", stage, table, tmp_path / "run", {})
    assert f"{table.indexed} vectors taken over from {kept.path}" in capsys.readouterr().err
    [new] = [GenerationStore(tmp_path / "run", recipe_of(stage, table)).newest()]
    assert (new.number, new.step) == (0, 0) and vectors(new).tobytes() == vectors(whole).tobytes()
    query_BE = vectors(whole)[:5]
    assert (new.searcher().search(query_BE, 4).id_BK == whole.searcher().search(query_BE, 4).id_BK).all()
    assert new.manifest["encoder_fingerprint"] == whole.manifest["encoder_fingerprint"]
    first_index("open_qa", stage, table, tmp_path / "run", {})
    assert capsys.readouterr().err == "", "a stage with an index keeps it"


def test_a_run_started_from_a_fine_tuned_one_takes_its_index_over(table, tmp_path, capsys):
    """The query tower has moved, the block tower stood still: nothing is embedded, and the new query tower is noted."""
    run, stage, params = job(tmp_path / "first", table, PRESETS["tiny_open"](), "open_qa", "mean")
    started = {"query": jax.tree.map(lambda array: array * 0.9, params["retriever"]["query"])}
    earlier = made(run / "open_qa", stage, table, {"retriever": params["retriever"] | started})
    stage = replace(stage, warm_start={"retriever": f"run:{run / 'open_qa'}"})
    first_index("open_qa", stage, table, tmp_path / "second", {})
    assert "index taken over" in capsys.readouterr().err
    new = GenerationStore(tmp_path / "second", recipe_of(stage, table)).newest()
    assert vectors(new).tobytes() == vectors(earlier).tobytes()
    now = new.query_params()["retriever"]
    jax.tree.map(np.testing.assert_array_equal, now["query"], jax.device_get(params["retriever"]["query"]))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("tower", "other parameters: fingerprint"),
        ("lengths", "another lengths: found"),
        ("corpus", "rows is 253, the corpus has 90"),
        ("nothing there", "found no generation"),
    ],
)
def test_vectors_that_do_not_fit_are_refused_with_the_reason(table, tmp_path, changed, said):
    stage = stage_of(vectors=str(tmp_path / "kept"))
    params = stage.objective.init(jax.random.key(stage.training.seed + (changed == "tower")))
    (tmp_path / "kept").mkdir()
    if changed != "nothing there":
        lengths = (64, 96) if changed == "lengths" else stage.refresh.block_lengths
        made(tmp_path / "kept", stage, table, params, lengths=lengths)
    if changed == "corpus":
        table = build_corpus(CorpusConfig(str(sample_path("corpus")), limit=20, block_length=64), tmp_path / "corpus")
    with pytest.raises(PreflightError, match=f"refresh.vectors=.*{said}"):
        first_index("open_qa", stage, table, tmp_path / "run", {})
    assert not (tmp_path / "run" / "generations").exists()


def test_a_damaged_folder_is_passed_over_where_another_fits(table, tmp_path, capsys):
    stage = stage_of(vectors=str(tmp_path / "kept"))
    params = stage.objective.init(jax.random.key(stage.training.seed))
    damaged = made(tmp_path / "kept" / "a", stage, table, params)
    (damaged.path / "manifest.json").write_text("{")
    fits = made(tmp_path / "kept" / "b", stage, table, params)
    first_index("open_qa", stage, table, tmp_path / "run", {})
    assert f"index taken over from {fits.path}" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["damaged", "of another corpus"])
def test_a_run_to_start_from_without_a_usable_index_costs_the_embedding_and_no_more(table, tmp_path, capsys, wrong):
    run, stage, params = job(tmp_path / "first", table, PRESETS["tiny_open"](), "open_qa", "mean")
    earlier = made(run / "open_qa", stage, table, params)
    stage = replace(stage, warm_start={"retriever": f"run:{run / 'open_qa'}"})
    if wrong == "damaged":
        shard = earlier.path / earlier.manifest["shards"][0]["file"]
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        table = build_corpus(CorpusConfig(str(sample_path("corpus")), limit=20, block_length=64), tmp_path / "corpus")
    first_index("open_qa", stage, table, tmp_path / "second", {})
    assert "no vectors taken over: " in capsys.readouterr().err
    assert made(tmp_path / "second", stage, table, params).manifest["rows"] == table.indexed


def test_the_index_of_other_settings_gives_its_vectors(table, tmp_path, capsys):
    run, stage, params = job(tmp_path / "first", table, PRESETS["tiny_open"](), "open_qa", "mean")
    earlier = made(run / "open_qa", stage, table, params, shard_rows=16)
    stage = replace(stage, warm_start={"retriever": f"run:{run / 'open_qa'}"})
    first_index("open_qa", stage, table, tmp_path / "second", {})
    assert f"{table.indexed} vectors taken over from {earlier.path}" in capsys.readouterr().err
    new = GenerationStore(tmp_path / "second", recipe_of(stage, table)).newest()
    assert vectors(new).tobytes() == vectors(earlier).tobytes()


def test_what_is_named_is_looked_at_before_any_stage_trains_and_not_again(table, tmp_path):
    def job_of(vectors):
        return replace(PRESETS["tiny_open"](), open_qa=stage_of(vectors=str(vectors)))

    with pytest.raises(PreflightError, match="nowhere' has no vectors that fit; found no generation"):
        check_vectors(job_of(tmp_path / "nowhere"), table, tmp_path / "run")
    preset = job_of(tmp_path / "kept")
    tower = preset.open_qa.objective.init(jax.random.key(77))  # perhaps what an earlier stage will end with
    made(tmp_path / "kept", preset.open_qa, table, tower)
    check_vectors(preset, table, tmp_path / "run")
    made(tmp_path / "run" / "open_qa", preset.open_qa, table, tower)
    shutil.rmtree(tmp_path / "kept")
    check_vectors(preset, table, tmp_path / "run")
