"""After an edit only changed blocks are embedded, and the vectors are those of a full embedding, bit for bit."""

import json
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from index_refresh import files
from index_refresh.generation import GenerationCorrupt
from index_refresh.recipe import Recipe
from index_refresh.reuse import carry_over, other_vectors, refresh_edited
from index_refresh.schedule import Never
from index_refresh.sync import Sync
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.objectives.ict import Ict
from realm.objectives.open_qa import OpenQa
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.edit import CorpusEdit, edit_corpus
from tests.index_refresh.refresh_fakes import FakeIndex, FakeObjective

PACKED: list[int] = []  # rows that were packed to be embedded, the null block aside
WORDS = "amber basin cedar delta ember fjord glade heron inlet jetty knoll lagoon marsh north ocean pond".split()


@dataclass(frozen=True)
class CountingRecipe(Recipe):
    def pack(self, table, row_N, length):
        PACKED.extend(row for row in np.asarray(row_N).tolist() if row >= 0)
        return super().pack(table, row_N, length)


def document(number, rng):
    sentences = [" ".join(rng.choice(WORDS, rng.integers(5, 14))).capitalize() + "." for _ in range(8)]
    return {"id": f"d{number}", "title": WORDS[number % 16], "text": " ".join(sentences)}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """A corpus, and one with a document less, one replaced, one new and one that is a copy."""
    folder, rng = tmp_path_factory.mktemp("versions"), np.random.default_rng(0)
    documents = [document(number, rng) for number in range(12)]

    def write(name, records):
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in records))
        return str(folder / name)

    old = build_corpus(CorpusConfig(write("d.jsonl", documents), block_length=48), folder / "old")
    edit = CorpusEdit(
        add=write("add.jsonl", [document(20, rng), {**documents[3], "id": "copy"}]),
        replace=write("replace.jsonl", [{**documents[5], "text": "Another text by far."}]),
        delete="d0",
    )
    return old, edit_corpus(old.path, edit, folder / "new")


# The smallest BERT, and an encoder of one matrix: what is the same bit for bit must not depend on how simple it is.
BERT = BertConfig(width=32, layers=2, heads=2, feedforward=64, dropout=0.0, attention_dropout=0.0)


@dataclass(frozen=True)
class OtherIct(Ict):
    pass


OBJECTIVE = Ict(retriever=DualEncoderConfig(bert=BERT, width=16, pooling="mean", dropout=0.0))


def recipe_of(table, **changes):
    settings = {"shard_rows": 16, "batch_rows": 4, "lengths": (24, 32, 48)} | changes
    return CountingRecipe(settings.pop("objective", OBJECTIVE), str(table.path), FakeIndex(), **settings)


@pytest.fixture(scope="module")
def params():
    return OBJECTIVE.init(jax.random.key(0))


@pytest.fixture(scope="module")
def earlier(versions, params, tmp_path_factory):
    refresher = Sync().start(recipe_of(versions[0]), Never(), tmp_path_factory.mktemp("earlier"))
    refresher.publish(7, params)
    generation = refresher.newest()
    refresher.close()
    return generation


def vectors(generation):
    return np.concatenate([np.array(shard) for shard in generation.vectors()])


def from_nothing(table, params, folder, **changes):
    refresher = Sync().start(recipe_of(table, **changes), Never(), folder)
    refresher.publish(7, params)
    made = refresher.newest()
    refresher.close()
    return made


@pytest.mark.parametrize("shard_rows", [16, 7, 1000])
def test_only_changed_rows_are_embedded_and_no_bit_differs(versions, params, earlier, tmp_path, shard_rows):
    old, new = versions
    whole = from_nothing(new, params, tmp_path / "whole", shard_rows=shard_rows)
    PACKED.clear()
    made = refresh_edited(earlier, recipe_of(new, shard_rows=shard_rows), tmp_path / "out")
    changed = [row for row in range(new.rows) if new.document_id(row) in ("d5", "d20")]
    assert sorted(PACKED) == changed and made.embedded == len(changed) < new.rows / 4
    assert made.reused == new.rows - len(changed) and made.reason == "same parameters"
    np.testing.assert_array_equal(vectors(made.generation), vectors(whole))
    assert made.generation.step == 7 and made.generation.manifest["corpus_fingerprint"] == new.fingerprint
    query_BE = vectors(whole)[:3]
    assert (made.generation.searcher().search(query_BE, 5).id_BK == whole.searcher().search(query_BE, 5).id_BK).all()


