"""Schedules are pure functions of the step, and their texts are read strictly."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_refresh.schedule import Drift, Every, Latency, Never, Ramp, Recorded, ScheduleError, parse_schedule


def due(schedule, stop):
    return [step for step in range(stop) if schedule.due(step)]


def test_texts():
    assert parse_schedule("every 500") == Every(500)
    assert parse_schedule(" Never ") == Never()
    assert parse_schedule("0-1000:500,1000-:2000") == Ramp("0-1000:500,1000-:2000")


def test_a_latency_delays_adoption_but_not_publication():
    schedule = parse_schedule("every 500 latency 120")
    assert schedule == Latency(Every(500), 120)
    assert [step for step in range(1600) if schedule.due(step)] == [0, 500, 1000, 1500]
    assert schedule.visible(0, 0) and not schedule.visible(500, 619) and schedule.visible(500, 620)
    assert parse_schedule("0-10:5,10-:20 Latency 3") == Latency(Ramp("0-10:5,10-:20"), 3)
    assert parse_schedule("never latency 7") == Latency(Never(), 7)
    assert all(Every(5).visible(5, step) for step in (5, 6, 500))


def test_drift_is_measured_where_it_is_checked_and_nowhere_else():
    schedule, asked = parse_schedule("drift 0.2 check 10"), []

    def measured(value):
        return lambda: asked.append(value) or value

    assert schedule == Drift(0.2, 10) and schedule.due(0) and not schedule.due(10)
    assert (
        schedule.due(10, measured(0.21)) and not schedule.due(20, measured(0.2)) and not schedule.due(15, measured(1))
    )
    assert asked == [0.21, 0.2]
    assert not Every(7).due(10, measured(1)) and len(asked) == 2


@pytest.mark.parametrize("text", ["drift 1 check 10", "drift 0.2", "drift 0.2 check 0", "drift .2 check 5 latency 3"])
def test_mistakes_in_drift(text):
    with pytest.raises(ScheduleError, match="found"):
        parse_schedule(text)


def written(path, events):
    lines = [{"event": "published", "generation": n, "step": s} for n, s in events["published"]]
    lines += [{"event": "adopted", "generation": n, "generation_step": g, "step": s} for n, g, s in events["adopted"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_recording_is_followed_to_the_step(tmp_path):
    folder = tmp_path / "A Run"  # neither the case nor the space of a path may get lost
    folder.mkdir()
    published, adopted = [(0, 0), (1, 10), (2, 30), (3, 40)], [(0, 0, 0), (1, 10, 17), (3, 40, 55)]
    path = written(folder / "generations.jsonl", {"published": published, "adopted": adopted})
    schedule = parse_schedule(f"recorded {path}")
    assert schedule == Recorded(str(path)) and pickle.loads(pickle.dumps(schedule)) == schedule
    assert due(schedule, 100) == [0, 10, 30, 40]
    visible = {made: [step for step in range(60) if schedule.visible(made, step)] for made in (0, 10, 30, 40)}
    assert visible == {0: list(range(60)), 10: list(range(17, 60)), 30: [], 40: list(range(55, 60))}


def test_a_recording_that_was_written_anew_is_read_anew(tmp_path):
    path = written(tmp_path / "log", {"published": [(0, 0), (1, 10)], "adopted": [(0, 0, 0), (1, 10, 17)]})
    schedule = Recorded(str(path))
    assert due(schedule, 100) == [0, 10]
    written(path, {"published": [(0, 0), (1, 20), (2, 30)], "adopted": [(0, 0, 0), (1, 20, 21), (2, 30, 31)]})
    assert due(schedule, 100) == [0, 20, 30] == due(Recorded(str(path)), 100)


def test_a_recording_that_is_none(tmp_path):
    with pytest.raises(ScheduleError, match="found no file .*nowhere"):
        parse_schedule("recorded nowhere")
    cut = written(tmp_path / "cut", {"published": [(1, 10)], "adopted": [(1, 10, 12)]})
    with pytest.raises(ScheduleError, match="begins by adopting the generation of step 0"):
        Recorded(str(cut))


@pytest.mark.parametrize("text", ["latency 5", "every 5 latency", "every 5 latency 0", "recorded", "every x latency 3"])
def test_mistakes_in_delayed_schedules(text):
    with pytest.raises(ScheduleError, match="found"):
        parse_schedule(text)


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
