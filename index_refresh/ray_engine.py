"""The `ray` engine: the nodes of a Ray cluster embed shards side by side, and one of them builds the index.

A child of the trainer drives it, as in the `process` engine: a cluster that falls to pieces takes no trainer with it.
Embedding is done by actors with resources of their own, each one shard at a time; building by another. When a node dies
Ray starts its actors elsewhere and calls again what they had not finished; where there is no room for them, an actor
that has nothing left to do takes over the shard. Files go through the run folder, which all nodes must see.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from index_refresh import files
from index_refresh.draft import Draft
from index_refresh.embed import Shards, Tick, check_space, finished_shards
from index_refresh.external import TrainerSide
from index_refresh.process import Child
from index_refresh.ray_crew import Builder, Crew
from index_refresh.ray_hand import PIECES
from index_refresh.recipe import Recipe, Table
from index_refresh.schedule import Schedule
from index_refresh.sync import check_limits, silent
from index_refresh.vectors import StoredVectors, shard_name
from realm.protocols import Params, Report

MISSING = (
    "found no package ray; type `pip install 'realm-pretraining[ray]'`, or choose engine process or external, which "
    "need no other package"
)


class RayMissing(RuntimeError):
    """The ray package cannot be imported."""


class ClusterError(RuntimeError):
    """The cluster could not be reached, or lost what it was doing; tried again, it may work."""


@dataclass(frozen=True)
class Ray:
    """Embeds and builds on a Ray cluster.

    address: as `ray.init` takes it: `auto` for the cluster this host belongs to, `host:port` of its head, `local` for
    one of its own. actors: how many embed at a time. shard_cpus, shard_gpus, shard_resources: what each of them gets of
    its node (`{"TPU": 4}`); build_cpus, build_resources: what the one that builds gets. hang_seconds: no actor makes
    progress, or burns processor time, for so long: the driver is started again. restart_seconds, poll_seconds, keep,
    max_age: as for Process.
    """

    address: str = "auto"
    actors: int = 2
    shard_cpus: float = 1.0
    shard_gpus: float = 0.0
    shard_resources: dict[str, float] = field(default_factory=dict)
    build_cpus: float = 1.0
    build_resources: dict[str, float] = field(default_factory=dict)
    keep: int = 2
    max_age: int | None = None
    hang_seconds: float = 300.0
    restart_seconds: float = 1.0
    poll_seconds: float = 0.25
    device: ClassVar[str] = "cpu"  # of the driver, which embeds nothing
    cores: ClassVar[None] = None

    def __post_init__(self) -> None:
        check_limits(self.keep, self.max_age)
        if self.actors < 1 or min(self.shard_cpus, self.shard_gpus, self.build_cpus) < 0:
            raise ValueError(f"found {self}, wanted 1 actor or more, and no resource below 0")
        if min(self.hang_seconds, self.restart_seconds, self.poll_seconds) <= 0:
            raise ValueError(f"found {self}, wanted seconds above 0")

    def start(self, recipe: Recipe, schedule: Schedule, folder: str | Path, *, report: Report = silent) -> TrainerSide:
        """Opens a run folder, new or killed; the driver starts with the first snapshot.

        Raises RayMissing, RefresherTaken where another refresher works on the folder, ScheduleError for a schedule that
        only `sync` can keep.
        """
        if find_spec("ray") is None:
            raise RayMissing(MISSING)
        folder = Path(folder).resolve()  # the nodes have working folders of their own
        child = Child(self, recipe, folder, report, OnRay(self))
        try:
            return TrainerSide(self, recipe, schedule, folder, report, child, "ray")
        except BaseException:
            child.end()
            raise


class OnRay:
    """Hands on a cluster, in the driver; see `build.Hands`."""

    def __init__(self, config: Ray) -> None:
        self.config = config
        self.most: dict[str, int | None] = {}

    def embedding(
        self, recipe: Recipe, table: Table, params: Params, draft: Draft, tick: Tick
    ) -> Generator[int, None, Shards]:
        """As `embed.embedding`; each finished shard counts as one batch. Raises ClusterError too."""
        self.most = {}
        shards = finished_shards(recipe, table, draft)
        starts = range(0, table.indexed, recipe.shard_rows)
        missing = [ordinal for ordinal in range(len(starts)) if shard_name(ordinal) not in shards]
        rest = sum(shard["bytes"] for shard in shards.values())

        def rows() -> int:
            return sum(shard["rows"] for shard in shards.values())

        with self._cluster() as ray, Crew(ray, self.config, recipe, draft) as crew:
            dim = crew.width()
            check_space(recipe, table, dim, draft, rest)
            spans = {shard_name(n): (starts[n], min(starts[n] + recipe.shard_rows, table.indexed)) for n in missing}
            for shard, peaks in crew.embed(spans, lambda done: tick(rows() + done, table.indexed)):
                shards[shard["file"]] = shard
                self._note(peaks)
                files.write_json(draft.progress, {"identity": draft.identity, "shards": shards})
                tick(rows(), table.indexed)
                yield 1
        return [shards[shard_name(ordinal)] for ordinal in range(len(starts))], dim

    def build(
        self, recipe: Recipe, folder: Path, vectors: StoredVectors, alive: Callable[[], None]
    ) -> tuple[dict[str, Any], float]:
        """As `build.build`. Raises ClusterError too."""
        with self._cluster() as ray:
            work = (str(folder), vectors.names, vectors.rows, vectors.dim)
            settings, seconds, peaks = Builder(ray, self.config, recipe, folder.parent).build(work, alive)
        for left in folder.parent.glob(f"{PIECES}*"):  # of builders that died
            files.remove_tree(left)
        self._note(peaks)
        return settings, seconds

    def peaks(self) -> dict[str, int | None]:
        """The most that any actor has held."""
        return {name: self.most.get(name) for name in ("peak_host_bytes", "peak_device_bytes")}

    def _note(self, peaks: dict[str, int | None]) -> None:
        for name, value in peaks.items():
            self.most[name] = max(filter(None, (value, self.most.get(name))), default=None)

    @contextmanager
    def _cluster(self) -> Iterator[Any]:
        import ray

        try:
            if not ray.is_initialized():
                handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
                ray.init(address=self.config.address, log_to_driver=False, configure_logging=False)
                for number, handler in handlers.items():  # Ray's own would end the driver without a last heartbeat
                    signal.signal(number, handler)
            yield ray
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # what the actor itself raised
        except (ray.exceptions.RayError, ConnectionError) as error:
            ray.shutdown()
            raise ClusterError(f"Ray cluster {self.config.address}: {type(error).__name__}: {error}") from error
