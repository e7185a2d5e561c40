"""What a generation store refuses, and how it says so."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index_refresh import files, snapshot
from index_refresh.build import BuildError, make_generation
from index_refresh.generation import GenerationCorrupt, GenerationMismatch, verify
from index_refresh.log import GenerationLog
from index_refresh.store import GenerationStore
from tests.index_refresh.refresh_fakes import FakeIndex, make_params, make_recipe


def quiet(phase, done, total):
    pass


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("store")
    make_generation(GenerationStore(run, make_recipe()), 0, make_params(0), quiet)
    return run


def damage(path, content):
    """Replaces a file's bytes; a context manager that puts them back."""

    class Damage:
        def __enter__(self):
            self.old = path.read_bytes()
            path.write_bytes(content(bytearray(self.old)))

        def __exit__(self, *_):
            path.write_bytes(self.old)

    return Damage()


def flip(content):
    content[len(content) // 2] ^= 4
    return content


def test_the_manifest_says_what_the_generation_is(run):
    store = GenerationStore(run, make_recipe())
    manifest = json.loads((store.newest().path / "manifest.json").read_text())
    assert (manifest["number"], manifest["step"], manifest["rows"], manifest["dim"]) == (0, 0, 23, 5)
    assert [shard["rows"] for shard in manifest["shards"]] == [10, 10, 3]
    assert manifest["encoder_fingerprint"] == snapshot.fingerprint(make_params(0))
    assert (manifest["corpus_fingerprint"], manifest["tokenizer_fingerprint"]) == ("c0", "t0")
    assert manifest["index"] == {"kind": "fake", "offset": 0.0} and manifest["dtype"] == "float32"
    assert set(manifest["files"]) == {"encoder.safetensors", "index/index.json"}
    seconds = manifest["seconds_embed"]
    assert seconds > 0 and manifest["blocks_per_second"] == pytest.approx(23 / seconds)


@pytest.mark.parametrize("name", ["shard-00001.npy", "encoder.safetensors", "index/index.json"])
def test_a_flipped_bit_is_found_by_verify(run, name):
    generation = GenerationStore(run, make_recipe()).newest()
    verify(generation)
    with damage(generation.path / name, flip):
        with pytest.raises(GenerationCorrupt, match=f"1 damaged.*{name}"):
            verify(generation)
    verify(generation)


@pytest.mark.parametrize("name", ["shard-00002.npy", "encoder.safetensors"])
def test_a_truncated_file_is_found_on_opening(run, name):
    path = run / "generations" / "0-0" / name
    with damage(path, lambda content: content[:-7]):
        with pytest.raises(GenerationCorrupt, match=f"{name}: found .* bytes, the manifest says"):
            GenerationStore(run, make_recipe()).newest()


def test_a_flipped_bit_in_the_encoder_is_found_on_reading_it(run):
    generation = GenerationStore(run, make_recipe()).newest()
    with damage(generation.path / "encoder.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])):
        with pytest.raises(GenerationCorrupt, match="fingerprint"):
            generation.query_params()


def test_a_manifest_that_is_no_json(run):
    with damage(run / "generations" / "0-0" / "manifest.json", lambda content: content[:100]):
        with pytest.raises(GenerationCorrupt, match="manifest.json"):
            GenerationStore(run, make_recipe()).newest()


@pytest.mark.parametrize("rows", [20, 30])
def test_another_number_of_rows_is_refused(run, rows):
    with pytest.raises(GenerationMismatch, match=f"rows is 23, the corpus has {rows}"):
        GenerationStore(run, make_recipe(f"rows={rows}")).newest()


def test_another_corpus_or_tokenizer_is_refused(run):
    with pytest.raises(GenerationMismatch, match="corpus fingerprint is c0, the corpus has c9"):
        GenerationStore(run, make_recipe("rows=23 corpus=c9")).open(0)
    with pytest.raises(GenerationMismatch, match="tokenizer fingerprint is t0, the corpus has t9"):
        GenerationStore(run, make_recipe("rows=23 tokenizer=t9")).all()


def test_another_encoder_is_refused_where_one_is_expected(run):
    store = GenerationStore(run, make_recipe())
    right, wrong = snapshot.fingerprint(make_params(0)), snapshot.fingerprint(make_params(1))
    assert store.open(0, encoder=right).number == 0
    with pytest.raises(GenerationMismatch, match=f"encoder fingerprint is {right}.*{wrong}"):
        store.open(0, encoder=wrong)
    assert store.open(0).number == 0


def test_an_index_that_loses_rows_is_not_published(tmp_path):
    store = GenerationStore(tmp_path, make_recipe(index=FakeIndex(lose_rows=2)))
    with pytest.raises(BuildError, match="21 x 5, wanted 23 x 5"):
        make_generation(store, 0, make_params(0), quiet)
    assert store.newest() is None


def test_half_an_index_left_by_a_kill_is_not_published(tmp_path):
    store = GenerationStore(tmp_path, make_recipe())
    draft = store.begin(0, snapshot.fingerprint(make_params(0)))
    files.make_folder(draft.folder / "index")
    files.put(draft.folder / "index" / "half", b"an index of another kind")
    made = make_generation(store, 0, make_params(0), quiet)
    assert [path.name for path in (made.path / "index").iterdir()] == ["index.json"]


def test_readers_take_no_notice_of_what_is_being_made(run, tmp_path):
    store = GenerationStore(tmp_path, make_recipe())
    store.begin(0, "f0")
    (store.folder / "notes.txt").write_text("a file of the user's")
    assert store.newest() is None and store.all() == [] and store.numbers() == []


@given(
    published=st.integers(1, 7), keep_last=st.integers(0, 4), keep=st.sets(st.integers(0, 8)), rewound=st.integers(0, 9)
)
@settings(deadline=None, max_examples=30)
def test_retention_keeps_the_newest_and_the_wanted(tmp_path_factory, published, keep_last, keep, rewound):
    store = GenerationStore(tmp_path_factory.mktemp("retain"), make_recipe())
    for number in range(published):
        (store.folder / f"{number}-{number}").mkdir(parents=True)
    wanted = {n for n in range(published) if n in keep or n >= published - max(keep_last, 1)}
    gone = store.retain(keep_last, keep)
    assert set(store.numbers()) == wanted and set(gone) == set(range(published)) - wanted
    assert len(list(store.folder.iterdir())) == len(wanted)


def test_the_log_survives_a_torn_line_and_says_where_another_is_bad(tmp_path):
    log = GenerationLog(tmp_path)
    log.adopted(0, 0, 1)
    with log.path.open("ab") as stream:
        stream.write(b'{"event": "adop')
    assert [e["step"] for e in log.events()] == [1]
    log.adopted(1, 10, 11)
    assert [e["step"] for e in log.events()] == [1, 11]
    log.rewind(5)
    assert [e["step"] for e in log.events()] == [1]
    log.path.write_bytes(b"nonsense\n" + log.path.read_bytes())
    with pytest.raises(files.LogError, match="generations.jsonl:1: found .*nonsense"):
        log.events()


def test_json_files_take_numpy_numbers_and_refuse_the_rest(tmp_path):
    files.write_json(tmp_path / "a.json", {"rows": np.int64(3), "mean": np.float32(0.5), "list": np.arange(2)})
    assert files.read_json(tmp_path / "a.json") == {"rows": 3, "mean": 0.5, "list": [0, 1]}
    with pytest.raises(TypeError, match="set"):
        files.write_json(tmp_path / "a.json", {"rows": {1}})
    assert files.read_json(tmp_path / "a.json")["rows"] == 3
