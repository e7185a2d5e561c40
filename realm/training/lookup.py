"""The index side of training: adopt a newer generation, ask it, and know how old everything is.

The loop asks in two halves, `ask` (on the device) and `answer` (on the host), so that a search can run while the
device works on the step before. A new generation is adopted at a step boundary only; one of an asynchronous refresher
is opened in a thread first, so that no step ever waits for it. Only the first index is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from realm.protocols import Arrays, GenerationLike, Objective, Params, Refresher, Searcher
from realm.retrieve import Retrieval, best_of, device_arrays, queries_of
from realm.text.table import BlockTable
from realm.training.drift import Drift
from realm.training.found import Found
from realm.training.mesh import replicate, shard_batch
from realm.training.metrics import MetricsLog
from realm.training.opener import Opened, Opener
from realm.training.processes import NONE, Ballot, agreed, any_of_all, local_copy, own_rows, several, slots_of_all
from realm.training.side_by_side import SideBySide
from realm.training.together import Together
from realm.training.watch import Probe, Watch, Watcher

PATIENCE = 0.05  # seconds between two looks for the first index
COSTS = ("seconds_embed", "seconds_build", "blocks_per_second", "peak_host_bytes", "peak_device_bytes")


class IndexTooOld(RuntimeError):
    """The adopted index is older than `max_age` steps, and no newer one has come."""


class NoIndex(RuntimeError):
    """The refresher cannot make the index that training needs to begin or to go on."""


class Lookup:
    """Search for one objective over one corpus, through whatever generation is adopted.

    query_tower: `current` or `generation`, whose parameters embed the queries for search. rerank: so many blocks are
    searched for, and the current towers choose the candidates among them (0: the index chooses).
    """

    def __init__(
        self,
        objective: Objective,
        table: BlockTable,
        refresher: Refresher,
        *,
        mesh: Mesh,
        query_tower: str,
        rerank: int = 0,
        watch: Watch,
        seed: int,
        log: MetricsLog,
        report: Callable[[str], None],
    ):
        self.objective, self.refresher, self.mesh = objective, refresher, mesh
        self.query_tower, self.log, self.report = query_tower, log, report
        retrieval = partial(
            Retrieval,
            table,
            block_lengths=objective.block_lengths,
            multiple=max(8, mesh.local_mesh.size),
            one_shape=several(),
        )
        self.retrieval = retrieval(candidates=objective.candidates)
        self.wide = retrieval(candidates=rerank + 1) if rerank and objective.candidates > 1 else self.retrieval
        self.probe = Probe(objective, table, watch, seed) if watch.blocks else None
        self.seed, self.drift = seed, None
        self.handed = -1  # the step that was published last
        earlier = [event["recall@5"] for event in log.events("probe") if "recall@5" in event]
        self.watcher = Watcher(watch, report, max(earlier, default=None))
        self.generation: GenerationLike | None = None
        self.searcher: Searcher | None = None
        self.query_params: Params | None = None
        self.blocked = 0.0  # seconds that steps waited for embedding, building or opening
        self.at_boundaries = 0.0  # seconds of all that happens at step boundaries, copies and probes included
        self.first_wait = 0.0  # seconds until there was an index to begin or to go on with
        self.lately: dict[int, GenerationLike] = {}  # the last two generations by number
        self.opener = Opener(self._tower, report)
        self.together = Together(self.opener, refresher.open) if several() else None
        self.count = Ballot()  # of what all processes said at the boundary before
        self.fresh = True  # nothing was trained since the start or resume
        self.warned: int | None = None  # the generation whose age was complained of
        rows = NamedSharding(mesh, PartitionSpec("data")) if several() else None
        self._embed = jax.jit(objective.embed_queries, out_shardings=rows)
        self._scores = jax.jit(lambda towers, ready: objective.scores(towers, ready), out_shardings=rows)

    @property
    def number(self) -> int | None:
        """The adopted generation's number."""
        return None if self.generation is None else self.generation.number

    def resume(self, step: int, number: int | None) -> None:
        """Goes back to what was adopted before step `step`; what happened at its boundary is still to come."""
        self.refresher.rewind(step - 1)
        agreed(step)  # the others look when the leader has put things in order
        if number is not None:
            find = self.together.find if self.together else self.refresher.open
            self._use(self.opener.now(find(number)))

    def refresh(self, step: int, params: Params, kept: Callable[[], set[int]]) -> None:
        """At the boundary before `step`: publishes where the schedule says so, and adopts the newest generation.

        kept: the generations that kept checkpoints refer to. Raises RetrieverCollapse when the watch is to stop,
        IndexTooOld beyond `max_age` (what was trained so far is sound: save it), NoIndex where there is none to begin
        with and none will come.
        """
        began = time.monotonic()
        first, asynchronous = self.generation is None, self.refresher.asynchronous
        self.refresher.tick(step)
        renew = asynchronous and self.fresh and not first and self._too_old(step, self.generation)  # resumed
        if first or renew or self.refresher.due(step, lambda: self._measure_drift(step, params)):
            self.handed = step
            self.refresher.publish(step, {"retriever": local_copy(params["retriever"])})
        if first or renew:
            self._wait(step)
        opened = self._open(self.refresher.newest(), beside=asynchronous and not (first or self.fresh))
        seconds = time.monotonic() - began
        if first or (asynchronous and self.fresh):
            self.first_wait += seconds
            began = time.monotonic()
        elif not asynchronous:
            self.blocked += seconds
        self.fresh = False
        if opened is not None:
            self._adopt(opened, step, params, kept)
        self.at_boundaries += time.monotonic() - began
        self._check_age(step)

    def facts(self, found: Found, step: int) -> dict[str, float]:
        """What is logged of the index at the update `step` (counted from 0): ages in steps and seconds, time lost."""
        generation = self.lately.get(found.generation, self.generation)
        seconds = max(0.0, time.time() - generation.taken)  # clocks of two machines may differ
        return (
            found.ages(step)
            | generation.document_ages(step)
            | {
                "document_age_seconds": round(seconds, 1),
                "refresh_blocked_seconds": round(self.blocked, 3),
                "refresh_boundary_seconds": round(self.at_boundaries, 3),
                "first_index_seconds": round(self.first_wait, 3),
            }
        )

    def _measure_drift(self, step: int, params: Params) -> float:
        """For schedules that ask for it; 0 while a published snapshot has not become the adopted generation yet."""
        newest = self.refresher.newest()
        unopened = newest is not None and newest.number == self.opener.refused and newest.step >= self.handed
        if self.handed > self.generation.step and not (unopened or self.refresher.status()["hopeless"]):
            return 0.0
        began = time.monotonic()
        if self.drift is None:
            self.drift = Drift(
                self.objective,
                self.retrieval.table,
                self.probe,
                length=self.retrieval.block_lengths[-1],
                seed=self.seed,
            )
        found = self.drift.measure({"retriever": local_copy(params["retriever"])}, self.generation)
        self.blocked += time.monotonic() - began if self.refresher.asynchronous else 0.0  # else counted with the rest
        self.log.event(step, "drift", {"disagreement": round(found, 4), "generation": self.number})
        return found

    def _wait(self, step: int) -> None:
        """Until there is a generation newer than the adopted one and young enough. A synchronous refresher has it."""
        told = time.monotonic()
        while (made := self.refresher.newest()) is None or made.number == self.number or self._too_old(step, made):
            status = self.refresher.status()
            if not self.refresher.asynchronous or status["hopeless"]:
                raise NoIndex(f"no index at step {step}: {status['last_error'] or status}")
            if time.monotonic() - told > 10.0:
                told = time.monotonic()
                self.report(f"waiting for an index: refresher {status['state']}, last error {status['last_error']}")
            time.sleep(PATIENCE)
            self.refresher.tick(step)

    def _open(self, newest: GenerationLike | None, beside: bool) -> Opened | None:
        """The newest generation, opened, or None: it is the adopted one, or not ready yet."""
        if self.together and beside:
            return self.together.open(self.count, self.number)
        if self.together:
            number = agreed(NONE if newest is None else newest.number)
            return None if number == self.number else self._now(number, self.together.find)
        if newest is None or newest.number == self.number:
            return None
        return self.opener.beside(newest) if beside else self._now(newest.number, lambda number: newest)

    def _now(self, number: int, find: Callable[[int], GenerationLike]) -> Opened | None:
        """Opened here. On resume one that some process cannot open is left, as during the steps: there is the
        checkpoint's own. A synchronous refresher adopts what it was to adopt, or nothing goes on."""
        resumed, opened = self.generation is not None and self.refresher.asynchronous, None
        try:
            opened = self.opener.now(find(number))
        except Exception as error:
            if not resumed:
                raise
            self.opener.refuse(number, error)
        return None if resumed and any_of_all(opened is None) else opened

    def _adopt(self, opened: Opened, step: int, params: Params, kept: Callable[[], set[int]]) -> None:
        old, replaced = self.searcher, self.generation
        self._use(opened)
        generation = opened.generation
        self.refresher.adopted(generation, step, kept())
        status = self.refresher.status()
        swap = {
            "generation": generation.number,
            "document_age": step - generation.step,
            **generation.document_ages(step),
            "document_age_seconds": round(max(0.0, time.time() - generation.taken), 3),
            "replaced_age": step - replaced.step if replaced else None,
            "dropped_snapshots": status["dropped_snapshots"],
            **{name: status.get(name) for name in COSTS},
        }
        if self.probe is not None:
            swap |= self._look(step, params, old)
        self.log.event(step, "swap", swap)

    def _use(self, opened: Opened) -> None:
        self.generation, self.searcher, self.query_params = opened
        self.lately = {number: self.lately[number] for number in list(self.lately)[-1:]}  # candidates asked for before
        self.lately[self.generation.number] = self.generation

    def _vectors(self) -> Any:
        return self.generation.vectors()

    def _tower(self, generation: GenerationLike) -> Params | None:
        return replicate(generation.query_params(), self.mesh) if self.query_tower == "generation" else None

    def _too_old(self, step: int, generation: GenerationLike) -> bool:
        return self.refresher.max_age is not None and step - generation.step > self.refresher.max_age

    def _check_age(self, step: int) -> None:
        """Warns once for a generation beyond half of max_age, and raises IndexTooOld beyond all of it."""
        limit, age = self.refresher.max_age, step - self.generation.step
        too_old = self._too_old(step, self.generation)
        if limit is None or 2 * age <= limit or (self.warned == self.number and not too_old):
            return
        status = self.refresher.status()
        text = (
            f"generation {self.number} is {age} steps old at step {step}, max_age is {limit}; refresher "
            f"{status['state']}, last error: {status['last_error'] or 'none'}"
        )
        if too_old:
            raise IndexTooOld(f"{text}. Go on with --resume when the refresher works, or with a larger max_age")
        self.warned = self.number
        self.report(f"WARNING {text}")
        self.log.event(step, "warning", {"text": text})

    def _look(self, step: int, params: Params, old: Searcher | None) -> dict[str, float]:
        """The probe of the new index; how much of the old one's answers it still gives."""
        both = SideBySide(self.searcher, self.searcher if old is None else old)
        values = self.probe.run({"retriever": local_copy(params["retriever"])}, both)
        self.log.event(step, "probe", values | {"generation": self.number})
        if "recall@5" in values:
            self.report(f"probe at step {step}: own-sentence recall@5 {values['recall@5']:.3f}")
        complaint = self.watcher.look(step, values, self.log.last)
        if complaint:
            self.log.event(step, "warning", {"text": complaint})
        return {} if old is None else both.overlap()

    def ask(self, params: Params, batch: Arrays) -> jax.Array:
        """Query vectors [B, E], dispatched; the parameters may be given away right after."""
        towers = self.query_params or {"retriever": params["retriever"]}
        return self._embed(towers, shard_batch(queries_of(batch), self.mesh))

    def answer(self, query_BE: jax.Array, batch: Arrays, step: int) -> Found:
        """The candidates of a batch from the adopted generation; step: the towers that embedded the queries."""
        candidates = self.wide.search(self.searcher, own_rows(query_BE), batch["own_B"])
        asked = self.generation.step if self.query_params else step
        return Found(candidates, self.generation.number, self.generation.step, asked)

    def join(self, params: Params, batch: Arrays, found: Found) -> Arrays:
        """The batch with its packed candidates, as the loss reads it; with `rerank` the towers `params` choose them."""
        candidates = found.candidates
        if self.wide is not self.retrieval:
            # Without answers: nothing is taught yet.
            ready = self._joined(device_arrays(batch), self.wide.retrieved(candidates, self._vectors))
            score_BL = self._scores({"retriever": params["retriever"]}, shard_batch(ready, self.mesh))
            candidates = best_of(candidates, own_rows(score_BL), self.retrieval.k)
        return self._joined(batch, self.retrieval.retrieved(candidates, self._vectors))

    def _joined(self, batch: Arrays, retrieved: Any) -> Arrays:
        return slots_of_all(self.objective.found(batch, retrieved))

    def ballot(self, stop: bool) -> Ballot:
        """What this process has to say at a step boundary."""
        if self.together is None:
            return Ballot(stop)
        newest = self.refresher.newest()
        return Ballot(stop, NONE if newest is None else newest.number, self.together.ballot())
