"""In-batch negatives: what each question brings, what is right, what is ignored; the loss against a brute force."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.objectives.realm import ObjectiveError
from realm.retrieve import NULL, Candidates, device_arrays
from realm.text.answer_tokens import answer_tokens
from realm.text.question_units import question_unit
from realm.training.feed import collate
from realm.training.step import microbatches
from tests.objectives.open_qa_driver import FACTS, QA, World, facts_world, trained
from tests.objectives.small import batch_of, gradient_of, largest, loss_of, program, text_table

BATCH = {"vectors": "batch", "train_documents": True, "read_in_training": 1}


@pytest.fixture(scope="module")
def facts():
    return facts_world(**BATCH)


def _rows(batch, table):
    """row_BL: the corpus row that each column of each beam is, by its wordpieces alone; NULL for the null block."""
    rows = {tuple(table.token_T(row)): row for row in range(table.rows)}
    at = zip(batch["block_token_UT"], batch["block_body_U"], batch["block_length_U"], strict=True)
    row_U = np.array([rows.get(tuple(token_T[body : length - 1]), NULL) for token_T, body, length in at])
    return row_U[batch["slot_BK"]]


def _holds(table, row, answers):
    token = answer_tokens(table.text(row)).token
    wanted = [answer_tokens(answer).token for answer in answers]
    return any(token[n : n + len(one)] == one for one in wanted for n in range(len(token)))


def test_a_batch_holds_what_each_question_reads_its_right_block_and_its_first_wrong_one(facts):
    world, params = facts
    plain = batch_of(world.objective, world.table)
    candidates = world.candidates(params, plain)
    batch = world.joined(plain, candidates)
    row_BL, wanted = _rows(batch, world.table), set()
    for b, answers in enumerate(plain["host_answers_B"]):
        found = candidates.id_BK[b, 1:].tolist()
        right = next(row for row in range(world.table.rows) if _holds(world.table, row, answers))
        wrong = next(row for row in found if not _holds(world.table, row, answers))
        assert plain["host_rows_B"][b] == range(right, right + 1)
        assert row_BL[b, 0] == found[0], "what is read stands first"
        wanted |= {found[0], right, wrong}
    for b, own in enumerate(plain["host_rows_B"]):
        valid_L = batch["valid_BL"][b]
        assert sorted(row_BL[b, valid_L]) == sorted(wanted), "every block of the batch once, for every question"
        assert set(row_BL[b, batch["correct_BL"][b]]) == set(own), "each has one block about it"
    assert not batch["ignored_BL"].any()
    assert batch["gold_BKWT"].shape[1] == 1 and not (batch["valid_BL"] & (row_BL == NULL)).any()


@pytest.mark.parametrize("negatives", [0, 2])
def test_so_many_wrong_blocks_of_the_beam_come_along(facts, negatives):
    world, params = facts_world(**BATCH, negatives=negatives)
    plain = batch_of(world.objective, world.table, size=1)
    batch = world.joined(plain, candidates := world.candidates(params, plain))
    found = candidates.id_BK[0, 1:].tolist()
    wrong = [row for row in found if not _holds(world.table, row, plain["host_answers_B"][0])]
    expected = {found[0], plain["host_rows_B"][0][0], *wrong[:negatives]}
    assert set(_rows(batch, world.table)[0, batch["valid_BL"][0]]) == expected


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory):
    """(world, params): documents 1 and 2 hold "london", so does the long document 0, in its last block alone."""
    filler = " ".join(f"The year {year} went by." for year in range(1901, 1919))
    long = f"{filler} Anna came from london."
    table = text_table(tmp_path_factory.mktemp("doubt"), long, "Peter saw london.", "In london.", "Maria was born.")
    assert len(table.rows_of_document("0")) > 1
    objective = replace(QA, **BATCH, negatives=1, beam=table.rows, read=2)
    params = program(objective, "init")(jax.random.key(0))
    return World(objective, params, table), params


def _asked(world, params, *units, order=None):
    plain = collate([world.objective.example(unit, None, 24) for unit in units])
    if order is None:
        return world.joined(plain, world.candidates(params, plain))
    id_BK = np.array([[NULL, *order]] * len(units), np.int32)
    return world.joined(plain, Candidates(id_BK, np.ones_like(id_BK, bool), np.zeros(len(units), bool)))


def _unit(world, document=None, answers=("London",)):
    rows = range(0) if document is None else world.table.document_rows(document)
    return question_unit("who came from there?", world.table.tokenizer, answers=answers)._replace(row_R=rows)


def test_only_blocks_of_the_named_document_are_right_and_others_with_the_answer_no_negatives(doubtful):
    world, params = doubtful
    table = world.table
    last = table.rows_of_document("0")[-1]
    peter, london, maria = (table.rows_of_document(name)[0] for name in "123")
    order = [peter, maria, london, last, *table.rows_of_document("0")[:-1]]
    named, other = _unit(world, "0"), _unit(world, "3", ("born",))
    batch = _asked(world, params, named, other, order=order)
    row_BL = _rows(batch, table)
    states = zip(*(batch[f"{name}_BL"][0] for name in ("valid", "correct", "ignored")), strict=True)
    by_row = {row: (c, i) for row, (valid, c, i) in zip(row_BL[0], states, strict=True) if valid}
    assert by_row[last] == (True, False), "its document's block with the answer comes, though it is not read"
    assert by_row[peter] == (False, True) and by_row[maria] == (False, False) and london not in by_row
    assert batch["gold_BKWT"][0, 0].any(), "what is ignored for ranking is read all the same, and holds the answer"
    np.testing.assert_array_equal(row_BL[1][batch["correct_BL"][1]], [maria])


def test_a_question_without_a_document_takes_what_it_found_itself(doubtful):
    world, params = doubtful
    table = world.table
    peter, london, maria = (table.rows_of_document(name)[0] for name in "123")
    rest = [row for row in range(table.rows) if row not in (peter, london, maria)]
    batch = _asked(world, params, _unit(world), order=[maria, london, peter, *rest])
    row_L = _rows(batch, table)[0]
    assert row_L[0] == maria and set(row_L[batch["correct_BL"][0]]) == {london}, "the first one found"
    assert not batch["ignored_BL"].any()
    nowhere = _asked(world, params, _unit(world, answers=("zanzibar",)), order=[maria, london, peter, *rest])
    assert not nowhere["correct_BL"].any() and not nowhere["ignored_BL"].any()


def test_a_document_that_holds_no_answer_is_as_none(doubtful):
    world, params = doubtful
    table = world.table
    order = [table.rows_of_document("3")[0], table.rows_of_document("1")[0]]
    order += [row for row in range(table.rows) if row not in order]
    batch = _asked(world, params, _unit(world, "3"), order=order)
    row_L = _rows(batch, table)[0]
    assert set(row_L[batch["correct_BL"][0]]) == {order[1]}


def test_the_loss_is_a_softmax_over_the_batch_without_what_is_ignored(doubtful):
    world, params = doubtful
    batch = _asked(world, params, _unit(world, "0"), _unit(world, "3", ("born",)), _unit(world, "2"))
    assert batch["ignored_BL"].any()
    _, metrics = loss_of(world.objective, params, batch)
    score_BL = np.asarray(program(world.objective, "beam_scores")(params, batch), np.float64)
    row_BL, vectors = _rows(batch, world.table), world.vectors.vector_NE
    queries = {name: array for name, array in batch.items() if name.startswith("query_")}
    q_BE = np.asarray(program(world.objective, "embed_queries")(params, queries))
    expected = []
    for b in range(3):
        valid_L = batch["valid_BL"][b]
        np.testing.assert_allclose(score_BL[b, valid_L], vectors[row_BL[b, valid_L]] @ q_BE[b], rtol=1e-4, atol=1e-4)
        weight_L = np.exp(score_BL[b]) * (valid_L & ~batch["ignored_BL"][b])
        expected.append(-np.log(weight_L[batch["correct_BL"][b]].sum() / weight_L.sum()))
    assert metrics["retriever_loss"] == pytest.approx(np.mean(expected), rel=1e-4) and metrics["weight"] == 3


def test_a_question_with_a_span_to_read_and_no_right_block_counts_once(doubtful):
    world, params = doubtful
    batch = _asked(world, params, _unit(world, "0"))
    nothing = batch | {"correct_BL": np.zeros_like(batch["correct_BL"])}
    nothing["gold_BKWT"] = np.zeros_like(batch["gold_BKWT"])
    nothing["gold_BKWT"][0, 0, 0, 0] = True
    loss, metrics = loss_of(world.objective, params, nothing)
    assert metrics["weight"] == 1.0 and metrics["no_correct_block"] == 1.0 and metrics["retriever_loss"] == 0.0
    assert loss == pytest.approx(metrics["reader_loss"]) and loss > 0


def test_microbatches_keep_all_blocks_of_the_batch_as_negatives(facts):
    world, params = facts
    batch = world.batch(params)
    shared, parts = microbatches(batch, 2)
    whole, metrics = loss_of(world.objective, params, batch)
    halves = [loss_of(world.objective, params, shared | {n: a[half] for n, a in parts.items()}) for half in (0, 1)]
    assert sum(metrics["weight"] for _, metrics in halves) == metrics["weight"] == 8
    assert sum(loss * metrics["weight"] for loss, metrics in halves) / 8 == pytest.approx(float(whole), rel=1e-5)


@pytest.mark.parametrize("documents", [True, False])
def test_both_towers_learn_or_the_question_side_alone(documents):
    world, params = facts_world(**BATCH | {"train_documents": documents})
    _, gradient = gradient_of(world.objective, params, world.batch(params))
    assert largest(gradient["retriever"]["query"]) > 1e-3
    assert (largest(gradient["retriever"]["block"]) > 1e-3) == documents


def test_training_ranks_the_right_block_first(facts):
    """Of the twelve people: who is asked for stands first of all blocks after training, and did not before."""
    world, params = facts
    after, losses = trained(world, params)
    units = world.objective.units(world.table)
    plain = collate([world.objective.example(units[n], None, 24) for n in range(len(units))])
    right_B = np.array([row_R[0] for row_R in plain["host_rows_B"]])

    def first(params):
        fresh = World(world.objective, params, world.table)
        return np.mean(fresh.candidates(params, plain).id_BK[:, 1] == right_B)

    assert len(right_B) == 2 * len(FACTS)
    assert first(params) < 0.5 and first(after) > 0.9 and losses[-1] < 0.5 * losses[0]


def test_an_answer_is_found_by_stored_vectors_from_all_that_is_to_be_read(facts):
    world, params = facts
    stored, _ = facts_world()
    asked = device_arrays(batch_of(world.objective, world.table))
    candidates = world.candidates(params, asked)
    ready, other = world.joined(asked, candidates), stored.joined(asked, candidates)
    assert ready.keys() == other.keys() and "vector_UE" in ready
    for name, array in other.items():
        np.testing.assert_array_equal(ready[name], array)


def test_what_there_is_no_number_of_is_refused():
    with pytest.raises(ObjectiveError, match="negatives=-1"):
        replace(QA, negatives=-1)
