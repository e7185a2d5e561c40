"""ALSH: collisions happen as the closed forms say, a target recall is reached, and memory is bounded."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.index.alsh import Alsh
from realm.index.alsh_hash import Hashes, l2_collision, sign_collision, simple_collision
from realm.index.alsh_scan import kth_bound
from realm.index.alsh_settings import choose_functions, family, needed_buckets
from realm.index.alsh_tables import Tables, most_collided, probe_template
from realm.index.exact import Exact
from realm.index.recall import recall_at_k
from realm.index.vectors import IndexBuildError, IndexLoadError, QueryError
from realm.protocols import Hits
from tests.index.index_kinds import assert_sound, brute_force, clustered

FORMS = {"l2": l2_collision, "sign": sign_collision, "simple": lambda ip, norm, *parameters: simple_collision(ip)}
NO_FLIP = np.zeros((1, 1), bool)


def collisions(transforms, vector_NE, query_BE, mean_E, scale, draws=40, tables=200):
    """The share of drawn functions under which each query and row collide, [B, N]."""
    total_BN = 0
    for seed in range(draws):
        bits = 24 if transforms.variant == "l2" else 1
        hashes = Hashes.draw(transforms, mean_E, scale, tables, 1, bits, seed)
        total_BN += (hashes.query_buckets(query_BE, NO_FLIP)[:, None, :, 0] == hashes.row_buckets(vector_NE)).mean(2)
    return total_BN / draws


@pytest.mark.parametrize("variant", FORMS)
def test_rows_and_queries_collide_as_often_as_the_closed_form_says(variant):
    """Through the transforms, the hash functions and the buckets of both sides."""
    rng = np.random.default_rng(0)
    vector_NE, query_BE = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=(5, 6)).astype(np.float32)
    vector_NE *= rng.uniform(0.2, 1, (40, 1)).astype(np.float32)
    vector_NE[:5] = 3 * query_BE * rng.uniform(0.3, 1, (5, 1))  # near ones too
    mean_E = vector_NE.mean(0)
    transforms = family(variant, None, None, None)
    scale = transforms.u / np.linalg.norm(vector_NE - mean_E, axis=1).max()
    x_NE = (vector_NE - mean_E) * scale
    ip_BN = query_BE @ x_NE.T / np.linalg.norm(query_BE, axis=1, keepdims=True)
    wanted_BN = transforms.collision(ip_BN, np.broadcast_to(np.linalg.norm(x_NE, axis=1), ip_BN.shape))
    assert np.ptp(wanted_BN) > 0.2
    found_BN = collisions(transforms, vector_NE, query_BE, mean_E, scale)
    # 8,000 functions: a standard error of 0.0056 at most.
    np.testing.assert_allclose(found_BN, wanted_BN, atol=0.025)


@settings(deadline=None, max_examples=50)
@given(
    st.sampled_from(sorted(FORMS)), st.integers(1, 4), st.floats(0.5, 5), st.floats(0.05, 0.95), st.floats(0.01, 0.99)
)
def test_collisions_grow_with_the_inner_product(variant, m, r, norm, share):
    """At one length of x; how far two lengths of one inner product differ is the papers' vanishing term."""
    parameters = {"l2": (m, r), "sign": (m,), "simple": ()}[variant]
    ip = np.linspace(-norm, norm, 101)
    probability = FORMS[variant](ip, np.full_like(ip, norm), *parameters)
    assert (np.diff(probability) > 0).all() and (probability > 0).all() and (probability <= 1).all()
    longer, shorter = (FORMS[variant](share * 0.3, each, 4, *parameters[1:]) for each in (0.8, 0.3))
    assert abs(longer - shorter) < 0.02


def test_closed_forms_by_hand():
    np.testing.assert_allclose(simple_collision([1, 0, -1]), [1, 0.5, 0])
    # d = 1: m = 2, ip = 1/4, |x| vanishing; F_r(1) with r = 1 is 0.3687 (Datar et al. 2004).
    np.testing.assert_allclose(l2_collision(0.25, 0.0, m=2, r=1.0), 0.36874, atol=1e-5)
    np.testing.assert_allclose(sign_collision(0.25, 0.0, m=1), 2 / 3)  # arccos(1/2) = pi/3


def near_rows(vector_NE, count, seed=1):
    rng = np.random.default_rng(seed)
    noise_BE = 0.2 * rng.normal(size=(count, vector_NE.shape[1]))
    return vector_NE[rng.integers(0, len(vector_NE), count)] + noise_BE.astype(np.float32)


