"""REALM up to the loss: the masked example, who becomes a candidate, what retriever and reader are shown."""

import dataclasses
from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.models.masked_lm import masked_lm
from realm.objectives.ict import Ict
from realm.objectives.realm import ObjectiveError, block_arrays, reader_inputs
from realm.retrieve import NULL, distinct_sizes
from realm.text.masks import RandomSpan, RandomToken, SalientSpan
from realm.text.packing import pack_blocks
from realm.text.plan import example_rng
from tests.objectives.small import (
    JOINT,
    REALM,
    RETRIEVER,
    batch_of,
    build_table,
    dropping,
    exact_index,
    loss_of,
    program,
    quick,
    retrieved,
    text_table,
)

PARAMS = program(REALM, "init")(jax.random.key(0))
WAYS = [SalientSpan(), SalientSpan(supported=True), RandomSpan(), RandomToken()]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Every block twice: the second half of the documents are copies of the first."""
    return build_table(tmp_path_factory.mktemp("realm"), copies=40)


@pytest.fixture(scope="module")
def found(table):
    """(batch, candidates) of eight sentences."""
    return retrieved(REALM, PARAMS, table, batch_of(REALM, table))


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.parametrize("masking", WAYS, ids=str)
def test_an_example_hides_what_was_chosen_and_asks_for_exactly_that(table, masking):
    objective = replace(REALM, masking=masking)
    units = objective.units(table)
    special, length = table.tokenizer, objective.batch_lengths[-1]
    assert len(units) > 50
    longest = 0
    for index, unit in enumerate(units):
        hidden_M = masking.choose(unit, example_rng(0, 0, index), objective.max_predictions)
        example = objective.example(unit, example_rng(0, 0, index), length)
        count, tokens = len(hidden_M), len(unit.token_T)
        assert example["own"] == unit.row and example["query_length"] == tokens + 2
        # the true wordpieces back in their places give the plain sentence, so nothing else was touched
        restored_T = example["query_token_T"].copy()
        assert (restored_T[hidden_M + 1] == special.mask).all()
        restored_T[example["position_M"][:count]] = example["target_M"][:count]
        plain = [special.cls, *unit.token_T.tolist(), special.sep]
        assert restored_T.tolist() == plain + [special.pad] * (length - len(plain))
        assert (example["query_token_T"] == special.mask).sum() == count
        assert example["position_M"][:count].tolist() == (hidden_M + 1).tolist()
        assert example["weight_M"].tolist() == [1.0] * count + [0.0] * (objective.max_predictions - count)
        longest = max(longest, count)
    assert longest > 1


def test_an_example_depends_on_seed_epoch_and_index_alone(table):
    units = REALM.units(table)
    for index in range(10):
        same(
            REALM.example(units[index], example_rng(3, 1, index), 40),
            REALM.example(units[index], example_rng(3, 1, index), 40),
        )
    # the same sentence in another batch of another size
    whole, parts = batch_of(REALM, table, size=len(units)), batch_of(REALM, table, size=8, number=2)
    for place, index in enumerate(parts["host_unit_B"]):
        (there,) = np.flatnonzero(whole["host_unit_B"] == index)
        same({n: a[place] for n, a in parts.items()}, {n: a[there] for n, a in whole.items()})
    several = next(i for i in range(len(units)) if len(units[i].span_P2) > 1)
    seen = {bytes(REALM.example(units[several], example_rng(0, e, several), 40)["position_M"]) for e in range(30)}
    assert len(seen) > 1


def test_difficult_characters_are_masked_where_they_stand(tmp_path):
    sentences = {
        "The İstanbul fair 😀 of May 1969 drew a large crowd.": "May 1969",
        "北京 and the cafe\u0301 of René met on 3 March 1921 for talks.": "3 March 1921",
        "An R&amp;D house\r\nwas opened there in July 1888.": "July 1888",
        "It has stood empty ever since 11 May 1969": "11 May 1969",
    }
    table = text_table(tmp_path, *sentences, vocabulary=None)
    units = REALM.units(table)
    assert len(units) == units.counts["taken"] == len(sentences)
    for index, wanted in enumerate(sentences.values()):
        example = REALM.example(units[index], np.random.default_rng(0), 40)
        hidden = example["target_M"][example["weight_M"] > 0]
        assert table.tokenizer.decode(hidden) == wanted.lower()
    # of the last sentence, which has no full stop, the place right before [SEP]
    assert example["position_M"].max() == example["query_length"] - 2


def test_the_own_block_is_never_a_candidate_through_a_whole_epoch(table):
    searcher = exact_index(REALM, PARAMS, table)
    units = REALM.units(table)
    own_found, seen = 0, 0
    for number in range(len(units) // 8):
        batch = batch_of(REALM, table, number=number)
        batch, candidates = retrieved(REALM, PARAMS, table, batch, searcher)
        for b, own in enumerate(batch["own_B"]):
            assert not table.heldout_N[own] and candidates.id_BK[b, 0] == NULL
            assert batch["valid_BK"][b].all(), "the copies of the own block leave room for K - 1 others"
            texts = [(table.title(row), table.text(row)) for row in candidates.id_BK[b, 1:]]
            assert (table.title(own), table.text(own)) not in texts
            shown = batch["block_token_UT"][batch["slot_BK"][b, 1:]]
            np.testing.assert_array_equal(shown, pack_blocks(table, candidates.id_BK[b, 1:], 64)["token_NT"])
            assert (table.duplicate_N == own).sum() == 2, "where the own block is found, so is its copy"
        own_found += int(batch["own_hit_B"].sum())
        seen += len(batch["own_B"])
    assert 0 < own_found < seen
    assert loss_of(REALM, PARAMS, batch)[1]["own_block_hits"] == pytest.approx(batch["own_hit_B"].mean())


def test_two_blocks_leave_one_and_the_null_block(tmp_path):
    table = text_table(tmp_path, "The old school was built in May 1969.", "The new school was built in July 2000.")
    objective = replace(REALM, candidates=8)
    batch, candidates = retrieved(objective, PARAMS, table, batch_of(objective, table, size=2))
    assert candidates.valid_BK.tolist() == [[True, True] + [False] * 6] * 2
    assert candidates.id_BK[:, 1].tolist() == [1 - own for own in batch["own_B"]]
    loss, metrics = loss_of(objective, PARAMS, batch)
    assert np.isfinite(loss) and metrics["candidates"] == 2 and metrics["own_block_hits"] == 1


def plain_reader_input(table, query, row, length):
    """[CLS] query [SEP] body [SEP] as a list, with segments; the body as it fits a packed block of `length`."""
    title = [] if row == NULL else table.title_T(row).tolist()
    body = [] if row == NULL else table.token_T(row).tolist()
    tail = body[: length - 3 - len(title)] + [table.tokenizer.sep]
    return query + tail, [0] * len(query) + [1] * len(tail)


@pytest.mark.parametrize("block_length", [64, 40], ids=["whole bodies", "bodies cut"])
def test_the_reader_sees_query_and_body_without_title_and_without_gaps(table, block_length):
    objective = replace(REALM, block_lengths=(block_length,))
    batch, candidates = retrieved(objective, PARAMS, table, batch_of(objective, table))
    B, K = candidates.id_BK.shape
    shown = jax.device_get(quick(reader_inputs, static_argnums=1)(batch, JOINT.bert.positions))
    cut = 0
    for b in range(B):
        query = batch["query_token_BT"][b][: batch["query_length_B"][b]].tolist()
        for k in range(K):
            row = b * K + k
            real_T = shown["mask_BT"][row]
            tokens, segments = plain_reader_input(table, query, candidates.id_BK[b, k], block_length)
            assert shown["token_BT"][row][real_T].tolist() == tokens
            assert shown["segment_BT"][row][real_T].tolist() == segments
            assert shown["position_BT"][row][real_T].tolist() == list(range(len(tokens)))
            # masked places are asked for by column, and the query's columns are its own
            assert (shown["token_BT"][row][: len(query)] == query).all()
            cut += k > 0 and table.length_N[candidates.id_BK[b, k]] > block_length
    assert (cut > 0) == (block_length == 40)


def test_reader_probabilities_are_those_of_the_plain_sequences(table, found):
    batch, candidates = found
    B, K = candidates.id_BK.shape
    token_FT, segment_FT = np.zeros((2, B * K, 104), np.int32)
    size_F = np.zeros(B * K, int)
    for f in range(B * K):
        b, k = divmod(f, K)
        query = batch["query_token_BT"][b][: batch["query_length_B"][b]].tolist()
        tokens, segments = plain_reader_input(table, query, candidates.id_BK[b, k], 64)
        size_F[f] = len(tokens)
        token_FT[f, : len(tokens)], segment_FT[f, : len(tokens)] = tokens, segments

    @quick
    def logits(params, *sequences, position_FM):
        apply = masked_lm(JOINT).apply
        return apply(params, "logits", apply(params, "hidden", *sequences), position_FM)

    position_FM, mask_FT = np.repeat(batch["position_BM"], K, axis=0), np.arange(104) < size_F[:, None]
    logit_FMV = logits(PARAMS["joint"], token_FT, mask_FT, segment_FT, position_FM=position_FM)
    logit_FMV = np.asarray(logit_FMV, np.float64)
    target_FM = np.repeat(batch["target_BM"], K, axis=0)
    chosen_FM = np.take_along_axis(logit_FMV, target_FM[..., None], axis=2)[..., 0]
    wanted_FM = chosen_FM - np.log(np.exp(logit_FMV).sum(axis=2))
    found_BKM = program(REALM, "log_probs")(PARAMS, batch)
    np.testing.assert_allclose(found_BKM, wanted_FM.reshape(B, K, -1), atol=1e-5)


def test_each_distinct_block_is_embedded_once_and_scores_are_plain_inner_products(found):
    batch, candidates = found
    shapes = []

    class Watched(type(REALM)):
        def embed_items(self, params, blocks, key=None):
            shapes.append(blocks["token_NT"].shape)
            return super().embed_items(params, blocks, key)

    fields = {field.name: getattr(REALM, field.name) for field in dataclasses.fields(REALM)}
    score_BK = np.asarray(program(Watched(**fields), "scores")(PARAMS, batch))
    B, K = batch["slot_BK"].shape
    U = len(batch["block_token_UT"])
    assert shapes == [(U, 64)] and U in distinct_sizes(B, K)
    used = np.unique(batch["slot_BK"])
    assert used[0] == 0 and batch["block_length_U"][0] == 3, "slot 0 is the null block"
    assert len(used) == len(np.unique(candidates.id_BK)) < B * K
    q_BE = np.asarray(program(REALM, "embed_queries")(PARAMS, batch), np.float64)
    for b in range(B):
        blocks = {name: array[batch["slot_BK"][b]] for name, array in block_arrays(batch).items()}
        v_KE = np.asarray(program(REALM, "embed_items")(PARAMS, blocks), np.float64)
        np.testing.assert_allclose(score_BK[b], v_KE @ q_BE[b], atol=1e-4)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_block_embeds_alike_alone_and_among_long_ones_with_dropout_off(table, pooling):
    order = np.argsort(table.length_N)
    alone = pack_blocks(table, order[:1], int(table.length_N[order[0]]))
    among = pack_blocks(table, np.concatenate([order[-7:], order[:1]]), 96)
    plain = replace(REALM, retriever=replace(RETRIEVER, pooling=pooling))
    params = {"retriever": program(plain, "init")(jax.random.key(1))["retriever"]}
    embed = program(dropping(plain, 0.5), "embed_items")
    among_NE = embed(params, among)
    np.testing.assert_allclose(among_NE[-1], embed(params, alone)[0], atol=1e-5)
    np.testing.assert_array_equal(embed(params, among), among_NE)
    for other in (plain, Ict(retriever=plain.retriever)):
        np.testing.assert_allclose(program(other, "embed_items")(params, among), among_NE, atol=1e-6)
    assert np.abs(among_NE[0] - among_NE[-1]).max() > 0.1


def test_the_index_and_the_loss_score_a_candidate_alike(table, found):
    """With fresh vectors the score that search found is the score that the loss computes anew."""
    batch, candidates = found
    query_BE = np.asarray(program(REALM, "embed_queries")(PARAMS, batch))
    hits = exact_index(REALM, PARAMS, table).search(query_BE, table.rows)
    score_BK = np.asarray(program(REALM, "scores")(PARAMS, batch))
    for b, row_K in enumerate(candidates.id_BK):
        stored = dict(zip(hits.id_BK[b].tolist(), hits.score_BK[b].tolist(), strict=True))
        np.testing.assert_allclose(score_BK[b, 1:], [stored[row] for row in row_K[1:].tolist()], atol=1e-4)


def test_more_places_than_the_reader_has_positions_is_refused():
    with pytest.raises(ObjectiveError, match="40 and a block of 80 .* 118 places together, .*positions=112"):
        replace(REALM, block_lengths=(80,))
