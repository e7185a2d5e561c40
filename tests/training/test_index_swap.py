"""What happens when an index is swapped: opened beside the steps, compared with the old one, its age told."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from realm.protocols import Hits
from realm.retrieve import Candidates
from realm.training.drift import Drift, DriftError, SampleSearcher
from realm.training.found import Found
from realm.training.lookup import Lookup
from realm.training.opener import Opener
from realm.training.side_by_side import SideBySide


class Slow:
    """A generation that is open when the test says so, or breaks then."""

    step = 0

    def __init__(self, number, error=None):
        self.number, self.error, self.ready = number, error, threading.Event()

    def searcher(self):
        self.ready.wait(30)
        if self.error:
            raise self.error
        return f"index {self.number}"


def opened(opener, generation):
    for _ in range(3000):
        found = opener.beside(generation)
        if found is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("never opened")


def test_nobody_waits_for_an_index_that_is_being_opened():
    opener, first, second = Opener(lambda generation: {"of": generation.number}, print), Slow(3), Slow(4)
    assert opener.beside(first) is None and opener.beside(first) is None
    assert opener.beside(second) is None  # one at a time: the first one's memory is enough
    first.ready.set()
    found = opened(opener, second)
    assert (found.generation, found.searcher, found.query_params) == (first, "index 3", {"of": 3})
    second.ready.set()
    assert opened(opener, second).searcher == "index 4"


def test_an_index_that_does_not_open_is_told_of_once_and_the_next_one_is_taken():
    said = []
    opener, broken, sound = Opener(lambda generation: None, said.append), Slow(3, ValueError("a flipped bit")), Slow(4)
    broken.ready.set()
    sound.ready.set()
    for _ in range(3000):
        assert opener.beside(broken) is None
        if said:
            break
        time.sleep(0.01)
    for _ in range(5):
        assert opener.beside(broken) is None
    assert len(said) == 1 and "generation 3 is not used: ValueError: a flipped bit" in said[0]
    assert opened(opener, sound).searcher == "index 4"
    with pytest.raises(ValueError, match="flipped"):
        opener.now(broken)  # where there is no other index


def test_the_overlap_is_that_of_the_sets_and_invalid_hits_count_nowhere():
    rng = np.random.default_rng(0)
    row_N = np.arange(40)
    old, new = (SampleSearcher(row_N, rng.normal(size=(40, 6)).astype(np.float32)) for _ in range(2))
    query_BE = rng.normal(size=(9, 6)).astype(np.float32)
    both = SideBySide(new, old)
    assert both.overlap() == {}
    for part in (query_BE[:4], query_BE[4:]):
        np.testing.assert_array_equal(both.search(part, 7).id_BK, new.search(part, 7).id_BK)
    pairs = zip(new.search(query_BE, 7).id_BK, old.search(query_BE, 7).id_BK, strict=True)
    shared = [len(set(a) & set(b)) for a, b in pairs]
    assert 0 < sum(shared) < 63 and both.overlap() == {"overlap@7": sum(shared) / 63}

    class Short:
        rows, dim, kind = 3, 2, "short"

        def __init__(self, ids, valid):
            self.hits = Hits(np.zeros((1, 3), np.float32), np.array([ids], np.int32), np.array([valid]))

        def search(self, query_BE, k):
            return self.hits

    # Row 0 stands in invalid places of both; it is found by neither.
    both = SideBySide(Short([5, 6, 0], [True, True, False]), Short([6, 0, 0], [True, False, False]))
    both.search(query_BE[:1], 3)
    assert both.overlap() == {"overlap@3": 0.5}


def test_a_sample_is_searched_exactly_and_answers_in_rows_of_the_corpus():
    rng = np.random.default_rng(1)
    row_N, vector_NE = np.array([3, 8, 20, 41]), rng.normal(size=(4, 5)).astype(np.float32)
    query_BE = rng.normal(size=(6, 5)).astype(np.float32)
    hits = SampleSearcher(row_N, vector_NE).search(query_BE, 2)
    np.testing.assert_array_equal(hits.id_BK, row_N[np.argsort(-(query_BE @ vector_NE.T), axis=1)[:, :2]])
    assert (np.diff(hits.score_BK, axis=1) <= 0).all() and hits.valid_BK.all()


def test_drift_without_questions_is_refused():
    with pytest.raises(DriftError, match="watch.blocks=0"):
        Drift(None, None, None, length=8, seed=0)


def test_candidates_keep_the_age_of_the_generation_they_come_from():
    now = time.time()

    def generation(taken, **ages):
        return SimpleNamespace(
            taken=taken, document_ages=lambda step: {name: step - made for name, made in ages.items()}
        )

    newer = generation(now - 10.0)
    lookup = SimpleNamespace(
        lately={3: generation(now - 50.0, document_age_max=90), 4: newer}, generation=newer,
        blocked=0.0, at_boundaries=1.25, first_wait=3.5,
    )  # fmt: skip
    nothing = Candidates(np.zeros((1, 1), np.int32), np.ones((1, 1), bool), np.zeros(1, bool))
    facts = Lookup.facts(lookup, Found(nothing, 3, 100, 129), 130)
    assert (facts["generation"], facts["document_age"], facts["query_age"]) == (3, 30, 1)
    assert facts["document_age_max"] == 40  # of a rolling index: its oldest slice
    assert 50.0 <= facts["document_age_seconds"] < 80.0
    assert (facts["refresh_blocked_seconds"], facts["refresh_boundary_seconds"]) == (0.0, 1.25)
    lookup.lately = {4: generation(now + 100.0)}  # the clock went back, or is another machine's
    assert Lookup.facts(lookup, Found(nothing, 4, 100, 129), 130)["document_age_seconds"] == 0.0
