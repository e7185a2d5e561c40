"""What may be an example: compared with a plain loop over the table, and counted by reason."""

import numpy as np
import pytest

from realm.text.masks import RandomSpan, RandomToken, SalientSpan
from realm.text.units import BlockUnits, SentenceUnits, UnitsError
from tests.text.text_tables import small_table


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return small_table(tmp_path_factory.mktemp("units"))


def blocks_of(table, heldout):
    return [
        row
        for row in range(table.rows)
        if (heldout is None or bool(table.heldout_N[row]) == heldout) and table.duplicate_N[row] == row
    ]


@pytest.mark.parametrize("heldout", [False, True, None])
@pytest.mark.parametrize("min_sentences", [1, 3])
def test_block_units(table, heldout, min_sentences):
    units = BlockUnits(table, heldout=heldout, min_sentences=min_sentences)
    rows = [row for row in blocks_of(table, heldout) if len(table.sentences(row)) >= min_sentences]
    assert [unit.row for unit in units] == rows and len(units) == len(rows) > 0
    np.testing.assert_array_equal(units.length_N, table.length_N[rows])
    for unit in units:
        np.testing.assert_array_equal(unit.token_T, table.token_T(unit.row))
        np.testing.assert_array_equal(unit.title_T, table.title_T(unit.row))
        np.testing.assert_array_equal(unit.sentence_S2, table.sentences(unit.row)[:, :2])
        np.testing.assert_array_equal(unit.span_P2, table.spans(unit.row)[:, 1:3])
        np.testing.assert_array_equal(unit.support_P, table.support(unit.row))
        assert len(unit.title_T) + len(unit.token_T) + 3 == table.length_N[unit.row]


def test_block_counts_add_up(table):
    for heldout in (False, True, None):
        units = BlockUnits(table, heldout=heldout, min_sentences=2)
        assert sum(units.counts.values()) == table.rows and units.counts["taken"] == len(units)
    copies = BlockUnits(table, heldout=None).counts["duplicate"]
    assert copies == sum(table.block_id(row).startswith("copy-") for row in range(table.rows)) > 0


@pytest.mark.parametrize("masking", [SalientSpan(), SalientSpan(supported=True), RandomSpan(), RandomToken()])
@pytest.mark.parametrize("heldout", [False, True, None])
def test_sentence_units(table, masking, heldout):
    max_tokens, max_predictions = 40, 3
    units = SentenceUnits(table, masking, heldout=heldout, max_tokens=max_tokens, max_predictions=max_predictions)
    shortest = table.min_sentence_tokens
    wanted = []
    for row in blocks_of(table, heldout):
        for ordinal, (start, end, *_) in enumerate(table.sentences(row)):
            spans = [
                (span[1], span[2])
                for span, support in zip(table.spans(row), table.support(row), strict=True)
                if span[0] == ordinal
                and span[2] - span[1] <= max_predictions
                and (support > 0 or not getattr(masking, "supported", False))
            ]
            fits = shortest <= end - start <= max_tokens - 2
            if fits and (spans or not isinstance(masking, SalientSpan)):
                wanted.append((row, ordinal))
    assert [(unit.row, unit.sentence) for unit in units] == wanted and len(units) == len(wanted) > 0
    assert units.length_N.dtype == np.int32
    for unit, length in zip(units, units.length_N, strict=True):
        start, end = table.sentences(unit.row)[unit.sentence, :2]
        np.testing.assert_array_equal(unit.token_T, table.token_T(unit.row)[start:end])
        assert len(unit.token_T) == len(unit.word_T) == length - 2 <= max_tokens - 2


def test_sentence_counts_add_up(table):
    sentences = len(table.sentence_S4)
    units = SentenceUnits(table, SalientSpan(), max_tokens=40, max_predictions=3)
    assert sum(units.counts.values()) == sentences and units.counts["taken"] == len(units)
    assert set(units.counts) == {
        "taken",
        "held out",
        "duplicate",
        "sentence too short",
        "sentence too long",
        "nothing to mask",
    }
    assert all(units.counts[reason] > 0 for reason in ("held out", "duplicate", "sentence too long", "nothing to mask"))


def test_words_and_spans_of_a_sentence(table):
    """Pieces that start with ## carry on the word before them; spans are those of the sentence, from its start."""
    tokenizer = table.tokenizer
    spans_seen = 0
    for unit in SentenceUnits(table, RandomToken(), heldout=None, max_tokens=96):
        pieces = [tokenizer.piece(int(number)) for number in unit.token_T]
        word = -1
        for place, piece in enumerate(pieces):
            word += not piece.startswith("##")
            assert unit.word_T[place] == word
        start = table.sentences(unit.row)[unit.sentence, 0]
        here = table.spans(unit.row)[:, 0] == unit.sentence
        np.testing.assert_array_equal(unit.span_P2 + start, table.spans(unit.row)[here, 1:3])
        np.testing.assert_array_equal(unit.support_P, table.support(unit.row)[here])
        assert ((unit.span_P2 >= 0) & (unit.span_P2 <= len(pieces))).all()
        spans_seen += len(unit.span_P2)
    assert spans_seen > 20


def test_heldout_and_training_never_share_a_block(table):
    taken = [{unit.row for unit in BlockUnits(table, heldout=heldout)} for heldout in (False, True)]
    assert taken[0] and taken[1] and not taken[0] & taken[1]
    texts = [{(table.title(row), table.text(row)) for row in rows} for rows in taken]
    assert not texts[0] & texts[1]


def test_out_of_range(table):
    units = SentenceUnits(table, RandomToken(), max_tokens=40)
    for wrong in (-1, len(units)):
        with pytest.raises(IndexError, match=f"found unit {wrong}"):
            units[wrong]
    with pytest.raises(UnitsError, match="max_tokens 2"):
        SentenceUnits(table, RandomToken(), max_tokens=2)


def test_some_units_alone(table):
    units = SentenceUnits(table, SalientSpan(), max_tokens=40, max_predictions=3)
    some = units.only([5, 2])
    assert len(some) == 2 and len(units) > 5 and some.length_N.tolist() == units.length_N[[5, 2]].tolist()
    assert [(unit.row, unit.sentence) for unit in some] == [(units[i].row, units[i].sentence) for i in (5, 2)]
    with pytest.raises(IndexError):
        some[2]


def test_the_block_of_each_unit(table):
    units = SentenceUnits(table, SalientSpan(), max_tokens=40, max_predictions=3)
    assert units.row_N.tolist() == [unit.row for unit in units]