def test_other_parameters_embed_everything(versions, earlier, tmp_path):
    new, other = versions[1], OBJECTIVE.init(jax.random.key(1))
    whole = from_nothing(new, other, tmp_path / "whole")
    PACKED.clear()
    made = refresh_edited(earlier, recipe_of(new), tmp_path / "out", params=other)
    assert sorted(PACKED) == list(range(new.rows)) and (made.embedded, made.reused) == (new.rows, 0)
    assert "other parameters" in made.reason
    np.testing.assert_array_equal(vectors(made.generation), vectors(whole))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"lengths": (32, 48)}, "another lengths"),
        ({"batch_rows": 8}, "another batch_rows"),
        ({"vector_dtype": "bfloat16"}, "another vector_dtype"),
        (
            {"objective": replace(OBJECTIVE, retriever=replace(OBJECTIVE.retriever, pooling="cls"))},
            "another retriever.pooling: found 'mean', wanted 'cls' (generation 0 of step 7",
        ),
        (
            {"objective": OtherIct(retriever=OBJECTIVE.retriever)},
            "another objective: found dual encoder, wanted OtherIct",
        ),
    ],
)
def test_other_shapes_or_types_embed_everything(versions, earlier, tmp_path, changes, said):
    made = refresh_edited(earlier, recipe_of(versions[1], **changes), tmp_path / "out")
    assert made.reused == 0 and said in made.reason


@pytest.mark.parametrize(
    "objective",
    [
        replace(OBJECTIVE, query_length=32, removal_probability=0.5),
        replace(OBJECTIVE, retriever=replace(OBJECTIVE.retriever, init="embedded", dropout=0.3)),
    ],
)
def test_what_no_vector_depends_on_embeds_nothing(versions, params, earlier, tmp_path, objective):
    old, new = versions
    made = refresh_edited(earlier, recipe_of(new, objective=objective), tmp_path / "out")
    assert made.reused == new.rows - made.embedded > made.embedded and made.reason == "same parameters"
    PACKED.clear()
    assert carry_over(earlier, recipe_of(old, objective=objective), tmp_path / "run", params) and not PACKED


def test_a_manifest_from_before_a_field_is_understood():
    """OpenQa as it was written before `read_in_training`, with a question file that could upset a parser."""
    now = OpenQa(retriever=DualEncoderConfig(bert=BERT, shared=False), questions="q (1), retriever='x'.jsonl")
    before = repr(now).replace("read_in_training=None, ", "")
    assert before != repr(now)
    rest = {"vector_dtype": "float32", "lengths": [48], "batch_rows": 4}
    assert other_vectors(rest | {"objective": before}, rest | {"objective": repr(now)}) == ""
    segments = {"objective": before.replace("block_segments=2, ", "")}
    assert segments["objective"] != before and other_vectors(rest | segments, rest | {"objective": repr(now)}) == ""
    one = replace(now, retriever=replace(now.retriever, block_segments=1))
    said = other_vectors(rest | segments, rest | {"objective": repr(one)})
    assert said == "another retriever.block_segments: found 2, wanted 1"
    older = before.replace("norm_epsilon=0.001, ", "", 1)  # nothing tells what this one was
    said = other_vectors(rest | {"objective": older}, rest | {"objective": repr(now)})
    assert said == "another retriever.norm_epsilon: found nothing, wanted 0.001"
    assert "another objective: found <O>, wanted <P>" in other_vectors(
        {"objective": "<O>"}, {**rest, "objective": "<P>"}
    )


def test_a_second_call_finds_it_made(versions, earlier, tmp_path):
    first = refresh_edited(earlier, recipe_of(versions[1]), tmp_path / "out")
    PACKED.clear()
    again = refresh_edited(earlier, recipe_of(versions[1]), tmp_path / "out")
    assert again.generation.path == first.generation.path and again.reason == "made before" and not PACKED


