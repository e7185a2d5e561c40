"""A corpus, models and batches small enough for the tests of this folder: paragraphs of the sample, one layer of 16."""

import gzip
import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np

from realm.index.exact import Exact
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig
from realm.objectives.realm import Realm
from realm.retrieve import Retrieval
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.packing import pack_blocks
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer
from realm.training.feed import Feed
from realm.training.mesh import data_mesh, replicate, shard_batch

VOCABULARY = 3400
FREQUENT = range(1996, 3996)  # BERT's pieces are sorted by how common they are, after characters and unused ones
# Larger starting weights than BERT's, so that an untrained reader already tells one block from another.
BERT = BertConfig(
    vocabulary=VOCABULARY,
    width=16,
    layers=1,
    heads=2,
    feedforward=32,
    positions=112,
    dropout=0.0,
    attention_dropout=0.0,
    init_scale=0.3,
)
RETRIEVER = DualEncoderConfig(bert=BERT, width=8, pooling="mean", dropout=0.0)
JOINT = MaskedLmConfig(bert=BERT)
REALM = Realm(
    retriever=RETRIEVER, joint=JOINT, candidates=4, max_predictions=5, batch_lengths=(40,), block_lengths=(64,)
)


# Each program of these tests runs a few times only: most of the time would go into compiling it.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@cache
def sample_lines(name: str, count: int = 40) -> list[str]:
    with gzip.open(sample_path(name), "rt", encoding="utf-8") as file:
        return [next(file) for _ in range(count)]


@cache
def vocabulary() -> str:
    """The pieces that the first paragraphs of the sample use, and the most frequent ones: a tenth of BERT's.

    The paragraphs' wordpieces are those of the whole vocabulary, as each is the longest that fits in both.
    """
    bert = Tokenizer.load(None)
    records = [json.loads(line) for line in sample_lines("corpus")]
    encodings = bert.encode_batch([record[name] for record in records for name in ("title", "text")])
    wanted = {bert.pad, bert.unk, bert.cls, bert.sep, bert.mask, *FREQUENT}.union(*(e.id_T.tolist() for e in encodings))
    assert len(wanted) <= VOCABULARY
    return "".join(bert.piece(number) + "\n" for number in sorted(wanted))


def build_table(folder: Path, *, documents: int = 40, copies: int = 0, holdout: float = 0.2) -> BlockTable:
    """The sample's first paragraphs in blocks of 64, the first `copies` of them once more under other ids."""
    for name in ("corpus", "spans"):
        records = [json.loads(line) for line in sample_lines(name)[:documents]]
        records += [{**record, "id": f"copy-{record['id']}"} for record in records[:copies]]
        write(folder / f"{name}.jsonl", records)
    return table_of(folder, spans=str(folder / "spans.jsonl"), holdout=holdout)


def text_table(folder: Path, *texts: str, **settings) -> BlockTable:
    """The table of documents with these texts and titles '0', '1', ..., with dates as their salient spans."""
    write(folder / "corpus.jsonl", [{"id": str(i), "title": str(i), "text": text} for i, text in enumerate(texts)])
    return table_of(folder, **settings)


def table_of(folder: Path, **settings) -> BlockTable:
    (folder / "small-vocabulary.txt").write_text(vocabulary(), encoding="utf-8")
    settings = {"vocabulary": str(folder / "small-vocabulary.txt"), "block_length": 64} | settings
    return build_corpus(CorpusConfig(str(folder / "corpus.jsonl"), **settings), folder / "table")


def write(path: Path, records: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def dropping(config, rate: float):
    """The same retriever, joint encoder or objective with dropout everywhere."""
    if isinstance(config, BertConfig):
        return replace(config, dropout=rate, attention_dropout=rate)
    if isinstance(config, DualEncoderConfig):
        return replace(config, bert=dropping(config.bert, rate), dropout=rate)
    if isinstance(config, MaskedLmConfig):
        return replace(config, bert=dropping(config.bert, rate))
    parts = {name: getattr(config, name) for name in ("retriever", "joint") if hasattr(config, name)}
    return replace(config, **{name: dropping(part, rate) for name, part in parts.items()})


def batch_of(objective, table: BlockTable, *, size: int = 8, number: int = 0, seed: int = 0) -> dict:
    """Batch `number` as the loop reads it, before any search."""
    feed = Feed(objective, objective.units(table), batch_size=size, seed=seed, start=number, stop=number + 1, threads=0)
    return next(iter(feed))


@cache
def program(objective, method: str):
    """A method of the objective, jitted once for all tests of the session; `gradient` is that of the loss."""
    function = getattr(objective, "loss" if method == "gradient" else method)
    if method == "gradient":
        function = jax.value_and_grad(lambda params, batch: objective.loss(params, batch, None), has_aux=True)
    return quick(function)


def block_vectors(objective, params, table: BlockTable) -> np.ndarray:
    return np.asarray(program(objective, "embed_items")(params, pack_blocks(table, np.arange(table.rows), 64)))


def exact_index(objective, params, table: BlockTable):
    return Exact().build([block_vectors(objective, params, table)])


def retrieved(objective, params, table: BlockTable, batch: dict, searcher=None):
    """(the batch with its packed candidates, the candidates), found by `searcher` or by exact search."""
    searcher = exact_index(objective, params, table) if searcher is None else searcher
    retrieval = Retrieval(table, candidates=objective.candidates, block_lengths=objective.block_lengths)
    queries = {name: array for name, array in batch.items() if name.startswith("query_")}
    candidates = retrieval.search(searcher, program(objective, "embed_queries")(params, queries), batch["own_B"])
    return objective.found(batch, retrieval.retrieved(candidates)), candidates


def loss_of(objective, params, batch, key=None):
    """(loss, metrics) as numpy."""
    return jax.device_get(program(objective, "loss")(params, batch, key))


def gradient_of(objective, params, batch):
    """((loss, metrics), gradient) as numpy."""
    return jax.device_get(program(objective, "gradient")(params, batch))


def on_devices(objective, params, batch, devices: int):
    """gradient_of with the batch split over `devices`."""
    mesh = data_mesh(devices)
    return gradient_of(objective, replicate(params, mesh), shard_batch(batch, mesh))


def close(a, b, **tolerance):
    """Two trees of arrays agree."""
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def largest(tree) -> float:
    return max(float(np.abs(x).max()) for x in jax.tree.leaves(tree))
