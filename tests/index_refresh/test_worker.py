"""The refresher's loop, the trainer's side without any refresher, and the stand-alone job."""

import threading

import pytest

from index_refresh import embed as embed_module
from index_refresh.claim import Claim, OrderBusy, ordered
from index_refresh.external import External
from index_refresh.heartbeat import read_heartbeat
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from index_refresh.schedule import Every, Latency, ScheduleError
from index_refresh.snapshot import SnapshotStore
from index_refresh.standalone import refresh_run
from index_refresh.store import GenerationStore
from index_refresh.worker import Worker
from tests.index_refresh.refresh_engines import InThread, published, wait_until, work
from tests.index_refresh.refresh_fakes import ODD, PACKED, contents, make_params, make_recipe


def test_the_newest_snapshot_wins_and_the_others_are_counted(tmp_path):
    snapshots, store = SnapshotStore(tmp_path), GenerationStore(tmp_path, make_recipe())
    for step in (0, 10, 20):
        snapshots.write(step, make_params(step))
    work(tmp_path)
    assert [(g.number, g.step) for g in store.all()] == [(0, 20)] and snapshots.steps() == []
    for step in (30, 40):
        snapshots.write(step, make_params(step))
    work(tmp_path)
    assert [(g.number, g.step) for g in store.all()] == [(0, 20), (1, 40)]
    assert read_heartbeat(tmp_path)["dropped"] == 3  # counted over restarts


def test_waiting_snapshots_do_not_pile_up_while_one_is_embedded(tmp_path):
    stopped = threading.Event()
    trainer = External(keep=9).start(make_recipe(), Every(10), tmp_path)
    trainer.publish(0, make_params(0))
    wait_until(lambda: trainer.snapshots.steps() == [0])
    worker = Worker(tmp_path, make_recipe(seconds=0.15), stop=stopped.is_set, poll=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: read_heartbeat(tmp_path)["state"] == "embedding")
    for step in (10, 20, 30):
        trainer.publish(step, make_params(step))
        wait_until(lambda step=step: trainer.snapshots.steps()[-1] == step)
    trainer.close()  # waits for the thread that removes what was overtaken
    assert trainer.snapshots.steps() == [0, 30] and trainer.status()["dropped_snapshots"] == 2
    wait_until(lambda: len(trainer.store.numbers()) == 2)
    assert [g.step for g in trainer.store.all()] == [0, 30]
    stopped.set()
    thread.join()


def test_a_snapshot_older_than_the_newest_generation_is_never_embedded(tmp_path):
    snapshots = SnapshotStore(tmp_path)
    snapshots.write(20, make_params(20))
    work(tmp_path)
    snapshots.write(10, make_params(10))  # REALM's poller would take it, and go backwards
    PACKED.clear()
    work(tmp_path)
    assert not PACKED and GenerationStore(tmp_path, make_recipe()).numbers() == [0]


def test_an_unfit_snapshot_is_tried_once_and_a_newer_one_mends_it(tmp_path):
    snapshots, said = SnapshotStore(tmp_path), []
    bad = make_params(1)
    bad["retriever"]["words"][ODD] = float("nan")
    snapshots.write(0, bad)
    work(tmp_path, said=said)
    beat = read_heartbeat(tmp_path)
    assert beat["refused"] == snapshots.identity(0) and "document-3:0" in beat["last_error"]
    PACKED.clear()
    work(tmp_path)  # a restarted refresher remembers
    assert not PACKED
    snapshots.write(0, make_params(1))  # the trainer was mended and begins anew: another file
    work(tmp_path)
    assert read_heartbeat(tmp_path)["last_error"] is None
    assert GenerationStore(tmp_path, make_recipe()).newest().step == 0


def test_a_full_disk_is_tried_again_until_there_is_room(tmp_path, monkeypatch):
    SnapshotStore(tmp_path).write(0, make_params(0))
    free, said = iter([10, 10, 10**12]), []
    usage = type("Usage", (), {"free": property(lambda self: next(free))})
    monkeypatch.setattr(embed_module.shutil, "disk_usage", lambda folder: usage())
    monkeypatch.setattr("index_refresh.worker.FIRST_PAUSE", 0.01)
    work(tmp_path, said=said)
    assert GenerationStore(tmp_path, make_recipe()).newest().step == 0
    assert sum("trying again" in line and "NoSpace" in line for line in said) == 2


