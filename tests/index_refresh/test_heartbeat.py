"""The heartbeat says what goes on, without writing a file for every batch."""

import os

from index_refresh.heartbeat import Heartbeat, Progress, read_heartbeat


def test_there_may_be_none(tmp_path):
    assert read_heartbeat(tmp_path) is None


def test_changes_of_state_and_errors_are_written_at_once(tmp_path):
    heartbeat = Heartbeat(tmp_path, interval=1e9)
    heartbeat.beat(state="idle")
    assert read_heartbeat(tmp_path)["pid"] == os.getpid()
    heartbeat.beat(state="embedding", generation=3, step=30, progress={"done": 1, "total": 9})
    first = read_heartbeat(tmp_path)
    assert (first["state"], first["generation"], first["step"]) == ("embedding", 3, 30)
    heartbeat.beat(state="embedding", progress={"done": 2, "total": 9})
    assert read_heartbeat(tmp_path) == first
    heartbeat.beat(state="failed", last_error="step 30: no")
    beat = read_heartbeat(tmp_path)
    assert (beat["progress"]["done"], beat["last_error"]) == (2, "step 30: no")


def test_progress_is_written_when_the_interval_has_passed(tmp_path):
    heartbeat = Heartbeat(tmp_path, interval=0.0)
    for done in range(3):
        heartbeat.beat(state="embedding", progress={"done": done, "total": 3})
        assert read_heartbeat(tmp_path)["progress"]["done"] == done


def test_people_hear_the_rate_and_the_time_left(tmp_path):
    lines = []
    progress = Progress(Heartbeat(tmp_path), lines.append, generation=2, step=500, interval=0.0)
    assert not progress.worked
    progress("embedding", 50, 1000)
    progress("embedding", 150, 1000)
    progress("building", 0, 1000)
    assert progress.worked and len(lines) == 1
    assert "generation 2 of step 500: 150 of 1000 blocks embedded" in lines[0] and "min left" in lines[0]
