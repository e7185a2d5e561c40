"""One phase of `realm bench index`, in a process of its own: then the peak of its memory is that of the phase.

`python -m experiments.bench_phases JSON` runs the phase that JSON describes and prints its result as the last line.
The peak is VmHWM of /proc/self/status, which unlike getrusage knows nothing of the parent process; it counts pages of
memory-mapped files as long as they are mapped.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench_vectors import (
    QUERY_NOISE,
    folder_bytes,
    load_hits,
    make_queries,
    save_hits,
    stored_vectors,
    true_hits,
    write_clustered,
)
from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.recall import recall_at_k
from realm.index.scann import PARALLEL_BLOCK, PARALLEL_FROM, Scann, ScannSearcher
from realm.index.sharded import ROWS_A_SHARD, Sharded, ShardedSearcher
from realm.protocols import Hits, Searcher

# Beyond this, Exact and ALSH keep their vectors in bfloat16, as ScaNN does by itself.
FLOAT_BYTES = 4 * 2**30
PHASES = ("build", "cold", "warm", "search", "swap")


def index_of(kind: str, rows: int, dim: int, shards: int | None) -> Any:
    """The index that a kind of the benchmark stands for. Raises KeyError for another name."""
    dtype = "float32" if 4 * rows * dim <= FLOAT_BYTES else "bfloat16"
    exact, alsh = Exact(dtype=dtype), Alsh(dtype=dtype, query_noise=QUERY_NOISE)
    shards = shards or max(2, -(-rows // ROWS_A_SHARD))
    return {
        "exact": exact,
        "scann": Scann(),
        "alsh": alsh,
        "alsh-sign": replace(alsh, variant="sign"),
        "alsh-l2": replace(alsh, variant="l2"),
        "sharded-exact": Sharded(exact, shards),
        "sharded-scann": Sharded(Scann(), shards),
        "sharded-alsh": Sharded(alsh, shards),
    }[kind]


def memory() -> dict[str, int]:
    """Bytes of this process: rss now, its anonymous part, and the peak since the start or the last forget_peak."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    kilobytes = {name: int(value.split()[0]) for name, value in (each.split(":") for each in lines if " kB" in each)}
    return {"rss": kilobytes["VmRSS"] << 10, "anonymous": kilobytes["RssAnon"] << 10, "peak": kilobytes["VmHWM"] << 10}


def forget_peak() -> None:
    """Lets the peak begin anew at what is used now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def evict(*folders: Path) -> None:
    """Puts the folders' files out of the page cache, so that the next reader reads the disk."""
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    done = work()
    return done, time.perf_counter() - start


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """The phase of `spec`: its numbers, with the memory it took."""
    before = memory()["rss"]
    work, phase = Path(spec["work"]), spec["phase"]
    if phase == "vectors":
        result = _vectors(spec, work)
    elif phase == "truth":
        vectors = stored_vectors(Path(spec["vectors"]))
        query_QE = _queries(spec, vectors)
        np.save(work / "queries.npy", query_QE)
        hits, seconds = timed(lambda: true_hits(vectors, query_QE, spec["k"]))
        save_hits(work / "truth.npz", hits)
        result = {"seconds": seconds, "queries": len(query_QE)}
    else:
        result = _index_phase(spec, work, phase)
    return result | {"rss_before": before} | {key: result.get(key, value) for key, value in memory().items()}


def _vectors(spec: dict[str, Any], work: Path) -> dict[str, Any]:
    folder = Path(spec["vectors"])
    seconds = None
    if folder == work / "vectors":
        _, seconds = timed(lambda: write_clustered(folder, spec["rows"], spec["dim"], spec["seed"]))
    vectors = stored_vectors(folder)
    size = sum((folder / name).stat().st_size for name in vectors.names)
    facts = {"rows": vectors.rows, "dim": vectors.dim, "dtype": vectors.dtype, "bytes": size}
    return facts | {"seconds": seconds}


def _queries(spec: dict[str, Any], vectors: Any) -> np.ndarray:
    if spec["query_vectors"] is None:
        return make_queries(vectors, spec["queries"], spec["seed"])
    return np.load(spec["query_vectors"], allow_pickle=False)[: spec["queries"]].astype(np.float32)


