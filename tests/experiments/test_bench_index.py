"""`realm bench index`: what it measures on, its phases, going on after a stop, and what it prints."""

import json

import numpy as np
import pytest

from experiments import bench_index as room
from experiments import bench_phases
from experiments.bench_index import BenchError, BenchIndex, bench_index
from experiments.bench_vectors import clustered, make_queries, stored_vectors, true_hits, write_clustered
from realm.index.exact import Exact
from realm.index.scann import Scann
from realm.index.sharded import Sharded


def bench(tmp_path, **changed):
    fields = {"rows": 200, "dim": 8, "queries": 20, "batch": 16, "kinds": ("exact", "scann"), "seconds": 0.01}
    return BenchIndex(**(fields | {"work": tmp_path / "work"} | changed))


@pytest.fixture
def here(monkeypatch):
    """Phases in this process, for speed; the list of those that ran."""
    ran = []

    def phase(spec, title, report):
        ran.append(title)
        report(title)
        return bench_phases.run(spec) | {"seconds_process": 0.0}

    monkeypatch.setattr(room, "_phase", phase)
    return ran


def test_vectors_are_clustered_and_follow_from_the_seed():
    one, two = (np.concatenate(list(clustered(70_000, 4, seed))) for seed in (0, 1))
    np.testing.assert_array_equal(one, np.concatenate(list(clustered(70_000, 4, 0))))
    assert one.shape == (70_000, 4) and one.dtype == np.float32 and not np.array_equal(one, two)
    vector_NE = np.concatenate(list(clustered(2000, 32, 0)))
    vector_NE /= np.linalg.norm(vector_NE, axis=1, keepdims=True)
    cosine_NN = vector_NE @ vector_NE.T - 2 * np.eye(2000)
    # 45 centres: noise of half a centre's size leaves a cosine near 0.8 within a cluster.
    assert np.median(cosine_NN.max(axis=1)) > 0.75 and abs(np.median(cosine_NN)) < 0.1


def test_truth_is_that_of_one_exact_index_and_queries_are_near_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.bench_vectors.SHARD_ROWS", 128)
    vectors = write_clustered(tmp_path, 500, 8, 0)
    assert len(vectors) == 4 and stored_vectors(tmp_path) == vectors
    query_QE = make_queries(vectors, 30, 0)
    whole = Exact().build(vectors).search(query_QE, 8)
    for left, right in zip(true_hits(vectors, query_QE, 8), whole, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (whole.score_BK[:, 0] > 0.5 * np.square(query_QE).sum(axis=1)).all()


def test_every_phase_of_every_kind_gives_its_numbers(tmp_path, here):
    kinds = ("exact", "scann", "alsh", "sharded-scann", "sharded-exact")
    results = bench_index(bench(tmp_path, kinds=kinds, json=tmp_path / "answer.json"))
    assert json.loads((tmp_path / "answer.json").read_text()) == json.loads(json.dumps(results))
    for kind in kinds:
        done = results["kinds"][kind]
        assert set(done) == set(bench_phases.PHASES)
        assert done["search"]["recall"] == 1 and done["search"]["per_second"] > 0
        assert all(done[phase]["peak"] >= done[phase]["anonymous"] > 0 for phase in done)
    assert results["kinds"]["scann"]["build"]["bytes"] >= 200 * 8 * 4
    assert set(results["kinds"]["scann"]["search"]["raw"]) == {"1", "16"}
    lines = room.overhead_lines(results, kinds)
    assert [line.split(":")[0] for line in lines] == ["scann, batch 1", "scann, batch 16"]


def test_a_second_call_goes_on_and_a_changed_one_is_refused(tmp_path, here, capsys):
    bench_index(bench(tmp_path, kinds=("exact",)))
    assert here == ["vectors", "truth"] + [f"exact {phase}" for phase in bench_phases.PHASES]
    here.clear()
    results = bench_index(bench(tmp_path))
    assert here == [f"scann {phase}" for phase in bench_phases.PHASES]
    result = tmp_path / "work" / "result.json"
    results["kinds"]["exact"]["search"] = {"error": "killed by signal 9"}
    result.write_text(json.dumps(results))
    here.clear()
    bench_index(bench(tmp_path))
    assert here == ["exact search"]
    with pytest.raises(BenchError, match=r"of rows 200, wanted 300: give another --work"):
        bench_index(bench(tmp_path, rows=300))
    printed = capsys.readouterr().out
    assert "200 x 8 vectors, bfloat16, 17 bytes a row; 20 queries" in printed and "overhead" in printed


def test_a_child_that_fails_is_told_and_ends_its_kind(tmp_path):
    said = []
    spec = {"work": str(tmp_path), "kind": None, "phase": "vectors", "vectors": str(tmp_path / "nothing")}
    assert "FileNotFoundError" in room._phase(spec, "vectors", said.append)["error"] or "GenerationCorrupt" in said[0]
    assert "FAILED" in said[0]
    with pytest.raises(BenchError, match="^vectors: exit 1"):
        bench_index(bench(tmp_path, vectors=tmp_path / "nothing"), said.append)


def test_a_child_measures_its_own_memory_only(tmp_path):
    held = np.ones(300 * 2**20, np.uint8)  # in this process
    spec = {"work": str(tmp_path), "kind": None, "phase": "vectors", "vectors": str(tmp_path / "vectors")}
    result = room._phase(spec | {"rows": 50, "dim": 4, "seed": 0}, "vectors", lambda line: None)
    assert result["rows"] == 50 and result["peak"] < len(held)


def test_fewer_leaves_are_searched_whole_and_in_parts():
    vector_NE = np.concatenate(list(clustered(600, 8, 0)))
    tree = Scann(leaves=10, leaves_to_search=10)
    for index in (tree, Sharded(tree, 2)):
        fewer = bench_phases.with_leaves(index.build([vector_NE]), 0.2)
        parts = getattr(fewer, "parts", (fewer,))
        assert {part.chosen.leaves_to_search for part in parts} == {2}
    assert bench_phases.with_leaves(Exact().build([vector_NE]), 0.2) is None
    assert bench_phases.with_leaves(Sharded(Scann(), 2).build([vector_NE]), 0.2) is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 0}, "--rows is 0"),
        ({"kinds": ("faiss",)}, "no kind 'faiss'"),
        ({"leaf_shares": (2.0,)}, "leaf-shares"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, changed, message):
    with pytest.raises(BenchError, match=message):
        bench_index(bench(tmp_path, **changed))
