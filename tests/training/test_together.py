"""Two processes on paper: each has its own opener, their ballots are counted one boundary later."""

import jax
import numpy as np
import pytest

from realm.training.opener import Opened
from realm.training.processes import NONE, Ballot, Ballots, rows_of_this, slots_of_all
from realm.training.together import Together


class FakeOpener:
    """Opens a generation after `slow` asks, or refuses those in `broken`."""

    def __init__(self, slow=0, broken=()):
        self.slow, self.broken, self.refused, self.asks = slow, broken, None, 0

    def beside(self, number):
        self.asks += 1
        if number in self.broken:
            self.refused = number
            return None
        if self.asks <= self.slow:
            return None
        self.asks = 0
        return Opened(number, f"searcher {number}", None)


def boundaries(processes, newest, adopted=0):
    """What every process goes over to at each boundary; newest[boundary][process]: what it sees on the disk."""
    count, current, went = Ballot(), [adopted] * len(processes), []
    for seen in newest:
        opened = [process.open(count, now) for process, now in zip(processes, current, strict=True)]
        current = [one.generation if one else now for one, now in zip(opened, current, strict=True)]
        went.append(tuple(current))
        cast = [Ballot(False, number, process.ballot()) for number, process in zip(seen, processes, strict=True)]
        count = Ballot(False, max(b.newest for b in cast), min(b.opened for b in cast))
    return went


def pair(**second):
    return [Together(opener, lambda number: number) for opener in (FakeOpener(), FakeOpener(**second))]


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
