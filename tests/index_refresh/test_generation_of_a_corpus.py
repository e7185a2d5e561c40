"""A generation of a real block table: what an objective is fed, block by block."""

import json
import pickle

import numpy as np
import pytest

from index_refresh.generation import GenerationMismatch
from index_refresh.recipe import Recipe
from index_refresh.schedule import Never
from index_refresh.sync import Sync
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.packing import pack_blocks
from tests.index_refresh.refresh_fakes import DIM, WIDTH, FakeIndex, FakeObjective

WORDS = "amber basin cedar delta ember fjord glade heron inlet jetty knoll lagoon marsh north ocean pond".split()


def build(folder, documents, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for number in range(documents):
        sentences = [" ".join(rng.choice(WORDS, rng.integers(5, 12))).capitalize() + "." for _ in range(8)]
        lines.append(json.dumps({"id": f"d{number}", "title": WORDS[number % 16], "text": " ".join(sentences)}))
    folder.mkdir()
    (folder / "documents.jsonl").write_text("\n".join(lines) + "\n")
    return build_corpus(CorpusConfig(str(folder / "documents.jsonl"), block_length=48), folder / "corpus")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build(tmp_path_factory.mktemp("real") / "a", 12)


@pytest.fixture(scope="module")
def params(table):
    rng = np.random.default_rng(3)
    shapes = {"words": (table.tokenizer.size, WIDTH), "first": (WIDTH, WIDTH), "second": (WIDTH, DIM)}
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {"retriever": {"words": drawn["words"], "layers": {0: drawn["first"], 1: drawn["second"]}}}


def recipe_of(table):
    return Recipe(FakeObjective(), str(table.path), FakeIndex(), shard_rows=16, batch_rows=4, lengths=(24, 32, 48))


def test_each_vector_is_that_of_its_block_packed_alone(table, params, tmp_path):
    recipe = pickle.loads(pickle.dumps(recipe_of(table)))
    refresher = Sync().start(recipe, Never(), tmp_path / "run")
    refresher.publish(0, params)
    generation = refresher.newest()
    assert generation.manifest["rows"] == table.rows > 16
    vector_NE = np.concatenate(list(generation.vectors()))
    for row in range(table.rows):
        blocks = pack_blocks(table, np.array([row]), 48)
        alone_NE = np.asarray(FakeObjective().embed_items(params, blocks))
        np.testing.assert_allclose(vector_NE[row], alone_NE[0], atol=1e-5)


def test_a_generation_of_another_corpus_stops_the_engine_at_its_start(table, params, tmp_path):
    Sync().start(recipe_of(table), Never(), tmp_path / "run").publish(0, params)
    same_rows = build(tmp_path / "other", 12, seed=1)
    with pytest.raises(GenerationMismatch, match="the corpus has"):
        Sync().start(recipe_of(same_rows), Never(), tmp_path / "run")