def test_damaged_vectors_are_not_taken_over(versions, params, tmp_path):
    old, new = versions
    generation = from_nothing(old, params, tmp_path / "run")
    shard = generation.path / generation.manifest["shards"][0]["file"]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(bytes(content))
    with pytest.raises(GenerationCorrupt, match="damaged"):
        refresh_edited(generation, recipe_of(new), tmp_path / "out")


def test_a_corpus_of_other_origin_shares_what_has_the_same_wordpieces(versions, params, earlier, tmp_path):
    """Not an edit of the old one: the rows are found by their wordpieces."""
    old = versions[0]
    lines = (old.path.parent / "d.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "half.jsonl").write_text("".join(lines[6:]))
    half = build_corpus(CorpusConfig(str(tmp_path / "half.jsonl"), block_length=48), tmp_path / "half")
    PACKED.clear()
    made = refresh_edited(earlier, recipe_of(half), tmp_path / "out")
    assert (made.embedded, made.reused) == (0, half.rows) and not PACKED
    first = old.row_of("d6:0")
    np.testing.assert_array_equal(vectors(made.generation), vectors(earlier)[first:])


def test_an_encoder_of_one_matrix_too(versions, tmp_path):
    old, new = versions
    rng = np.random.default_rng(3)
    shapes = {"words": (old.tokenizer.size, 6), "first": (6, 6), "second": (6, 5)}
    drawn = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    params = {"retriever": {"words": drawn["words"], "layers": {0: drawn["first"], 1: drawn["second"]}}}
    earlier = from_nothing(old, params, tmp_path / "old", objective=FakeObjective())
    whole = from_nothing(new, params, tmp_path / "whole", objective=FakeObjective())
    made = refresh_edited(earlier, recipe_of(new, objective=FakeObjective()), tmp_path / "out")
    assert made.reused and (vectors(made.generation) == vectors(whole)).all()


def test_a_retriever_that_has_not_moved_takes_over_the_whole_index(versions, params, earlier, tmp_path):
    """And the run goes on from it as from its own: published again, also after a rewind, it is there already."""
    recipe = recipe_of(versions[0])
    PACKED.clear()
    made = carry_over(earlier, recipe, tmp_path, params)
    assert (made.number, made.step) == (0, 0)
    for again in (False, True):
        refresher = Sync().start(recipe, Never(), tmp_path)
        if again:
            refresher.rewind(-1)
            assert refresher.newest() is None
        refresher.publish(0, params)
        assert refresher.newest().number == 0
        refresher.close()
    assert not PACKED and vectors(made).tobytes() == vectors(earlier).tobytes()
    query_BE = vectors(earlier)[:3]
    assert (made.searcher().search(query_BE, 5).id_BK == earlier.searcher().search(query_BE, 5).id_BK).all()
    assert carry_over(earlier, recipe, tmp_path, params) is None, "a run with generations keeps them"


def test_a_kill_while_an_index_is_taken_over_costs_no_embedding(versions, params, earlier, tmp_path, monkeypatch):
    recipe, link, linked = recipe_of(versions[0]), files.link, []

    def killed(source, target):
        if linked:
            raise KeyboardInterrupt
        linked.append(link(source, target))

    monkeypatch.setattr(files, "link", killed)
    with pytest.raises(KeyboardInterrupt):
        carry_over(earlier, recipe, tmp_path, params)
    monkeypatch.undo()
    PACKED.clear()
    made = carry_over(earlier, recipe, tmp_path, params)
    assert made.number == 0 and vectors(made).tobytes() == vectors(earlier).tobytes() and not PACKED


@pytest.mark.parametrize("changed", ["parameters", "corpus", "lengths", "index"])
def test_an_index_of_anything_else_is_not_taken_over(versions, params, earlier, tmp_path, changed):
    table, more = versions[0], {}
    if changed == "parameters":
        params = OBJECTIVE.init(jax.random.key(1))
    elif changed == "corpus":
        table = versions[1]
    elif changed == "lengths":
        more = {"lengths": (48,)}
    recipe = recipe_of(table, **more)
    recipe = replace(recipe, index=FakeIndex(lose_rows=1)) if changed == "index" else recipe
    assert carry_over(earlier, recipe, tmp_path / "run", params) is None
    assert not (tmp_path / "run").exists()
