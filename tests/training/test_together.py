"""Two processes on paper: each has its own opener, their ballots are counted one boundary later."""

import threading
import time

import jax
import numpy as np
import pytest

from index_refresh.generation import GenerationCorrupt, GenerationMissing
from realm.training.opener import Opened, Opener
from realm.training.processes import NONE, Ballot, Ballots, rows_of_this, slots_of_all
from realm.training.together import Together


class Made:
    """A generation that opens when `ready` is set, or breaks."""

    def __init__(self, number, ready=None, error=None):
        self.number, self.ready, self.error = number, ready, error

    def searcher(self):
        if self.ready is not None:
            assert self.ready.wait(30)
        if self.error is not None:
            raise self.error
        return f"index {self.number}"


class FakeOpener:
    """Opens a generation after `slow` asks, or refuses those in `broken`; one at a time, whatever is asked for."""

    def __init__(self, slow=0, broken=()):
        self.slow, self.broken, self.refused = slow, broken, None
        self.opening, self.asks = None, 0

    def find_beside(self, number, find):
        self.opening = number if self.opening is None else self.opening
        self.asks += 1
        if self.opening in self.broken:
            self.refused, self.opening, self.asks = self.opening, None, 0
            return None
        if self.asks <= self.slow:
            return None
        found, self.opening, self.asks = find(self.opening), None, 0
        return Opened(found, f"searcher {found.number}", None)


def boundaries(processes, newest, adopted=0):
    """What every process goes over to at each boundary; newest[boundary][process]: what it sees on the disk."""
    count, current, went = Ballot(), [adopted] * len(processes), []
    for seen in newest:
        opened = [process.open(count, now) for process, now in zip(processes, current, strict=True)]
        current = [one.generation.number if one else now for one, now in zip(opened, current, strict=True)]
        went.append(tuple(current))
        cast = [Ballot(False, number, process.ballot()) for number, process in zip(seen, processes, strict=True)]
        count = Ballot(False, max(b.newest for b in cast), min(b.opened for b in cast))
    return went


def pair(**second):
    return [Together(opener, Made) for opener in (FakeOpener(), FakeOpener(**second))]


def test_all_go_over_at_the_same_boundary_when_the_slowest_has_it_open():
    went = boundaries(pair(slow=3), [(1, 1)] * 9)
    assert all(one == other for one, other in went)
    assert [one for one, _ in went].index(1) == 5, "seen, asked for four times, told, counted"


def test_one_that_sees_it_earlier_or_misses_it_changes_nothing():
    """Generation 2 comes while 1 is being opened; one process never saw 1 as the newest."""
    went = boundaries(pair(slow=2), [(0, 0), (1, 0), (1, 0), (2, 2), *[(2, 2)] * 12])
    assert all(one == other for one, other in went)
    assert sorted({one for one, _ in went}) == [0, 1, 2]


def test_what_one_cannot_open_all_leave_and_the_next_is_taken():
    went = boundaries(pair(broken=(1,)), [(1, 1)] * 6 + [(2, 2)] * 8)
    assert all(one == other for one, other in went)
    assert sorted({one for one, _ in went}) == [0, 2]


def process(find, said=None, **given):
    """One with a real opener; what it reports goes to `said`."""
    return Together(Opener(lambda generation: None, (said if said is not None else []).append), find, **given)


def until(happened, seen):
    """The same on the disk, boundary after boundary, until it happened."""
    for _ in range(3000):
        if happened():
            return
        time.sleep(0.005)
        yield seen
    raise AssertionError(f"never happened, with {seen} on the disk")


def test_one_that_was_left_while_it_was_being_opened_is_never_gone_over_to():
    """The first process still reads generation 1 when the second cannot open it and 2 becomes the target."""
    read = threading.Event()
    slow = process(lambda number: Made(number, ready=read if number == 1 else None))
    broken = process(lambda number: Made(number, error=ValueError("a flipped bit") if number == 1 else None))

    def newest():
        yield from until(lambda: slow.left == broken.left == 1, (1, 1))
        yield from [(2, 2)] * 3
        read.set()
        yield from until(lambda: slow.ballot() == broken.ballot() == 2, (2, 2))
        yield from [(2, 2)] * 2

    went = boundaries([slow, broken], newest())
    assert all(one == other for one, other in went)
    assert sorted({one for one, _ in went}) == [0, 2]


def hidden(number_of_times, error):
    """Finds any generation, the first so many times not; never on the thread that runs the steps."""
    left = [number_of_times]

    def find(number):
        assert threading.current_thread() is not threading.main_thread()
        left[0] -= 1
        if left[0] >= 0 and number == 1:
            raise error
        return Made(number)

    return find


@pytest.mark.parametrize("error", [GenerationMissing("not listed yet"), GenerationCorrupt("no readable manifest yet")])
@pytest.mark.parametrize("place", [0, 1])
def test_one_whose_storage_shows_a_generation_late_is_waited_for(place, error):
    """Whichever process it is: the one that leads has its own view of the storage too."""
    said = []
    processes = [process(Made), process(Made)]
    processes[place] = process(hidden(2, error), said)

    def newest():
        yield from until(lambda: all(one.ballot() == 1 for one in processes), (1, 1))
        yield from [(1, 1)] * 2

    went = boundaries(processes, newest())
    assert all(one == other for one, other in went)
    assert went[-1] == (1, 1) and said == []


@pytest.mark.parametrize("error", [GenerationMissing("it was deleted"), GenerationCorrupt("a flipped bit")])
def test_what_one_does_not_find_all_leave_and_go_on(error):
    said = []
    processes = [process(Made), process(hidden(10**9, error), said, patience=0.0)]

    def newest():
        yield from until(lambda: all(one.left == 1 for one in processes), (1, 1))
        yield from until(lambda: all(one.ballot() == 2 for one in processes), (2, 2))
        yield from [(2, 2)] * 2

    went = boundaries(processes, newest())
    assert all(one == other for one, other in went)
    assert sorted({one for one, _ in went}) == [0, 2]
    assert said == [f"WARNING generation 1 is not used: {type(error).__name__}: {error}"]


def test_a_job_of_one_process_counts_its_own_ballot_at_once():
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
    assert Ballots(mesh).turn(Ballot(True, 4, NONE)) == (True, 4, NONE)


@pytest.mark.parametrize("index", [0, 1])
def test_slots_and_rows_of_a_process_are_where_they_lie_among_all(monkeypatch, index):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: index)
    ready = {
        "block_token_UT": np.zeros((5, 3)),
        "block_length_U": np.zeros(5),
        "slot_BK": np.array([[0, 4]], np.int32),
        "vector_UE": np.zeros((7, 2)),
        "vector_slot_BL": np.array([[6]], np.int32),
    }
    moved = slots_of_all(ready)
    assert moved["slot_BK"].tolist() == [[5 * index, 4 + 5 * index]]
    assert moved["vector_slot_BL"].tolist() == [[6 + 7 * index]]
    assert rows_of_this({"id_BK": np.arange(4)})["id_BK"].tolist() == [2 * index, 2 * index + 1]
