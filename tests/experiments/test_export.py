"""`realm export`: a run's parameters come back, bit for bit, from the folder that Hugging Face reads too."""

import json
from dataclasses import replace

import jax
import pytest

from experiments.cli import main
from experiments.config import started_from, with_init
from experiments.preflight import preflight
from experiments.presets import PRESETS
from experiments.recipe_of import recipe_of
from index_refresh.build import make_generation
from index_refresh.store import GenerationStore
from realm.models.dual_encoder import dual_encoder
from realm.models.masked_lm import masked_lm
from realm.models.span_reader import span_reader
from tests.experiments.run_folders import job
from tests.training.jobs import build_table, same_bits


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("corpus") / "corpus")


def comes_back(encoder, network, spec, expected):
    """Whether an encoder started from `spec` is shaped as `encoder` was and has the expected parameters."""
    started = started_from(encoder, spec)
    assert replace(started, init="random") == encoder
    return same_bits(network(started).init(jax.random.key(9)), expected)


def test_a_realm_run_comes_back_through_init(table, tmp_path, capsys):
    run, stage, params = job(tmp_path / "run", table, PRESETS["tiny"](), "realm")
    assert main(["export", str(run), "--out", str(tmp_path / "joint")]) == 0
    said = capsys.readouterr().out
    assert "RealmKnowledgeAugEncoder of " in said and "at step 4" in said and "vocab.txt of 30522 wordpieces" in said
    assert "not in this layout: the query encoder, the block encoder" in said
    assert main(["export", str(run), "--out", str(tmp_path / "tower"), "--as", "embedder"]) == 0
    assert "not in this layout: the joint encoder" in capsys.readouterr().out
    joint, tower = f"hf:{tmp_path / 'joint'}", f"hf:{tmp_path / 'tower'}"
    assert comes_back(stage.objective.joint, masked_lm, joint, params["joint"])
    assert comes_back(stage.objective.retriever, dual_encoder, tower, params["retriever"])
    assert json.loads((tmp_path / "joint" / "tokenizer_config.json").read_text())["do_lower_case"]
    tiny = replace(PRESETS["tiny"](), questions=None, realm=None)
    preflight(with_init(replace(tiny, ict=None), joint), table)
    preflight(with_init(replace(tiny, mlm=None), tower), table)
    assert capsys.readouterr().err == "", "its vocabulary is the corpus's"


def test_a_fine_tuned_run_is_one_folder_with_tower_reader_and_vectors(table, tmp_path, capsys):
    run, stage, params = job(tmp_path / "run", table, PRESETS["tiny_open"](), "open_qa")
    arguments = ["export", str(run), "--out", str(tmp_path / "out")]
    assert main(arguments) == 1 and "has no generation" in capsys.readouterr().err and not (tmp_path / "out").exists()
    store = GenerationStore(run / "open_qa", recipe_of(stage, table))
    generation = make_generation(store, 0, params, lambda phase, done, total: None)
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "RealmForOpenQA" in said and "4 steps old" in said and "not in this layout: the block encoder" in said
    spec = f"hf:{tmp_path / 'out'}"
    two = {"query": params["retriever"]["query"], "block": params["retriever"]["query"]}
    assert comes_back(stage.objective.retriever, dual_encoder, spec, two)
    assert comes_back(stage.objective.joint, span_reader, spec, params["joint"])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["num_block_records"] == generation.manifest["rows"] == table.indexed


@pytest.mark.parametrize(
    ("name", "pooling", "more", "said"),
    [
        ("ict", "mean", [], "wanted 'cls'"),
        ("ict", "cls", ["--as=masked-lm"], "stage ict has no joint encoder"),
        ("mlm", "cls", ["--as", "embedder"], "stage mlm has no query encoder"),
        ("ict", "cls", ["--as", "embedder", "--part", "joint"], "wanted one that embedder holds: query or block"),
        ("ict", "mean", ["--as", "sentence-encoder"], "block_segments=2, sentence-encoder does with 1"),
        ("realm", "cls", ["--layout", "open-qa"], "found no span reader"),
    ],
)
def test_what_has_no_place_in_a_layout_is_refused_and_nothing_written(
    table, tmp_path, capsys, name, pooling, more, said
):
    run, _, _ = job(tmp_path / "run", table, PRESETS["tiny"](), name, pooling)
    assert main(["export", str(run), "--out", str(tmp_path / "out"), *more]) == 1
    assert said in capsys.readouterr().err and sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_a_folder_that_is_there_is_left_alone(table, tmp_path, capsys):
    run, stage, params = job(tmp_path / "run", table, PRESETS["tiny"](), "ict", "mean")
    (tmp_path / "out").mkdir()
    assert main(["export", str(run), "--out", str(tmp_path / "out")]) == 1
    assert "wanted a folder that is not there yet" in capsys.readouterr().err and not list((tmp_path / "out").iterdir())
    assert main(["export", str(run), "--out", str(tmp_path / "new"), "--as", "bert"]) == 0
    assert "norm/bias, norm/scale, projection/bias, projection/kernel of the query encoder" in capsys.readouterr().out
    assert main(["export"]) == 2 and main(["export", "--out", "x"]) == 2
