"""Schedules are pure functions of the step, and their texts are read strictly."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_refresh.schedule import Every, Never, Ramp, ScheduleError, parse_schedule


def due(schedule, stop):
    return [step for step in range(stop) if schedule.due(step)]


def test_texts():
    assert parse_schedule("every 500") == Every(500)
    assert parse_schedule(" Never ") == Never()
    assert parse_schedule("0-1000:500,1000-:2000") == Ramp("0-1000:500,1000-:2000")


def test_steps():
    assert due(Every(4), 13) == [0, 4, 8, 12]
    assert due(Never(), 100) == [0]
    assert due(Ramp("0-10:5,10-25:7,25-:20"), 70) == [0, 5, 10, 17, 24, 25, 45, 65]
    assert due(Ramp(" 0 - 6 : 4 , 6 - : 3 "), 13) == [0, 4, 6, 9, 12]


def test_refreshing_never_silently_stops():
    assert Ramp("0-10:5,10-:1000").due(10 + 1000 * 12345)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 30)), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_a_ramp_is_due_at_each_start_and_then_at_its_rate(parts):
    texts, expected, start = [], set(), 0
    for ordinal, (width, every) in enumerate(parts):
        last = ordinal == len(parts) - 1
        end = start + width
        texts.append(f"{start}-{'' if last else end}:{every}")
        expected |= set(range(start, end, every))
        start = end
    ramp = Ramp(",".join(texts))
    assert due(ramp, start) == sorted(expected)
    assert pickle.loads(pickle.dumps(ramp)) == ramp


@pytest.mark.parametrize(
    ("text", "character", "message"),
    [
        ("0-10:5,12-:9", 8, "starts at 10 .this one leaves a gap"),
        ("0-10:5,9-:9", 8, "starts at 10 .this one leaves an overlap"),
        ("5-:9", 1, "starts at 0"),
        ("0-10:5", 3, "without an end, as 0-:5"),
        ("0-:5,10-:9", 1, "only the last"),
        ("0-10:0,10-:9", 6, "every 1 or more"),
        ("0-0:5,0-:9", 3, "an end after 0"),
        ("0-10:5,10-20:9,", 16, "whole numbers"),
        ("0-10:5,10-:1e3", 8, "whole numbers"),
        ("0-10", 1, "whole numbers"),
        ("-5-:9", 1, "whole numbers"),
    ],
)
def test_mistakes_are_pointed_at(text, character, message):
    with pytest.raises(ScheduleError, match=rf"character {character}: .*{message}.*Example"):
        parse_schedule(text)


@pytest.mark.parametrize("text", ["", "sometimes", "every", "every x", "every 5 steps", "500"])
def test_unknown_texts(text):
    with pytest.raises(ScheduleError, match="'every 500', 'never'"):
        parse_schedule(text)


def test_a_rate_below_one():
    with pytest.raises(ScheduleError, match="never"):
        parse_schedule("every 0")
