"""A run folder emptied by `--overwrite` under a refresher that lives on: it ends, and publishes nothing there."""

import fcntl
import os
import threading

import pytest

from index_refresh.claim import OWNER, Claim, RefresherTaken, RunReplaced
from index_refresh.heartbeat import NAME, read_heartbeat
from index_refresh.snapshot import SnapshotStore
from index_refresh.standalone import refresh_run
from index_refresh.store import GenerationStore
from index_refresh.worker import Worker
from realm.training.run_folder import remove_folder
from tests.index_refresh.refresh_engines import wait_until
from tests.index_refresh.refresh_fakes import make_params, make_recipe


def replace(run):
    """Another run's lock file in the place of the one that is held; returns it opened and locked."""
    aside = run / "aside"
    aside.touch()
    aside.replace(run / OWNER)
    return locked(run)


def locked(run):
    descriptor = os.open(run / OWNER, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def test_a_claim_knows_whether_its_file_is_still_the_one_at_its_path(tmp_path):
    claim = Claim(tmp_path)
    claim.check()
    (tmp_path / OWNER).unlink()
    with pytest.raises(RunReplaced, match="emptied or made anew"):
        claim.check()
    (tmp_path / OWNER).touch()
    with pytest.raises(RunReplaced):
        claim.check()
    later = Claim(tmp_path)
    later.check()
    with pytest.raises(RefresherTaken, match="later refresher"):
        claim.check()
    later.release()


def test_a_claim_waited_for_is_of_the_file_that_is_there_then(tmp_path):
    (tmp_path / OWNER).touch()
    holder, got = locked(tmp_path), []
    thread = threading.Thread(target=lambda: got.append(Claim(tmp_path, 60.0)))
    thread.start()
    here = str((tmp_path / OWNER).resolve())
    wait_until(lambda: list(opened()).count(here) == 2)  # the holder's and the waiting one's
    (tmp_path / OWNER).unlink()
    (tmp_path / OWNER).touch()
    os.close(holder)
    thread.join()
    got[0].check()
    with pytest.raises(BlockingIOError):
        locked(tmp_path)
    got[0].release()


def opened():
    """Paths behind the open descriptors of this process."""
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # that of the listing itself
            continue


def test_a_waiting_refresher_leaves_the_new_run_alone(tmp_path):
    claim, others = Claim(tmp_path), []

    def stop():
        if not others:
            others.append(replace(tmp_path))
            (tmp_path / NAME).write_text('{"pid": 1}')
            SnapshotStore(tmp_path).write(0, make_params(0))
        return False

    with pytest.raises(RunReplaced):
        Worker(tmp_path, make_recipe(), stop=stop, poll=0.01, held=claim.check).run(until_idle=True)
    assert read_heartbeat(tmp_path) == {"pid": 1} and not (tmp_path / "generations").exists()
    assert SnapshotStore(tmp_path).steps() == [0]
    os.close(others[0])
    claim.release()


def test_a_generation_made_before_the_folder_was_emptied_is_not_published_into_the_new_run(tmp_path):
    SnapshotStore(tmp_path).write(0, make_params(0))
    claim, others = Claim(tmp_path), []
    worker = Worker(tmp_path, make_recipe(), stop=lambda: False, poll=0.01, held=claim.check)
    publish = worker.store.publish

    def late(*arguments):
        others.append(replace(tmp_path))
        return publish(*arguments)

    worker.store.publish = late
    with pytest.raises(RunReplaced):
        worker.run(until_idle=True)
    assert len(others) == 1 and GenerationStore(tmp_path, make_recipe()).numbers() == []
    os.close(others[0])
    claim.release()


def test_the_stand_alone_refresher_ends_when_its_run_is_overwritten(tmp_path):
    run, ends, said = tmp_path / "run", [], []
    SnapshotStore(run).write(0, make_params(0))

    def job():
        try:
            refresh_run(run, make_recipe(seconds=0.2), report=said.append, poll=0.01, stop=lambda: given_up.is_set())
        except RefresherTaken as error:
            ends.append(error)

    given_up = threading.Event()
    thread = threading.Thread(target=job)
    thread.start()
    wait_until(lambda: (read_heartbeat(run) or {}).get("state") == "embedding")
    remove_folder(run)  # as RunFolder does for `overwrite`
    run.mkdir(exist_ok=True)
    following = Claim(tmp_path / "other")  # the new refresher, of another process: its claim is not this process's
    (tmp_path / "other" / OWNER).rename(run / OWNER)
    thread.join(30)
    given_up.set()
    thread.join()
    assert [type(end) for end in ends] == [RunReplaced] and "start it anew" in str(ends[0])
    assert not any("trying again" in line for line in said)
    assert not list(run.glob("generations/[0-9]*"))
    following.release()
