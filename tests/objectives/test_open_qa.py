"""Question answering before the loss: what travels, what is marked correct, what is frozen, where weights come from."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.models.tree_hash import tree_hash
from realm.objectives.beam import beam_vectors
from realm.objectives.realm import ObjectiveError, reader_inputs
from realm.retrieve import Candidates
from realm.text.answer_tokens import answer_tokens
from tests.objectives.open_qa_driver import QA, Stored, World, facts_world, parts_of, trained, with_parts
from tests.objectives.small import BERT, REALM, batch_of, build_table, close, largest, program


@pytest.fixture
def facts():
    return facts_world()


def test_answers_travel_with_their_question_and_stay_on_the_host(facts):
    world, params = facts
    plain = batch_of(world.objective, world.table)
    units = world.objective.units(world.table)
    assert plain["host_answers_B"].tolist() == [units[int(n)].answers for n in plain["host_unit_B"]]
    assert set(plain["own_B"]) == {-1}
    for row, n in enumerate(plain["host_unit_B"]):
        length = plain["query_length_B"][row]
        special = world.table.tokenizer
        expected = [special.cls, *units[int(n)].token_T, special.sep]
        assert plain["query_token_BT"][row, :length].tolist() == expected and len(expected) == length
    ready = world.joined(plain, world.candidates(params, plain))
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in ready.values())


def test_gold_spans_are_all_spans_whose_text_is_an_answer(tmp_path):
    """Against a search over every span of every block, in paragraphs of the sample, for answers of several words."""
    table = build_table(tmp_path, documents=12, holdout=0.0)
    objective = replace(QA, beam=4, read=4)
    params = program(objective, "init")(jax.random.key(0))
    world = World(objective, params, table)
    answers = [("the", "of the"), ("new york", "1990"), ("in", "a"), ("and", "the war")]
    plain = batch_of(objective, table, size=4) | {"host_answers_B": _objects(answers)}
    id_BK = np.array([[-1, *range(first, first + 4)] for first in (0, 3, 6, 9)], np.int32)
    valid_BK = np.ones(id_BK.shape, bool)
    valid_BK[0, 2] = False
    ready = world.joined(plain, Candidates(id_BK, valid_BK, np.zeros(4, bool)))
    marked = 0
    for b, k in np.ndindex(4, 4):
        row, body = int(id_BK[b, 1 + k]), table.token_T(int(id_BK[b, 1 + k]))
        wanted = {answer_tokens(one).token for one in answers[b]}
        token, start, end = answer_tokens(table.text(row))
        for w, t in np.ndindex(3, len(body)):
            if t + w >= len(body):
                continue
            begin, stop = world.places.characters(row, t, t + w + 1)
            whole = begin in start and stop in end  # "in" is no answer where it begins "inner"
            gold = whole and answer_tokens(table.text(row)[begin:stop]).token in wanted and valid_BK[b, 1 + k]
            assert ready["gold_BKWT"][b, k, w, t] == gold
            marked += gold
        assert not ready["gold_BKWT"][b, k, :, len(body) :].any()
        holds = any(token[n : n + len(one)] == one for one in wanted for n in range(len(token)) if valid_BK[b, 1 + k])
        assert ready["correct_BL"][b, k] == holds
    assert marked > 20 and ready["gold_BKWT"][:, :, 1].any(), "also answers of two wordpieces"


def _objects(answers):
    array = np.empty(len(answers), object)
    array[:] = answers
    return array


def test_every_span_of_the_mask_reads_as_wordpieces_of_its_body(facts):
    """Never over a block's end, the question, the title or padding: by the reader's own input."""
    world, params = facts
    batch = world.batch(params)
    objective = world.objective
    slot_BK = batch["slot_BK"]
    _, valid_BKWT = program(objective, "span_scores")(params, batch, np.zeros(batch["valid_BL"].shape, np.float32))
    inputs = reader_inputs(batch, BERT.positions)
    token_BKT = np.asarray(inputs["token_BT"]).reshape(*slot_BK.shape, -1)[..., batch["query_token_BT"].shape[1] :]
    texts = {tuple(world.table.token_T(row)): row for row in range(world.table.rows)}
    for b, k in np.ndindex(slot_BK.shape):
        valid_WT = np.asarray(valid_BKWT[b, k])
        length = valid_WT[0].sum()
        assert tuple(token_BKT[b, k, :length]) in texts, "spans of one wordpiece: the whole body and nothing else"
        expected_WT = [[t + w < length for t in range(valid_WT.shape[1])] for w in range(valid_WT.shape[0])]
        np.testing.assert_array_equal(valid_WT, expected_WT)
    assert valid_WT.shape[0] == objective.joint.answer_length


def test_blocks_that_are_cut_have_no_gold_span_behind_the_cut(facts):
    world, params = facts
    plain = batch_of(world.objective, world.table, size=8)
    short = World(replace(world.objective, block_lengths=(12,)), params, world.table)
    candidates = world.candidates(params, plain)
    whole, cut = world.joined(plain, candidates), short.joined(plain, candidates)
    assert cut["gold_BKWT"].shape[-1] == 10 and whole["gold_BKWT"].shape[-1] == 62
    body_BK = (cut["block_length_U"] - cut["block_body_U"] - 1)[cut["slot_BK"]]
    for b, k in np.ndindex(body_BK.shape):
        length = body_BK[b, k]
        inside_WT = np.arange(3)[:, None] + np.arange(10) < length
        np.testing.assert_array_equal(cut["gold_BKWT"][b, k], whole["gold_BKWT"][b, k, :, :10] & inside_WT)
    assert cut["gold_BKWT"].sum() < whole["gold_BKWT"].sum()
    np.testing.assert_array_equal(cut["correct_BL"], whole["correct_BL"])


def test_an_answer_of_more_wordpieces_than_allowed_is_a_correct_block_without_a_span():
    world, params = facts_world(beam=12, read=12)
    plain = batch_of(world.objective, world.table)
    candidates = world.candidates(params, plain)
    for answer, spans in (("peter came from", 8), ("born. peter came from", 0)):
        ready = world.joined(plain | {"host_answers_B": _objects([(answer,)] * 8)}, candidates)
        assert ready["correct_BL"].sum() == 8 and ready["gold_BKWT"].sum() == spans


def test_each_vector_of_the_beam_goes_once_and_its_slot_finds_it():
    vector_NE = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    id_BL = np.array([[4, 2, 0], [2, 8, 0]], np.int32)
    valid_BL = np.array([[True, True, False], [True, True, True]])
    found = beam_vectors(Stored(vector_NE), id_BL, valid_BL, (3, 6, 16))
    assert found["vector_UE"].shape == (6, 3) and not found["vector_UE"][4:].any()
    at_BL = found["vector_UE"][found["vector_slot_BL"]]
    np.testing.assert_array_equal(at_BL[valid_BL], vector_NE[id_BL[valid_BL]])
    nothing = beam_vectors(Stored(vector_NE), id_BL, np.zeros_like(valid_BL), (3,))
    assert not nothing["vector_UE"].any() and not nothing["vector_slot_BL"].any()


def test_a_beam_beyond_the_corpus_holds_every_block_once():
    world, params = facts_world(beam=40, read=2)
    batch = world.batch(params)
    assert batch["valid_BL"].sum(axis=1).tolist() == [world.table.rows] * 8
    assert (batch["correct_BL"].sum(axis=1) == 1).all() and not batch["correct_BL"][~batch["valid_BL"]].any()
    assert batch["vector_UE"].shape[0] == 32, "no more than the corpus, rounded up"


def test_frozen_blocks_stay_bit_for_bit_while_the_question_side_learns(facts):
    world, params = facts
    before = {name: tree_hash(params["retriever"][name]) for name in ("query", "block")}
    assert before["query"] == before["block"], "two towers start alike"
    proof = tree_hash(world.objective.frozen(params))
    after, _ = trained(world, params, steps=3)
    changed = {name: tree_hash(after["retriever"][name]) != before[name] for name in before}
    assert changed == {"query": True, "block": False} and tree_hash(world.objective.frozen(after)) == proof
    assert tree_hash(after["joint"]) != tree_hash(params["joint"])


def test_what_is_frozen_is_in_no_group_and_the_rest_in_one(facts):
    world, params = facts
    trains = facts_world(vectors="blocks", train_documents=True)[0].objective
    for objective, frozen in ((world.objective, {"block"}), (trains, set())):
        assert objective.frozen(params).keys() == frozen
        moving = parts_of(params, objective.groups())
        leaves = sum(len(jax.tree.leaves(tree)) for tree in (moving, objective.frozen(params)))
        assert leaves == len(jax.tree.leaves(params)) and set(objective.groups().values()) == {"retriever", "joint"}


def test_parts_are_put_back_where_they_were():
    tree = {"a": {"x": 1, "y": 2}, "b": 3}
    assert with_parts(tree, {"a/x": 5, "b": 4}) == {"a": {"x": 5, "y": 2}, "b": 4}
    assert parts_of(tree, ["a/y", "a"]) == {"a/y": 2, "a": {"x": 1, "y": 2}} and tree["a"]["x"] == 1


def test_a_warm_start_scores_as_the_run_it_comes_from(facts):
    world, params = facts
    earlier = program(REALM, "init")(jax.random.key(5))
    started = {part: world.objective.taken(part, params[part], earlier[part]) for part in params}
    batch = {name: array for name, array in world.batch(params).items() if name.startswith("query_")}
    close(program(world.objective, "embed_queries")(started, batch), program(REALM, "embed_queries")(earlier, batch))
    tower, query, block = earlier["retriever"]["tower"], started["retriever"]["query"], started["retriever"]["block"]
    close(tower, query, rtol=0)
    close(tower, block, rtol=0)
    pointers = [jax.tree.leaves(tree)[0].unsafe_buffer_pointer() for tree in (query, block)]
    assert pointers[0] != pointers[1], "a donated buffer may be given away only once"
    close(started["joint"]["bert"], earlier["joint"]["bert"], rtol=0)
    close(started["joint"]["head"], params["joint"]["head"], rtol=0)
    again = {part: world.objective.taken(part, earlier.get(part), started[part]) for part in params}
    close(again, started, rtol=0)
    shared = replace(QA, retriever=replace(QA.retriever, shared=True), vectors="blocks", train_documents=True)
    assert shared.taken("retriever", None, earlier["retriever"]) is earlier["retriever"]
    assert largest(started["joint"]["head"]) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"read": 7}, "read=7 and beam=6"),
        ({"read": 0}, "read=0"),
        ({"read_in_training": 4}, "read_in_training=4 and read=3"),
        ({"read_in_training": 0}, "read_in_training=0"),
        ({"block_lengths": (100,)}, "122 places together"),
        ({"train_documents": True}, "vectors='batch'"),
        ({"retriever": REALM.retriever}, "wanted retriever.shared=False"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ObjectiveError, match=message):
        replace(QA, **changes)
