"""The index side of training: adopt a newer generation, ask it, and know how old everything is.

The loop asks in two halves, `ask` (on the device) and `answer` (on the host), so that a search can run while the
device works on the step before. A new generation is adopted at a step boundary only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from realm.protocols import Arrays, GenerationLike, Objective, Params, Refresher, Searcher
from realm.retrieve import Candidates, Retrieval
from realm.text.table import BlockTable
from realm.training.mesh import replicate, shard_batch
from realm.training.metrics import MetricsLog
from realm.training.watch import Probe, Watch, Watcher


class Found(NamedTuple):
    """Candidates with where they come from: the generation's number and step, and the step whose towers asked."""

    candidates: Candidates
    generation: int
    generation_step: int
    asked_step: int

    def arrays(self) -> Arrays:
        """For a checkpoint."""
        return self.candidates._asdict() | {"origin": np.array(self[1:], np.int64)}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Found:
        arrays = {name: np.asarray(value) for name, value in arrays.items()}
        origin = arrays.pop("origin").tolist()
        return cls(Candidates(**arrays), *origin)

    def ages(self, step: int) -> dict[str, int]:
        """For the batch that update `step` (counted from 0) is made of: how old documents and queries are, in steps."""
        return {
            "generation": self.generation,
            "document_age": step - self.generation_step,
            "query_age": step - self.asked_step,
        }


class Lookup:
    """Search for one objective over one corpus, through whatever generation is adopted.

    query_tower: `current` or `generation`, whose parameters embed the queries for search.
    """

    def __init__(
        self,
        objective: Objective,
        table: BlockTable,
        refresher: Refresher,
        *,
        mesh: Mesh,
        query_tower: str,
        watch: Watch,
        seed: int,
        log: MetricsLog,
        report: Callable[[str], None],
    ):
        self.objective, self.refresher, self.mesh = objective, refresher, mesh
        self.query_tower, self.log, self.report = query_tower, log, report
        self.retrieval = Retrieval(
            table,
            candidates=objective.candidates,
            block_lengths=objective.block_lengths,
            multiple=max(8, mesh.size),
        )
        self.probe = Probe(objective, table, watch, seed) if watch.blocks else None
        earlier = [event["recall@5"] for event in log.events("probe") if "recall@5" in event]
        self.watcher = Watcher(watch, report, max(earlier, default=None))
        self.generation: GenerationLike | None = None
        self.searcher: Searcher | None = None
        self.query_params: Params | None = None
        self.blocked = 0.0
        self._embed = jax.jit(objective.embed_queries)

    @property
    def number(self) -> int | None:
        """The adopted generation's number."""
        return None if self.generation is None else self.generation.number

    def resume(self, step: int, number: int | None) -> None:
        """Goes back to what was adopted before step `step`; what happened at its boundary is still to come."""
        self.refresher.rewind(step - 1)
        if number is not None:
            self._adopt(self.refresher.open(number))

    def refresh(self, step: int, params: Params, kept: Callable[[], set[int]]) -> None:
        """At the boundary before `step`: publishes where the schedule says so, and adopts the newest generation.

        kept: the generations that kept checkpoints refer to. Raises RetrieverCollapse when the watch is to stop.
        """
        began = time.monotonic()
        if self.refresher.due(step):
            self.refresher.publish(step, {"retriever": params["retriever"]})
        newest = self.refresher.newest()
        if newest is None or newest.number == self.number:
            return
        self._adopt(newest)
        self.refresher.adopted(newest, step, kept())
        self.blocked += time.monotonic() - began
        if self.probe is not None:
            self._look(step, params)

    def _adopt(self, generation: GenerationLike) -> None:
        self.generation, self.searcher = generation, generation.searcher()
        if self.query_tower == "generation":
            self.query_params = replicate(generation.query_params(), self.mesh)

    def _look(self, step: int, params: Params) -> None:
        values = self.probe.run(params, self.searcher)
        self.log.event(step, "probe", values | {"generation": self.number})
        if "recall@5" in values:
            self.report(f"probe at step {step}: own-sentence recall@5 {values['recall@5']:.3f}")
        complaint = self.watcher.look(step, values, self.log.last)
        if complaint:
            self.log.event(step, "warning", {"text": complaint})

    def ask(self, params: Params, batch: Arrays) -> jax.Array:
        """Query vectors [B, E], dispatched; the parameters may be given away right after."""
        towers = self.query_params or {"retriever": params["retriever"]}
        queries = {name: array for name, array in batch.items() if name.startswith("query_")}
        return self._embed(towers, shard_batch(queries, self.mesh))

    def answer(self, query_BE: jax.Array, batch: Arrays, step: int) -> Found:
        """The candidates of a batch from the adopted generation; step: the towers that embedded the queries."""
        candidates = self.retrieval.search(self.searcher, np.asarray(query_BE), batch["own_B"])
        asked = self.generation.step if self.query_params else step
        return Found(candidates, self.generation.number, self.generation.step, asked)

    def join(self, batch: Arrays, found: Found) -> Arrays:
        """The batch with its packed candidates, as the loss reads it."""
        return self.objective.found(batch, self.retrieval.pack(found.candidates))
