"""What a long phase says of itself."""

import pytest

from experiments import console


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_a_long_phase_says_how_far_it_is_and_a_short_one_nothing(clock, capsys):
    tick = console.progress("blocks", seconds=10)
    for done, after in ((1, 4), (2, 4), (3, 4), (4, 4)):
        clock[0] += after
        tick("embedding", done, 4)
    assert capsys.readouterr().err == "embedding 3 of 4 blocks, 12 s\nembedding 4 of 4 blocks, 16 s\n"
    console.progress("blocks", seconds=10)("embedding", 4, 4)
    assert capsys.readouterr().err == ""
