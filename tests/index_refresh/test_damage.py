"""Damage that passes every check of a format is found by checksums of ours, a run goes on beside a damaged generation,
and a claim always names its holder."""

import json
import os
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest
from safetensors.numpy import save

from index_refresh.build import make_generation
from index_refresh.claim import OWNER, Claim, RefresherTaken
from index_refresh.external import External
from index_refresh.generation import GenerationCorrupt
from index_refresh.schedule import Every, Rolling
from index_refresh.snapshot import SnapshotError, SnapshotStore, fingerprint, read_params, write_params
from index_refresh.store import GenerationStore
from tests.index_refresh.refresh_engines import InThread, published, wait_until, work
from tests.index_refresh.refresh_fakes import make_params, make_recipe


def test_every_bit_of_a_snapshot_counts(tmp_path):
    path = tmp_path / "params.safetensors"
    write_params(path, make_params(0))
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    refused, places = 0, [*range(400), *rng.integers(400, len(whole), 100)]
    for place in places:
        torn = bytearray(whole)
        torn[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(torn)
        try:
            read = read_params(path)
        except SnapshotError as error:
            assert "params.safetensors" in str(error)
            refused += 1
        else:  # white space, say
            assert jax.tree.structure(read) == jax.tree.structure(make_params(0))
            assert fingerprint(read) == fingerprint(make_params(0))
    assert refused > 0.9 * len(places)


def test_a_snapshot_without_a_fingerprint_is_not_ours(tmp_path):
    (tmp_path / "foreign").write_bytes(save({"retriever/words": np.ones(2)}))
    with pytest.raises(SnapshotError, match="facts"):
        read_params(tmp_path / "foreign")


def test_a_snapshot_of_before_is_read(tmp_path):
    nodes = json.dumps({"retriever/layers": "integers"})
    (tmp_path / "old").write_bytes(save({"retriever/layers/0": np.ones(2)}, metadata={"nodes": nodes}))
    assert fingerprint(read_params(tmp_path / "old")) == fingerprint({"retriever": {"layers": {0: np.ones(2)}}})


@pytest.mark.parametrize(("name", "value"), [("step", 1), ("dim", 4), ("taken", 1.0), ("dtype", "bfloat16")])
def test_a_manifest_with_another_number_is_refused(tmp_path, name, value):
    store = GenerationStore(tmp_path, make_recipe())
    made = make_generation(store, 0, make_params(0), lambda *_: None)
    path = made.path / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest[name] != value
    path.write_text(json.dumps(manifest | {name: value}))
    with pytest.raises(GenerationCorrupt, match="manifest.json.*checksum"):
        GenerationStore(tmp_path, make_recipe()).newest()


def test_who_comes_while_the_holder_writes_its_name_still_learns_it(tmp_path):
    hold = "import fcntl, os, sys; d = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); fcntl.flock(d, fcntl.LOCK_EX)"
    hold += "; print('held', flush=True); sys.stdin.readline(); os.pwrite(d, b'{\"pid\": 4711}', 0); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path / OWNER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"

        def name():
            time.sleep(0.2)
            os.write(holder.stdin.fileno(), b"\n")

        thread = threading.Thread(target=name)
        thread.start()
        with pytest.raises(RefresherTaken, match="4711"):
            Claim(tmp_path)
        thread.join()
        holder.stdin.close()


def test_a_snapshot_that_two_remove_is_counted_once(tmp_path):
    store, taken = SnapshotStore(tmp_path), []
    for step in range(40):
        store.write(step, {"retriever": {"a": np.ones(1)}})
    threads = [threading.Thread(target=lambda: taken.extend(store.remove(list(range(40))))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(40)) and store.steps() == []


def test_a_damaged_newest_generation_is_told_of_once_and_training_keeps_the_one_it_has(tmp_path):
    said = []
    trainer = InThread().start(make_recipe(), Every(10), tmp_path, report=said.append)
    trainer.publish(0, make_params(0))
    first = published(trainer, 0)
    other = tmp_path / "other"
    SnapshotStore(other).write(0, make_params(0))
    work(other)
    SnapshotStore(other).write(10, make_params(1))
    work(other)
    made = GenerationStore(other, make_recipe()).newest()
    shard = made.path / "shard-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-5])
    made.path.rename(trainer.store.folder / made.path.name)
    wait_until(lambda: trainer.tick(1) or any("shard-00000.npy" in line for line in said))
    assert trainer.newest() == first
    trainer.looked = 0.0
    trainer.tick(3)
    assert sum("shard-00000.npy" in line for line in said) == 1
    trainer.publish(20, make_params(2))  # what is damaged is superseded, its number not used again
    assert published(trainer, 20).number == 2
    assert sum("shard-00000.npy" in line for line in said) == 1
    trainer.close()


def test_nothing_more_is_expected_of_a_snapshot_whose_generation_is_damaged(tmp_path):
    trainer = External().start(make_recipe(), Every(10), tmp_path)
    trainer.publish(0, make_params(0))
    wait_until(lambda: trainer.tick(0) or trainer.latest is None)  # it is on the disk
    assert not trainer.status()["hopeless"]
    work(tmp_path)
    (tmp_path / "generations" / "0-0" / "manifest.json").write_text("{")
    status = trainer.status()
    assert status["hopeless"] and "generation 0 is left out" in status["last_error"]
    trainer.publish(10, make_params(1))
    wait_until(lambda: trainer.tick(10) or trainer.snapshots.steps() == [10])
    assert not trainer.status()["hopeless"]
    work(tmp_path)
    assert published(trainer, 10).number == 1 and not trainer.status()["hopeless"]
    trainer.close()


@pytest.mark.parametrize("slices", [1, 2])
def test_a_run_and_a_refresher_started_beside_a_damaged_newest_generation_go_on(tmp_path, slices):
    recipe, said = make_recipe(slices=slices), []
    schedule = Every(10) if slices == 1 else Rolling(2, 10)
    for step in (0, 10):
        SnapshotStore(tmp_path).write(step, make_params(step))
        work(tmp_path, recipe)
    (tmp_path / "generations" / "1-10" / "manifest.json").write_text("{")
    trainer = External().start(recipe, schedule, tmp_path, report=said.append)
    trainer.rewind(14)
    assert trainer.newest().number == 0
    trainer.publish(20, make_params(20))
    wait_until(lambda: trainer.snapshots.steps() == [20])
    heard = []
    work(tmp_path, recipe, said=heard)
    made = published(trainer, 20)
    assert (made.number, made.documents()) == (2, [(23, 20)])  # nothing is taken over from what cannot be read
    for lines in (said, heard):
        assert sum("generation 1 is left out" in line for line in lines) == 1
    assert [e["generation"] for e in trainer.store.log.events() if e["event"] == "published"] == [0, 2]
    trainer.rewind(14)  # and back: to before generation 2, which is taken back where its step comes again
    assert trainer.newest().number == 0
    SnapshotStore(tmp_path).write(20, make_params(20))
    work(tmp_path, recipe)
    assert published(trainer, 20).number == 2
    trainer.close()