def _index_phase(spec: dict[str, Any], work: Path, phase: str) -> dict[str, Any]:
    vectors = stored_vectors(Path(spec["vectors"]))
    index = index_of(spec["kind"], vectors.rows, vectors.dim, spec["shards"])
    folder = work / spec["kind"]
    query_QE, k = np.load(work / "queries.npy"), spec["k"]
    if phase == "build":
        if hasattr(index, "build_into"):  # as a refresher builds it: saving is a part of building
            settings, seconds = timed(lambda: index.build_into(folder, vectors, vectors.rows))
            built = saved = memory()
            seconds_save = 0.0
        else:
            searcher, seconds = timed(lambda: index.build(vectors, rows=vectors.rows))
            built = memory()
            forget_peak()
            _, seconds_save = timed(lambda: searcher.save(folder))
            saved, settings = memory(), searcher.settings()
        return {
            "seconds": seconds,
            "seconds_save": seconds_save,
            "peak": built["peak"],
            "peak_save": saved["peak"],
            "bytes": folder_bytes(folder),
            "settings": settings,
        }
    if phase == "cold":
        evict(folder, Path(spec["vectors"]))
    before = memory()["rss"]
    searcher, seconds = timed(lambda: index.load(folder, vectors))
    result = {"seconds": seconds, "bytes_loaded": memory()["rss"] - before}
    _, result["seconds_first_search"] = timed(lambda: searcher.search(query_QE[: spec["batch"]], k))
    if phase == "search":
        result |= _searched(spec, searcher, query_QE, load_hits(work / "truth.npz"))
    if phase == "swap":  # the next generation is opened while searches still go to this one
        following = index.load(folder, vectors)
        for each in (searcher, following):
            each.search(query_QE[: spec["batch"]], k)
    return result


def _searched(spec: dict[str, Any], searcher: Searcher, query_QE: np.ndarray, truth: Hits) -> dict[str, Any]:
    k, batch, seconds = spec["k"], min(spec["batch"], len(query_QE)), spec["seconds"]
    result = _point(searcher, query_QE, truth, k, batch, seconds)
    result["threads"] = len(os.sched_getaffinity(0))
    result["curve"] = []
    for share in spec["leaf_shares"]:
        fewer = with_leaves(searcher, share)
        if fewer is not None:
            point = _point(fewer, query_QE, truth, k, batch, seconds)
            result["curve"].append({"share": share} | point)
    if isinstance(searcher, ScannSearcher):
        result["raw"] = {str(size): overhead(searcher, query_QE[:size], k, seconds) for size in {1, batch}}
    return result


def _point(
    searcher: Searcher, query_QE: np.ndarray, truth: Hits, k: int, batch: int, seconds: float
) -> dict[str, float]:
    """Recall and queries a second, in batches and one by one; the median call counts."""
    starts = range(0, len(query_QE) - batch + 1, batch)
    parts = [searcher.search(query_QE[start : start + batch], k) for start in range(0, len(query_QE), batch)]
    found = Hits(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    batched = _median_call([lambda s=s: searcher.search(query_QE[s : s + batch], k) for s in starts], seconds)
    single = _median_call([lambda q=q: searcher.search(query_QE[q : q + 1], k) for q in range(len(query_QE))], seconds)
    return {"recall": recall_at_k(found, truth), "per_second": batch / batched, "per_second_one": 1 / single}


def _median_call(calls: list[Callable[[], Any]], seconds: float) -> float:
    """Seconds of the median call, in turn for about `seconds`, after one call that warms up."""
    calls[0]()
    took, started = [], time.perf_counter()
    while len(took) < 5 or time.perf_counter() - started < seconds:
        took.append(timed(calls[len(took) % len(calls)])[1])
    return statistics.median(took)


def with_leaves(searcher: Searcher, share: float) -> Searcher | None:
    """The same ScaNN index, whole or in parts, searching this share of its leaves; None where it has none."""
    if isinstance(searcher, ShardedSearcher):
        parts = tuple(with_leaves(part, share) for part in searcher.parts)
        return None if None in parts else replace(searcher, parts=parts)
    if not isinstance(searcher, ScannSearcher) or not searcher.chosen.leaves:
        return None
    leaves = max(1, round(share * searcher.chosen.leaves))
    return replace(searcher, chosen=replace(searcher.chosen, leaves_to_search=leaves))


def overhead(searcher: ScannSearcher, query_BE: np.ndarray, k: int, seconds: float) -> dict[str, float]:
    """Our search and scann's own on the same searcher with the same settings and threads, call by call in turn."""
    chosen, raw = searcher.chosen, searcher.searcher
    wanted = {
        "final_num_neighbors": k,
        "leaves_to_search": chosen.leaves_to_search or None,
        "pre_reorder_num_neighbors": max(chosen.reorder, 2 * k) if chosen.reorder else None,
    }
    call = raw.search_batched
    if searcher.threads > 1 and len(query_BE) >= PARALLEL_FROM:
        call = raw.search_batched_parallel
        wanted["batch_size"] = min(PARALLEL_BLOCK, -(-len(query_BE) // searcher.threads))
    ours, theirs, started = [], [], time.perf_counter()
    for each in (lambda: call(query_BE, **wanted), lambda: searcher.search(query_BE, k)):
        each()
    while len(ours) < 20 or time.perf_counter() - started < 2 * seconds:
        theirs.append(timed(lambda: call(query_BE, **wanted))[1])
        ours.append(timed(lambda: searcher.search(query_BE, k))[1])
    raw_seconds, our_seconds = statistics.median(theirs), statistics.median(ours)
    rates = {"per_second": len(query_BE) / raw_seconds, "ours_per_second": len(query_BE) / our_seconds}
    return rates | {"overhead": our_seconds / raw_seconds - 1, "calls": len(ours)}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