@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (60_000, Alsh(target_recall=0.9)),
        (15_000, Alsh("sign", target_recall=0.8, functions=11)),
        (15_000, Alsh("l2", target_recall=0.8, functions=10)),
    ],
    ids=["simple", "sign", "l2"],
)
def test_the_target_recall_is_reached_by_other_queries(rows, index):
    vector_NE = clustered(rows, 32, centres=round(rows**0.5))
    query_BE = near_rows(vector_NE, 300)
    searcher = index.build([vector_NE], rows=rows)
    assert searcher.chosen.functions and searcher.recall_on_sample >= index.target_recall
    exact = Exact().build([vector_NE]).search(query_BE, 8)
    assert recall_at_k(searcher.search(query_BE, 8), exact) >= index.target_recall
    scored = sum(map(len, searcher._candidates(query_BE, searcher.chosen.scored, 8))) / len(query_BE)
    assert scored < rows / 4, "nearly every row was scored"


def test_a_higher_target_costs_more_and_finds_more():
    vector_NE = clustered(5000, 16)
    low, high = (Alsh(target_recall=target, functions=8, tables=4).build([vector_NE]) for target in (0.3, 0.95))
    assert low.chosen.probes < high.chosen.probes and low.recall_on_sample < high.recall_on_sample
    assert high.recall_on_sample >= 0.95


def test_a_target_out_of_reach_is_said(caplog):
    searcher = Alsh(target_recall=0.99, functions=10, tables=1, probes=1).build([clustered(2000, 16)])
    assert searcher.recall_on_sample < 0.9 and "wanted 0.99" in caplog.text


def test_what_is_common_to_all_rows_does_not_matter():
    vector_NE = clustered(3000, 16)
    plain, moved = (Alsh(functions=7, tables=4, probes=4).build([vector_NE + np.float32(each)]) for each in (0, 50))
    same_NL = plain.hashes.row_buckets(vector_NE) == moved.hashes.row_buckets(vector_NE + np.float32(50))
    assert same_NL.mean() > 0.999


@pytest.mark.parametrize("variant", FORMS)
def test_the_seed_decides_everything(variant):
    vector_NE, index = clustered(2000, 16), Alsh(variant, functions=6, tables=3, probes=2)
    one, two, other = (replace(index, seed=seed).build([vector_NE]) for seed in (0, 0, 1))
    for name in ("row_LN", "start_LS"):
        np.testing.assert_array_equal(getattr(one.tables, name), getattr(two.tables, name))
    assert one.settings() == two.settings()
    assert not np.array_equal(one.tables.row_LN, other.tables.row_LN)


@pytest.mark.parametrize("variant", FORMS)
def test_every_row_is_in_the_bucket_it_hashes_to(variant):
    vector_NE = clustered(500, 8)
    searcher = Alsh(variant, functions=4, tables=3, probes=1).build([vector_NE])
    bucket_NL = searcher.hashes.row_buckets(vector_NE)
    for table, (row_N, start_S) in enumerate(zip(searcher.tables.row_LN, searcher.tables.start_LS, strict=True)):
        for bucket, (start, stop) in enumerate(zip(start_S, start_S[1:], strict=False)):
            np.testing.assert_array_equal(row_N[start:stop], np.flatnonzero(bucket_NL[:, table] == bucket))


def test_where_too_few_rows_collide_columns_are_invalid():
    vector_NE = clustered(700, 24)
    hits = Alsh(functions=10, tables=1, probes=1).build([vector_NE]).search(-vector_NE[:50], 8)
    assert_sound(hits, -vector_NE[:50], vector_NE, 8)
    assert not hits.valid_BK.all()


def test_few_rows_are_all_scored_and_many_are_hashed():
    near_QW, far_QR = np.full((4, 8), 0.75), np.full((4, 100), 0.5)
    assert choose_functions(near_QW, far_QR, 1000, 0.9, 20) == 0
    few, many = (choose_functions(near_QW, far_QR, rows, 0.9, 24) for rows in (10**5, 10**7))
    assert 0 < few < many
    assert choose_functions(far_QR, far_QR, 10**5, 0.9, 20) == 0, "hits that hash like any row"
    assert Alsh().build([clustered(300, 8)]).settings()["functions"] == 0


@pytest.mark.parametrize("hit", [0.5, 0.02, 1.0])
def test_so_many_buckets_reach_the_target(hit):
    buckets = needed_buckets(np.array([hit]), 0.9)
    assert 1 - (1 - hit) ** buckets >= 0.9 and (buckets == 1 or 1 - (1 - hit) ** (buckets / 1.06) < 0.9)
    assert needed_buckets(np.zeros(3), 0.9) == float("inf")


@pytest.mark.parametrize(("functions", "probes"), [(1, 1), (3, 8), (12, 64), (14, 1024)])
def test_probes_are_different_and_the_likeliest_come_first(functions, probes):
    flip_TP = probe_template(functions, probes)
    assert len({tuple(each) for each in flip_TP.tolist()}) == len(flip_TP) == probes
    assert not flip_TP[0].any()
    assert probes == 1 or (flip_TP[1].sum() == 1 and flip_TP[1, 0])


