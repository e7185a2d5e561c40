"""The three interfaces between rooms: Objective, Searcher, Refresher.

Whoever trains or evaluates knows these and nothing of the variants behind them. A variant is a frozen dataclass that
satisfies the protocol; there is no registry and no base class. Shape letters: B batch, K candidates (0 is the null
block), T tokens, M masked positions, E retrieval width, N index rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Params = dict[str, Any]
Arrays = dict[str, Any]
Items = Literal["blocks", "nothing"]
Metrics = dict[str, Any]


class Hits(NamedTuple):
    """What a searcher found: always exactly k columns.

    score_BK float32 (-inf where invalid), id_BK int32 index rows (0 where invalid), valid_BK bool.
    """

    score_BK: np.ndarray
    id_BK: np.ndarray
    valid_BK: np.ndarray


class Searcher(Protocol):
    """Maximum inner product search over N rows of width E."""

    rows: int
    dim: int
    kind: str

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        """The k best rows of each query, best first. Raises on a wrong width or k < 1."""
        ...

    def settings(self) -> dict[str, Any]:
        """What was built, for logs and manifests."""
        ...

    def save(self, folder: Any) -> None:
        """Writes what `load` needs beside the vector shards, with relative paths only."""
        ...


class Units(Protocol):
    """Everything one objective may make an example of; membership was decided when the corpus was built."""

    length_N: np.ndarray
    counts: dict[str, int]

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def name(self, index: int) -> str:
        """What a message calls unit `index`."""
        ...


class Objective(Protocol):
    """What is learned. A frozen dataclass that holds its encoder configs, hashable all the way down.

    items: what the index holds. candidates: columns of a retrieval, the null block included; 0 = nothing is retrieved.
    `groups` names the top-level keys of the parameters and the optimiser group each belongs to, so that retriever and
    joint encoder get their own learning rate and start step. An objective that retrieves also has `block_lengths`
    (padded lengths of retrieved blocks) and `scores(params, batch)` [B, K] (for re-ranking), keeps its towers under
    `params["retriever"]`, and its batches hold `own_B` (the row a query comes from, -1 for none) and, named `query_*`,
    all that `embed_queries` reads.
    """

    items: Items
    candidates: int
    batch_lengths: tuple[int, ...]

    def init(self, key: Any) -> Params: ...

    def taken(self, part: str, own: Params, earlier: Params) -> Params:
        """The parameters to start `part` from: its own initial ones, with what it takes from an earlier stage's."""
        ...

    def groups(self) -> dict[str, str]: ...

    def units(self, corpus: Any, heldout: bool | None = False) -> Units: ...

    def example(self, unit: Any, rng: np.random.Generator, length: int) -> Arrays:
        """One example in numpy, padded to `length`; never skips."""
        ...

    def embed_queries(self, params: Params, batch: Arrays) -> Any: ...

    def embed_items(self, params: Params, blocks: Arrays) -> Any: ...

    def found(self, batch: Arrays, retrieved: Any) -> Arrays:
        """A host step between search and loss: joins what was retrieved (`realm.retrieve.Retrieved`) to the batch.

        Arrays whose names begin with `host_` may be of any type; they never reach a device.
        """
        ...

    def loss(self, params: Params, batch: Arrays, key: Any) -> tuple[Any, Metrics]:
        """A mean over `metrics["weight"]` predictions, so that microbatches combine exactly."""
        ...


class GenerationLike(Protocol):
    """A finished index on disk: its number, the training step its vectors come from, when the parameters of that step
    were handed over (seconds since the epoch), and what opens it."""

    number: int
    step: int

    @property
    def taken(self) -> float: ...

    def searcher(self) -> Searcher: ...

    def vectors(self) -> Any:
        """The stored vectors; `take(row_N)` gives float32 [N, E]."""
        ...

    def document_ages(self, step: int) -> dict[str, float]:
        """How old the youngest, the mean and the oldest document are at `step`, in steps, for logs; {} where all are
        of one step, because a refresh renews the whole corpus."""
        ...

    def query_params(self) -> Params:
        """The retriever parameters of the snapshot that the vectors were made with."""
        ...


class Refresher(Protocol):
    """Turns published retriever parameters into generations; asynchronous engines return from `publish` at once.

    asynchronous: generations come whenever they come, so the trainer opens them beside its steps and goes over when
    they are open. Otherwise what `newest` gives at a boundary is a function of the run, and is opened there and then.
    max_age: the oldest index, in steps, that may be trained with; None for any.
    """

    asynchronous: bool
    max_age: int | None

    def tick(self, step: int) -> None:
        """Called first at every step boundary: time to do some work, or to look after those who do it."""
        ...

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        """Whether the schedule wants the parameters of this step published; always at step 0. `drift` measures, when
        it is called, which share of its answers a fresh index would change."""
        ...

    def publish(self, step: int, params: Params) -> None:
        """Hands over {'retriever': ...}. Steps increase; the newest step again, unchanged, does nothing."""
        ...

    def newest(self) -> GenerationLike | None:
        """The latest finished generation that may be adopted at the step of the last `tick`, None before the first.
        Cheap enough for every step."""
        ...

    def open(self, number: int) -> GenerationLike:
        """A finished generation by number: on resume, the one that the checkpoint refers to."""
        ...

    def adopted(self, generation: GenerationLike, step: int, kept: Collection[int] = ()) -> None:
        """Told when the trainer swaps to a generation. `kept`: the generations that kept checkpoints refer to, which
        are not deleted."""
        ...

    def rewind(self, step: int) -> None:
        """Told once on resume, before anything else: whatever was published or adopted after `step` is still to come
        (-1: all of it). Such generations are set aside, and taken back when the same parameters are published again."""
        ...

    def status(self) -> dict[str, Any]:
        """For logs: `state` and `last_error`, `hopeless` (nothing will come of what was published last), and
        `dropped_snapshots`; of the newest generation `seconds_embed`, `seconds_build`, `blocks_per_second`,
        `peak_host_bytes`."""
        ...

    def close(self) -> None: ...


Report = Callable[[str], None]
