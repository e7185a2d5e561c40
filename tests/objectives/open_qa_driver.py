"""A small driver of question answering for tests: real corpus, Retrieval and exact index; facts that fit in a line."""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np
import optax

from realm.index.exact import Exact
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.span_reader import SpanReaderConfig
from realm.objectives.open_qa import OpenQa
from realm.retrieve import Candidates, Retrieval, distinct_sizes
from realm.text.answer_places import AnswerPlaces
from realm.text.packing import pack_blocks
from realm.text.table import BlockTable
from realm.training.optimizer import Optimizer, Rate, clip_by_norm
from tests.objectives.small import BERT, batch_of, program, quick, table_of, write

QA = OpenQa(
    retriever=DualEncoderConfig(bert=BERT, width=8, pooling="mean", dropout=0.0, shared=False),
    joint=SpanReaderConfig(bert=BERT, width=12, answer_length=3),
    beam=6,
    read=3,
    batch_lengths=(24,),
    block_lengths=(64,),
)
STEPS = 120


@dataclass(frozen=True)
class Stored:
    """Vectors by row."""

    vector_NE: np.ndarray

    def take(self, row_N):
        return self.vector_NE[row_N]


@dataclass(frozen=True)
class Retrieved:
    """What a batch's queries found: candidates, and what can be had of them."""

    candidates: Candidates
    retrieval: Retrieval
    places: AnswerPlaces
    vectors: Any = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Padded numbers of distinct rows, ascending."""
        table, multiple = self.retrieval.table, self.retrieval.multiple
        most = -(-table.indexed // multiple) * multiple
        sizes = distinct_sizes(*self.candidates.id_BK.shape, multiple)
        return (*(size for size in sizes if size < most), most)

    def pack(self, columns: int | None = None) -> dict:
        return self.retrieval.pack(Candidates(*(a[:, :columns] for a in self.candidates[:2]), self.candidates[2]))


class World:
    """A corpus, an index of it by the block tower of `params`, and all that lies between question and loss."""

    def __init__(self, objective: OpenQa, params, table: BlockTable):
        self.objective, self.table, self.places = objective, table, AnswerPlaces(table)
        blocks = pack_blocks(table, np.arange(table.rows), objective.block_lengths[-1])
        self.vectors = Stored(np.asarray(program(objective, "embed_items")(params, blocks)))
        self.searcher = Exact().build([self.vectors.vector_NE])
        # multiple: one number of distinct blocks for all batches, so one compilation
        lengths = objective.block_lengths
        self.retrieval = Retrieval(table, candidates=objective.candidates, block_lengths=lengths, multiple=32)

    def join(self, candidates: Candidates) -> Retrieved:
        return Retrieved(candidates, self.retrieval, self.places, self.vectors)

    def candidates(self, params, batch) -> Candidates:
        queries = {name: array for name, array in batch.items() if name.startswith("query_")}
        q_BE = program(self.objective, "embed_queries")(params, queries)
        return self.retrieval.search(self.searcher, q_BE, batch["own_B"])

    def batch(self, params, *, size: int = 8, number: int = 0) -> dict:
        """Batch `number` as the loss reads it."""
        plain = batch_of(self.objective, self.table, size=size, number=number)
        return self.joined(plain, self.candidates(params, plain))

    def joined(self, plain: dict, candidates: Candidates) -> dict:
        """The batch with these candidates, without what stays on the host."""
        ready = self.objective.found(plain, self.join(candidates))
        return {name: array for name, array in ready.items() if not name.startswith(("host_", "unit_"))}


def parts_of(params, paths):
    """{path: subtree}, `retriever/query` being a path."""
    found = {}
    for path in paths:
        found[path] = params
        for key in path.split("/"):
            found[path] = found[path][key]
    return found


def with_parts(params, parts):
    """`params` with the subtrees at these paths replaced."""
    for path, tree in parts.items():
        first, _, rest = path.partition("/")
        params = params | {first: with_parts(params[first], {rest: tree}) if rest else tree}
    return params


@cache
def updating(groups: tuple, rate: float):
    """The optimiser of these groups, and its jitted update by the gradient of all parameters."""
    optimizer, groups = Optimizer(Rate(rate, warmup=5), Rate(rate, warmup=5), eps=1e-4), dict(groups)

    @quick
    def update(params, opt, grads):
        moving, grads = parts_of(params, groups), parts_of(grads, groups)
        clipped = clip_by_norm(grads, optax.tree.norm(grads), 1.0)
        moved, opt = optimizer.update(clipped, opt, moving, groups, STEPS)
        return with_parts(params, moved), opt

    return optimizer, update


def trained(world: World, params, *, steps: int = STEPS, size: int = 8, rate: float = 3e-3):
    """(params, losses) of the first steps of `STEPS`: AdamW over the objective's groups, batch n of step n, the index
    as it was."""
    groups = world.objective.groups()
    optimizer, update = updating(tuple(groups.items()), rate)
    opt, losses = optimizer.init(parts_of(params, groups), groups, STEPS), []
    for number in range(steps):
        batch = world.batch(params, size=size, number=number)
        (loss, _), grads = program(world.objective, "gradient")(params, batch)
        params, opt = update(params, opt, grads)
        losses.append(float(loss))
    return params, losses


PEOPLE = "anna peter maria henry julia oscar clara simon laura martin helen victor".split()
CITIES = "paris london vienna madrid rome oslo berlin dublin moscow geneva tokyo boston".split()
YEARS = range(1901, 1913)


FACTS = list(zip(PEOPLE, CITIES, YEARS, strict=True))


@cache
def facts_folder() -> Any:
    """One folder for the whole session, so that objectives over it are equal and compile once."""
    folder = TemporaryDirectory()
    write(
        Path(folder.name) / "corpus.jsonl",
        [
            {"id": name, "title": name, "text": f"In the year {year} {name} was born. {name} came from {city}."}
            for name, city, year in FACTS
        ],
    )
    write(
        Path(folder.name) / "questions.jsonl",
        [
            {"id": f"{name}-{what}", "question": f"{what} was {name} born?", "answers": [answer], "doc": name}
            for name, city, year in FACTS
            for what, answer in (("where", city), ("when", str(year)))
        ],
    )
    table_of(Path(folder.name))
    return folder


@cache
def facts_world(key: int = 0, **changes) -> tuple[World, Any]:
    """(world, params): a block a person, and two questions about each; nothing is held out."""
    folder = Path(facts_folder().name)
    objective = replace(QA, questions=str(folder / "questions.jsonl"), **changes)
    params = program(objective, "init")(jax.random.key(key))
    return World(objective, params, table_of(folder)), params