def test_more_probes_look_at_other_buckets_and_keep_the_first():
    searcher = Alsh(functions=6, tables=5, probes=16).build([clustered(400, 8)])
    query_BE = clustered(7, 8, seed=3)
    bucket_BLT = searcher.buckets(query_BE)
    assert all(len(set(each)) == 16 for each in bucket_BLT.reshape(-1, 16).tolist())
    np.testing.assert_array_equal(bucket_BLT[:, :, :1], searcher.hashes.query_buckets(query_BE, NO_FLIP))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 12), max_size=40), st.integers(1, 15), st.sampled_from([13, 10**6]))
def test_those_that_collide_most_often_are_kept(collided, most, rows):
    """Counted with a counter a row, and, where there are very many rows, by sorting."""
    wanted = sorted(Counter(collided).items(), key=lambda each: (-each[1], each[0]))[:most]
    kept = most_collided(np.array(collided, np.int32), most, rows)
    assert kept.tolist() == sorted(row for row, _ in wanted)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**16), st.integers(1, 700), st.integers(1, 9), st.sampled_from([1, 8, 200, 800]))
def test_scoring_every_row_is_exact(seed, rows, dim, k):
    rng = np.random.default_rng(seed)
    vector_NE, query_BE = (rng.integers(-2, 3, (n, dim)).astype(np.float32) for n in (rows, 3))
    hits = Alsh(functions=0).build([vector_NE]).search(query_BE, k)
    for left, right in zip(hits, brute_force(query_BE, vector_NE, k), strict=True):
        np.testing.assert_array_equal(left, right)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**16), st.integers(1, 900), st.integers(1, 40))
def test_the_bound_of_the_k_best_lets_all_of_them_pass(seed, columns, k):
    score_BN = np.random.default_rng(seed).normal(size=(3, columns))
    bound_B = kth_bound(score_BN, k)
    passed_B = (score_BN >= bound_B[:, None]).sum(axis=1)
    assert (passed_B >= min(k, columns)).all()
    assert columns < 4 * k or (passed_B < max(4 * k, columns / 4)).all()


def test_copies_of_one_row_tie_in_row_order_over_chunks():
    """With numbers that round: a matrix product alone would give some copies another last bit."""
    rng = np.random.default_rng(0)
    vector_NE = np.tile(rng.normal(size=(1, 131)).astype(np.float32), (20_000, 1))
    vector_NE[:50] -= 1
    query_BE = vector_NE[-1:] + rng.normal(size=(3, 131)).astype(np.float32) / 10
    hits = Alsh(functions=0).build([vector_NE]).search(query_BE, 20)
    np.testing.assert_array_equal(hits.id_BK, np.tile(np.arange(50, 70), (3, 1)))


def test_equal_rows_never_make_more_candidates_than_rows():
    vector_NE = np.ones((3000, 8), np.float32)
    searcher = Alsh(functions=4, tables=16, probes=16).build([vector_NE])
    assert all(len(searcher.tables.candidates(each, 3000)) <= 3000 for each in searcher.buckets(vector_NE[:3]))
    np.testing.assert_array_equal(searcher.search(vector_NE[:1], 5).id_BK, [[0, 1, 2, 3, 4]])


def test_tables_hold_four_bytes_a_row():
    tables = Alsh(functions=5, tables=3).build([clustered(1000, 8)]).tables
    assert isinstance(tables, Tables) and tables.row_LN.nbytes == 3 * 1000 * 4
    assert tables.start_LS.nbytes == 3 * (2**5 + 1) * 4


def test_bfloat16_halves_the_vectors_and_rounds_them_only(tmp_path):
    vector_NE, query_BE = clustered(700, 24), clustered(20, 24, seed=5)
    searcher = Alsh(functions=4, tables=8, dtype="bfloat16").build([vector_NE])
    assert searcher.vector_NE.nbytes == vector_NE.nbytes / 2
    hits = searcher.search(query_BE, 8)
    assert_sound(hits, query_BE, vector_NE, 8, 0.03)
    rounded_NE = searcher.vector_NE.astype(np.float32)
    for left, right in zip(hits, Alsh(functions=4, tables=8).build([rounded_NE]).search(query_BE, 8), strict=True):
        np.testing.assert_array_equal(left, right)
    searcher.save(tmp_path)
    loaded = Alsh(functions=4, tables=8, dtype="bfloat16").load(tmp_path)
    np.testing.assert_array_equal(loaded.search(query_BE, 8).id_BK, hits.id_BK)