def test_a_trainer_that_resumes_from_before_undoes_what_is_being_embedded(tmp_path):
    """The refresher is at step 20 when the trainer goes back to 10 and takes another course."""
    first = InThread().start(make_recipe(), Every(10), tmp_path)
    first.publish(0, make_params(0))
    published(first, 0)
    first.close()
    stopped = threading.Event()
    SnapshotStore(tmp_path).write(20, make_params(20))
    claim = Claim(tmp_path)
    worker = Worker(tmp_path, make_recipe(seconds=0.1), stop=stopped.is_set, poll=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    wait_until(lambda: read_heartbeat(tmp_path)["state"] == "embedding")
    trainer = External().start(make_recipe(), Every(10), tmp_path)
    trainer.rewind(9)
    trainer.publish(10, make_params(77))
    assert published(trainer, 10).number == 1
    trainer.publish(20, make_params(78))
    made = published(trainer, 20)
    assert made.number == 2
    assert made.query_params()["retriever"]["words"].tolist() == make_params(78)["retriever"]["words"].tolist()
    stopped.set()
    thread.join()
    claim.release()
    trainer.close()


def test_a_refresher_of_somebody_else_that_falls_silent_is_told_of_once(tmp_path):
    said = []
    trainer = External(hang_seconds=0.2).start(make_recipe(), Every(10), tmp_path, report=said.append)
    trainer.publish(0, make_params(0))
    wait_until(lambda: trainer.tick(0) or said)
    assert "no refresher has ever worked" in said[0] and trainer.status()["state"] == "absent"
    work(tmp_path)
    wait_until(lambda: trainer.tick(0) or any("back" in line for line in said))
    assert trainer.newest().step == 0
    trainer.publish(10, make_params(1))
    trainer.publish(20, make_params(1))
    assert any(line.startswith("slow: step 20 is due before there is a generation of step 10") for line in said)
    trainer.close()


def test_a_snapshot_that_cannot_be_written_is_told_and_training_goes_on(tmp_path, monkeypatch):
    said = []
    trainer = External().start(make_recipe(), Every(10), tmp_path, report=said.append)

    def full(step, params):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(trainer.snapshots, "write", full)
        trainer.publish(0, make_params(0))
        wait_until(lambda: trainer.tick(0) or said)
    assert "No space left" in said[0] and trainer.status()["state"] == "failed"
    trainer.publish(10, make_params(1))
    wait_until(lambda: trainer.tick(10) or trainer.status()["last_error"] is None)
    assert trainer.snapshots.steps() == [10]
    trainer.close()


def test_a_snapshot_that_could_not_be_written_is_written_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr("index_refresh.external.RETRY", 0.01)
    said, left = [], iter([OSError(28, "No space left on device")] * 4)
    trainer = InThread().start(make_recipe(), Every(10), tmp_path, report=said.append)
    write, hopeless = trainer.snapshots.write, []

    def full(step, params):
        hopeless.append(trainer.status()["hopeless"])
        if (error := next(left, None)) is not None:
            raise error
        return write(step, params)

    monkeypatch.setattr(trainer.snapshots, "write", full)
    trainer.publish(0, make_params(0))
    assert published(trainer, 0).number == 0
    assert hopeless == [False, False, False, True, True]  # three failures are not bad luck, and it still goes on
    assert len(said) == 2 and "No space left" in said[0]
    trainer.tick(1)
    assert not trainer.status()["hopeless"] and trainer.status()["last_error"] is None
    trainer.close()


def test_a_snapshot_left_by_a_killed_run_is_embedded_without_a_new_one(tmp_path):
    first = InThread().start(make_recipe(), Every(10), tmp_path)
    first.publish(0, make_params(0))
    published(first, 0)
    first.close()
    SnapshotStore(tmp_path).write(10, make_params(1))  # written, and then the trainer was killed
    second = InThread().start(make_recipe(), Every(10), tmp_path)
    second.rewind(14)
    assert published(second, 10).number == 1
    second.close()


def test_the_stand_alone_refresher_works_until_the_run_is_done(tmp_path):
    trainer = External().start(make_recipe(), Every(10), tmp_path)
    job = threading.Thread(target=refresh_run, args=(tmp_path, make_recipe()), kwargs={"poll": 0.01, "report": len})
    trainer.publish(0, make_params(0))
    job.start()
    assert published(trainer, 0).number == 0
    trainer.publish(10, make_params(1))
    assert published(trainer, 10).number == 1
    (tmp_path / "done.json").write_text("{}")
    job.join(30)
    assert not job.is_alive() and read_heartbeat(tmp_path)["state"] == "closed"
    Claim(tmp_path).release()
    trainer.close()


def test_asked_to_stop_it_leaves_its_shards_to_the_next(tmp_path):
    SnapshotStore(tmp_path).write(0, make_params(0))
    asked = iter([False] * 8 + [True] * 1000)
    refresh_run(tmp_path, make_recipe(), report=len, poll=0.01, stop=lambda: next(asked))
    assert GenerationStore(tmp_path, make_recipe()).numbers() == [] and SnapshotStore(tmp_path).steps() == [0]
    left = len(list((tmp_path / "generations" / ".staging-0-0").glob("shard-*.npy")))
    PACKED.clear()
    refresh_run(tmp_path, make_recipe(), report=len, until_idle=True)
    rows = {int(row) for row_N, _ in PACKED for row in row_N if row >= 0}
    assert 1 <= left < 3 and rows == set(range(10 * left, 23))
    work(tmp_path / "other")
    SnapshotStore(tmp_path / "other").write(0, make_params(0))
    work(tmp_path / "other")
    whole = [GenerationStore(run, make_recipe()).open(0).path for run in (tmp_path, tmp_path / "other")]
    assert contents(whole[0]) == contents(whole[1])


def test_a_run_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="wanted the run folder"):
        refresh_run(tmp_path / "none", make_recipe())


@pytest.mark.parametrize("engine", [External(), Process(), Interleave()], ids=lambda engine: type(engine).__name__)
def test_engines_with_a_latency_of_their_own_refuse_another(tmp_path, engine):
    with pytest.raises(ScheduleError, match="Use engine sync"):
        engine.start(make_recipe(), Latency(Every(10), 3), tmp_path)
    Claim(tmp_path).release()


def test_the_trainer_does_not_wait_for_the_order_of_generations(tmp_path):
    store = GenerationStore(tmp_path, make_recipe())
    for number in range(4):
        (store.folder / f"{number}-{number}").mkdir(parents=True)
    taken, let_go = threading.Event(), threading.Event()

    def hung():
        with ordered(tmp_path):
            taken.set()
            let_go.wait()

    thread = threading.Thread(target=hung)
    thread.start()
    taken.wait()
    assert store.retain(1) == []
    with pytest.raises(OrderBusy, match="hung"):
        with ordered(tmp_path, 0.1):
            pass
    let_go.set()
    thread.join()
    assert store.retain(1) == [0, 1, 2]
