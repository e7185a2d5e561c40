"""The inverse cloze task: what is cut out of what, and a softmax over every block of the global batch."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.objectives.ict import Ict
from realm.text.plan import example_rng
from tests.objectives.small import (
    RETRIEVER,
    batch_of,
    build_table,
    close,
    dropping,
    gradient_of,
    loss_of,
    on_devices,
    program,
)

ICT = Ict(retriever=RETRIEVER, query_length=64, batch_lengths=(64,))
PARAMS = program(ICT, "init")(jax.random.key(0))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("ict"), copies=4)


@pytest.fixture(scope="module")
def units(table):
    return ICT.units(table)


@pytest.fixture(scope="module")
def batch(table):
    """Sixteen examples, half of them with the sentence left in its block."""
    return batch_of(replace(ICT, removal_probability=0.5), table, size=16)


def real(example, name):
    """The wordpieces of an example's query or block, padding off; what is off must be padding."""
    token_T, length = example[f"{name}_token_T"], int(example[f"{name}_length"])
    assert not token_T[length:].any()
    return token_T[:length].tolist()


def framed(special, *parts):
    whole = [special.cls]
    for part in parts:
        whole += [*np.asarray(part).tolist(), special.sep]
    return whole


def places_of(unit, query):
    """Which sentences of the block read like this."""
    return [n for n, (start, end) in enumerate(unit.sentence_S2) if unit.token_T[start:end].tolist() == query]


@pytest.mark.parametrize("removal", [1.0, 0.0])
def test_the_query_is_a_whole_sentence_and_its_block_has_it_or_not(units, removal):
    objective = replace(ICT, removal_probability=removal)
    for index in range(len(units)):
        unit = units[index]
        example = objective.example(unit, example_rng(0, 0, index), 64)
        query = real(example, "query")
        places = places_of(unit, query[1:-1])
        assert places and query == framed(unit.special, query[1:-1])
        assert example["cut"] == bool(removal) and example["block_body"] == 2 + len(unit.title_T)
        bodies = [unit.token_T]
        if removal:
            bodies = [np.delete(unit.token_T, np.arange(*unit.sentence_S2[n])) for n in places]
            assert all(0 < len(body) < len(unit.token_T) for body in bodies)
        assert real(example, "block") in [framed(unit.special, unit.title_T, body) for body in bodies]


def test_nine_in_ten_sentences_are_cut_out_and_each_is_as_likely_as_the_others(units):
    index = next(i for i in range(len(units)) if len(units[i].sentence_S2) == 3)
    unit, draws = units[index], 3000
    cut, chosen = 0, np.zeros(3)
    for epoch in range(draws):
        example = ICT.example(unit, example_rng(0, epoch, index), 64)
        cut += bool(example["cut"])
        (place,) = places_of(unit, real(example, "query")[1:-1])
        chosen[place] += 1
    assert cut / draws == pytest.approx(0.9, abs=0.02)
    np.testing.assert_allclose(chosen / draws, 1 / 3, atol=0.04)


def test_blocks_of_one_sentence_are_no_units(table, units):
    sentences_N = np.diff(table.sentence_offset_N1)
    taken = sorted(units[i].row for i in range(len(units)))
    first_N = table.duplicate_N == np.arange(table.rows)
    assert taken == np.flatnonzero((sentences_N > 1) & first_N & ~table.heldout_N).tolist()
    assert units.counts["too few sentences"] > 0 and min(len(units[i].sentence_S2) for i in range(len(units))) == 2


def test_a_long_sentence_loses_its_tail_and_nothing_else(units):
    unit = max((units[i] for i in range(len(units))), key=lambda unit: np.diff(unit.sentence_S2).max())
    short = replace(ICT, query_length=12, removal_probability=1.0)
    for seed in range(4):
        cut, whole = (
            o.example(unit, np.random.default_rng(seed), 64) for o in (short, replace(short, query_length=64))
        )
        sentence = real(whole, "query")[1:-1]
        assert real(cut, "query") == framed(unit.special, sentence[:10])
        assert real(cut, "block") == real(whole, "block")


def cross_entropy(params, batch):
    """(loss_B, whether each sentence finds its block) in float64, with loops."""
    q_BE = np.asarray(program(ICT, "embed_queries")(params, batch), np.float64)
    blocks = {f"{name}_N": batch[f"block_{name}_B"] for name in ("length", "body")}
    blocks["token_NT"] = batch["block_token_BT"]
    v_BE = np.asarray(program(ICT, "embed_items")(params, blocks), np.float64)
    loss_B, correct_B = [], []
    for b, q_E in enumerate(q_BE):
        score_B = v_BE @ q_E
        loss_B.append(np.log(np.exp(score_B).sum()) - score_B[b])
        correct_B.append(score_B.argmax() == b)
    return np.array(loss_B), np.array(correct_B)


def test_loss_and_accuracies_equal_a_plain_softmax_over_the_batch(batch):
    (loss, metrics), _ = gradient_of(ICT, PARAMS, batch)
    loss_B, correct_B = cross_entropy(PARAMS, batch)
    cut_B = batch["cut_B"]
    assert 0 < cut_B.sum() < 16 and 0 < correct_B.sum() < 16
    assert loss == pytest.approx(loss_B.mean(), rel=1e-5) and metrics["weight"] == 16
    assert metrics["accuracy"] == pytest.approx(correct_B.mean())
    assert metrics["cut"] == pytest.approx(cut_B.mean())
    assert metrics["cut_and_correct"] == pytest.approx((correct_B & cut_B).mean())


def test_the_softmax_is_over_the_global_batch_on_any_number_of_devices(batch):
    (loss, metrics), gradient = gradient_of(ICT, PARAMS, batch)
    (split_loss, split_metrics), split_gradient = on_devices(ICT, PARAMS, batch, 8)
    assert split_loss == pytest.approx(float(loss), rel=1e-6)
    close(split_metrics, metrics, rtol=1e-6)
    close(split_gradient, gradient, rtol=1e-4, atol=1e-5)
    # with two rows a device a softmax of its own would be far below
    parts = [cross_entropy(PARAMS, {n: a[i : i + 2] for n, a in batch.items()})[0].mean() for i in range(0, 16, 2)]
    assert np.mean(parts) < 0.8 * loss


def test_padding_changes_nothing(batch):
    wide = dict(batch)
    for name, length in (("query_token_BT", 80), ("block_token_BT", 96)):
        wide[name] = np.pad(batch[name], ((0, 0), (0, length - 64)), constant_values=1234)
    close(loss_of(ICT, PARAMS, wide), loss_of(ICT, PARAMS, batch), rtol=1e-5)


def test_dropout_needs_a_key(batch):
    dropped = dropping(ICT, 0.3)
    plain = loss_of(dropped, PARAMS, batch)
    close(plain, loss_of(dropped, PARAMS, batch), rtol=0)
    close(plain, loss_of(ICT, PARAMS, batch), rtol=1e-5)
    first, second, again = (float(loss_of(dropped, PARAMS, batch, jax.random.key(seed))[0]) for seed in (0, 1, 0))
    assert first == again and abs(first - second) > 1e-3 and abs(first - plain[0]) > 1e-3


def test_a_title_that_fills_the_block_leaves_room_for_its_frame(units):
    long = units[0]._replace(title_T=np.full(100, 5, np.int32))
    example = ICT.example(long, example_rng(0, 0, 0), 64)
    assert example["block_length"] == 64 and example["block_body"] == 63
    assert real(example, "block")[-2:] == [long.special.sep, long.special.sep]
