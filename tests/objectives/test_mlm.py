"""Masked language modelling: BERT's proportions, true targets, and a mean over all masks."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from realm.models.masked_lm import masked_lm
from realm.objectives.mlm import Mlm
from realm.text.masks import SalientSpan
from realm.text.plan import example_rng
from tests.objectives.small import (
    JOINT,
    batch_of,
    build_table,
    close,
    dropping,
    gradient_of,
    loss_of,
    on_devices,
    program,
    quick,
)

MLM = Mlm(joint=JOINT, batch_lengths=(64,))
PARAMS = program(MLM, "init")(jax.random.key(0))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return build_table(tmp_path_factory.mktemp("mlm"))


@pytest.fixture(scope="module")
def units(table):
    return MLM.units(table)


@pytest.fixture(scope="module")
def batch(table):
    batch = batch_of(MLM, table)
    assert len(set(batch["weight_BM"].sum(axis=1))) > 1, "the blocks must differ in the number of their masks"
    return batch


def count_of(example):
    """The number of masks; those come first, and the rest has weight 0."""
    count = int(example["weight_M"].sum())
    assert example["weight_M"].tolist() == [1.0] * count + [0.0] * (len(example["weight_M"]) - count)
    return count


def test_a_block_is_shown_whole_but_for_15_percent_of_it(units):
    for index in range(len(units)):
        unit = units[index]
        example = MLM.example(unit, example_rng(0, 0, index), 64)
        count, special = count_of(example), unit.special
        assert count == max(1, round(0.15 * len(unit.token_T)))
        position = example["position_M"][:count]
        assert len(set(position.tolist())) == count and position.min() >= 1 and position.max() <= len(unit.token_T)
        restored_T = example["token_T"].copy()
        restored_T[position] = example["target_M"][:count]
        plain = [special.cls, *unit.token_T.tolist(), special.sep]
        assert restored_T.tolist() == plain + [special.pad] * (64 - len(plain)) and example["length"] == len(plain)


def test_every_place_of_a_block_is_masked_at_times(units):
    draws = [MLM.example(units[3], example_rng(0, epoch, 3), 64) for epoch in range(150)]
    seen = {place for example in draws for place in example["position_M"][: count_of(example)].tolist()}
    assert seen == set(range(1, len(units[3].token_T) + 1))


def test_of_the_masked_eight_in_ten_are_hidden_one_is_random_and_one_is_kept(units):
    shown, target = [], []
    for epoch in range(25):
        for index in range(len(units)):
            example = MLM.example(units[index], example_rng(1, epoch, index), 64)
            count = count_of(example)
            shown.append(example["token_T"][example["position_M"][:count]])
            target.append(example["target_M"][:count])
    special = units[0].special
    shown, target = np.concatenate(shown), np.concatenate(target)
    assert len(shown) > 15_000
    hidden, kept = shown == special.mask, shown == target
    random = shown[~hidden & ~kept]
    assert hidden.mean() == pytest.approx(0.8, abs=0.012)
    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    assert len(random) / len(shown) == pytest.approx(0.1, abs=0.01)
    # from the whole vocabulary, and from nothing else
    assert random.min() >= 0 and random.max() < special.size
    quarter = np.histogram(random, bins=4, range=(0, special.size))[0] / len(random)
    np.testing.assert_allclose(quarter, 0.25, atol=0.05)


def test_an_example_depends_on_seed_epoch_and_index_alone(units):
    def example(*numbers):
        return MLM.example(units[numbers[2]], example_rng(*numbers), 64)

    close(example(0, 0, 5), example(0, 0, 5), rtol=0)
    others = [example(1, 0, 5), example(0, 1, 5)]
    assert all((other["position_M"] != example(0, 0, 5)["position_M"]).any() for other in others)


def test_a_block_that_is_too_long_loses_its_tail(units):
    unit = units[int(np.argmax(units.length_N))]
    example = MLM.example(unit, np.random.default_rng(0), 24)
    count = count_of(example)
    assert count == round(0.15 * 22) == len(example["weight_M"]) and example["length"] == 24
    restored_T = example["token_T"].copy()
    restored_T[example["position_M"]] = example["target_M"]
    assert restored_T.tolist() == [unit.special.cls, *unit.token_T[:22].tolist(), unit.special.sep]


def plain_log_probs(batch):
    """log p of the targets in float64 from the logits at every place; only real tokens are attended to."""

    @quick
    def logits(params, token_BT, mask_BT):
        apply = masked_lm(JOINT).apply
        return apply(params, "logits", apply(params, "hidden", token_BT, mask_BT, 0 * token_BT))

    mask_BT = np.arange(batch["token_BT"].shape[1]) < batch["length_B"][:, None]
    logit_BTV = np.asarray(logits(PARAMS["joint"], batch["token_BT"], mask_BT), np.float64)
    log_prob_BTV = logit_BTV - np.log(np.exp(logit_BTV).sum(axis=2, keepdims=True))
    rows = np.arange(len(mask_BT))[:, None]
    return log_prob_BTV[rows, batch["position_BM"], batch["target_BM"]]


def test_the_loss_is_a_mean_over_all_masks_not_over_blocks(batch):
    (loss, metrics), _ = gradient_of(MLM, PARAMS, batch)
    log_prob_BM, weight_BM = plain_log_probs(batch), batch["weight_BM"]
    np.testing.assert_allclose(program(MLM, "log_probs")(PARAMS, batch), log_prob_BM, atol=1e-5)
    assert metrics["weight"] == weight_BM.sum()
    assert loss == pytest.approx(-(log_prob_BM * weight_BM).sum() / weight_BM.sum(), rel=1e-5)
    per_block = -((log_prob_BM * weight_BM).sum(axis=1) / weight_BM.sum(axis=1)).mean()
    assert loss != pytest.approx(per_block, rel=1e-4)


def test_a_batch_without_masks_is_no_division_by_zero(batch):
    (loss, metrics), gradient = gradient_of(MLM, PARAMS, batch | {"weight_BM": 0 * batch["weight_BM"]})
    assert loss == 0 and metrics["weight"] == 0
    assert all(not leaf.any() for leaf in jax.tree.leaves(gradient))


def test_padding_changes_nothing(table, units, batch):
    """The same blocks as examples of length 96: the same masks, more unused slots, the same loss and gradient."""
    examples = [MLM.example(units[int(i)], example_rng(0, 0, int(i)), 96) for i in batch["host_unit_B"]]
    slots = batch["position_BM"].shape[1]
    for b, example in enumerate(examples):
        assert len(example["weight_M"]) == round(0.15 * 94) > slots and not example["weight_M"][slots:].any()
        for name in ("position", "target", "weight"):
            np.testing.assert_array_equal(example[f"{name}_M"][:slots], batch[f"{name}_BM"][b])
        np.testing.assert_array_equal(example["token_T"][:64], batch["token_BT"][b])
    wide = {name: np.stack([example[short] for example in examples]) for name, short in NAMES.items()}
    (loss, metrics), gradient = gradient_of(MLM, PARAMS, batch)
    (wide_loss, wide_metrics), wide_gradient = gradient_of(MLM, PARAMS, wide)
    assert wide_loss == pytest.approx(float(loss), rel=1e-6) and wide_metrics == metrics
    close(wide_gradient, gradient, rtol=1e-4, atol=1e-6)


NAMES = {
    "token_BT": "token_T",
    "length_B": "length",
    "first_B": "first",
    "position_BM": "position_M",
    "target_BM": "target_M",
    "weight_BM": "weight_M",
}


def test_one_and_eight_devices_agree(batch):
    (loss, metrics), gradient = gradient_of(MLM, PARAMS, batch)
    (split_loss, split_metrics), split_gradient = on_devices(MLM, PARAMS, batch, 8)
    assert split_loss == pytest.approx(float(loss), rel=1e-6) and split_metrics == metrics
    close(split_gradient, gradient, rtol=1e-4, atol=1e-6)


def test_dropout_needs_a_key(batch):
    dropped = dropping(MLM, 0.3)
    plain = loss_of(dropped, PARAMS, batch)[0]
    assert plain == loss_of(dropped, PARAMS, batch)[0]
    assert plain == pytest.approx(float(gradient_of(MLM, PARAMS, batch)[0][0]), rel=1e-6)
    first, second, again = (float(loss_of(dropped, PARAMS, batch, jax.random.key(seed))[0]) for seed in (0, 1, 0))
    assert first == again and abs(first - second) > 1e-4 and abs(first - plain) > 1e-4


def test_it_takes_every_training_block_and_retrieves_nothing(table, units):
    assert len(units) == np.count_nonzero(~table.heldout_N) and MLM.found({"a": 1}, {"b": 2}) == {"a": 1}
    for embed in (replace(MLM).embed_queries, MLM.embed_items):
        with pytest.raises(TypeError, match="retrieves nothing"):
            embed(PARAMS, {})


def hides(table, **changes):
    mlm = replace(MLM, masking=SalientSpan(), max_predictions=3, **changes)
    return mlm, mlm.units(table)


@pytest.mark.parametrize("supported", [False, True])
def test_a_salient_span_is_hidden_and_the_rest_of_its_block_is_the_second_segment(table, supported):
    mlm, _ = hides(table)
    mlm = replace(mlm, masking=SalientSpan(supported=supported))
    units = mlm.units(table)
    assert 0 < len(units) < len(MLM.units(table)) and units.counts["nothing to mask"] > 0
    for index in range(len(units)):
        unit, special = units[index], units[index].special
        example = mlm.example(unit, np.random.default_rng(index), 64)
        count, first = count_of(example), int(example["first"])
        position = example["position_M"][:count]
        assert (example["token_T"][position] == special.mask).all() and (
            example["token_T"] == special.mask
        ).sum() == count
        restored_T = example["token_T"].copy()
        restored_T[position] = example["target_M"][:count]
        sentence = [
            ends
            for ends in unit.sentence_S2.tolist()
            if unit.token_T[slice(*ends)].tolist() == restored_T[1 : first - 1].tolist()
        ]
        (start, end) = sentence[0]
        span = [start + position[0] - 1, start + position[-1]]
        number = unit.span_P2.tolist().index(span)
        assert count == span[1] - span[0] <= 3 and (not supported or unit.support_P[number] > 0)
        rest = np.concatenate([unit.token_T[:start], unit.token_T[end:]]).tolist()[: 64 - 3 - (end - start)]
        whole = [special.cls, *unit.token_T[start:end].tolist(), special.sep, *rest, special.sep]
        assert restored_T.tolist() == whole + [special.pad] * (64 - len(whole)) and example["length"] == len(whole)


def test_the_second_segment_is_told_to_the_encoder(table):
    mlm, _ = hides(table)
    batch = batch_of(mlm, table)
    one = batch | {"first_B": batch["length_B"]}
    assert loss_of(mlm, PARAMS, batch)[0] != pytest.approx(float(loss_of(mlm, PARAMS, one)[0]), rel=1e-5)


def test_a_sentence_longer_than_the_longest_batch_is_not_asked_for(table):
    (short, units), (_, more) = hides(table, batch_lengths=(16,)), hides(table)
    assert 0 < len(units) < len(more)
    for index in range(len(units)):
        assert 0 < count_of(short.example(units[index], np.random.default_rng(0), 16)) <= 3