def test_a_loaded_index_is_a_memory_map_and_only_search_settings_change(tmp_path):
    vector_NE = clustered(1500, 16)
    Alsh(functions=8, tables=2, probes=1, scored=20).build([vector_NE]).save(tmp_path)
    loaded = Alsh(probes=64, scored=1500).load(tmp_path)
    assert isinstance(loaded.vector_NE, np.memmap) and isinstance(loaded.tables.row_LN, np.memmap)
    assert (loaded.chosen.probes, loaded.chosen.scored, loaded.chosen.functions) == (64, 1500, 8)
    exact = Exact().build([vector_NE]).search(vector_NE[:50], 8)
    few, many = (Alsh(probes=probes).load(tmp_path).search(vector_NE[:50], 8) for probes in (None, 64))
    assert recall_at_k(few, exact) < recall_at_k(many, exact)
    for changed, message in (
        ({"functions": 9}, "functions 8, wanted 9"),
        ({"variant": "sign"}, "variant simple, wanted sign"),
        ({"target_recall": 0.5}, "target_recall 0.9, wanted 0.5"),
        ({"seed": 3}, "seed 0, wanted 3"),
    ):
        with pytest.raises(IndexLoadError, match=message):
            Alsh(**changed).load(tmp_path)


def test_what_it_was_built_with_loads_it(tmp_path):
    vector_NE = clustered(300, 8)
    for number, index in enumerate((Alsh(tables=8), Alsh(tables=8, functions=4), Alsh("l2", functions=4))):
        index.build([vector_NE]).save(tmp_path / str(number))
        assert index.load(tmp_path / str(number)).search(vector_NE[:3], 2).valid_BK.all()
    assert Alsh("l2", m=3, u=0.83, r=2.5).load(tmp_path / "2").config == Alsh("l2", functions=4)
    with pytest.raises(IndexLoadError, match="m 3, wanted 4"):
        Alsh("l2", m=4).load(tmp_path / "2")


def test_damaged_files_are_refused(tmp_path):
    Alsh(functions=4, tables=2).build([clustered(60, 8)]).save(tmp_path)
    np.save(tmp_path / "row_LN.npy", np.zeros((2, 59), np.int32))
    with pytest.raises(IndexLoadError, match=r"row_LN.npy holds int32 \(2, 59\), wanted int32 \(2, 60\)"):
        Alsh().load(tmp_path)
    (tmp_path / "vectors.npy").write_bytes(b"")
    with pytest.raises(IndexLoadError, match="vectors.npy cannot be read"):
        Alsh().load(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"variant": "cosine"}, "'cosine', wanted one of"),
        ({"u": 0.5}, "no m and no u"),
        ({"variant": "sign", "r": 1.0}, "no m and no u|width r"),
        ({"variant": "l2", "u": 1.0}, "0 < u < 1"),
        ({"functions": 40}, "at most 24 signs"),
        ({"tables": 0}, "tables is 0"),
        ({"probes": 5000}, "probes is 5000, wanted 1 to 1024"),
        ({"target_recall": 1.0}, "target_recall is 1.0"),
        ({"query_noise": -0.1}, "query_noise is -0.1"),
        ({"dtype": "int8"}, "'int8'"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(IndexBuildError, match=message):
        Alsh(**given)


def test_it_is_tuned_for_queries_that_lie_beside_their_rows():
    vector_NE = clustered(4000, 16, centres=60)
    rng = np.random.default_rng(5)
    spread = np.sqrt(np.square(vector_NE - vector_NE.mean(axis=0)).mean())
    row_Q = rng.integers(0, len(vector_NE), 400)
    query_QE = (vector_NE[row_Q] + 0.6 * spread * rng.normal(size=(400, 16))).astype(np.float32)
    exact = Exact().build([vector_NE]).search(query_QE, 8)
    given = {"functions": 8, "tables": 8, "scored": 400, "target_recall": 0.7}
    bare = Alsh(query_noise=0.0, **given).build([vector_NE])
    noisy = Alsh(query_noise=0.6, **given).build([vector_NE])
    asked = Alsh(query_noise=0.0, **given).build([vector_NE], queries=query_QE[:128])
    held = Hits(*(array[128:] for array in exact))
    kinds = {"bare": bare, "noisy": noisy, "asked": asked}
    found = {name: recall_at_k(searcher.search(query_QE[128:], 8), held) for name, searcher in kinds.items()}
    assert bare.recall_on_sample > found["bare"] + 0.04  # bare rows promise too much
    for name in ("noisy", "asked"):
        assert found[name] > max(0.7, found["bare"] + 0.05), found
        assert abs(kinds[name].recall_on_sample - found[name]) < 0.04  # measured on what it is asked
    with pytest.raises(QueryError, match=r"queries have shape \(3, 5\)"):
        Alsh(**given).build([vector_NE], queries=np.zeros((3, 5), np.float32))
