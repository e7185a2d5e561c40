"""Span F1 as conlleval and seqeval define it, against cases counted by hand."""

import pytest

from realm.evaluation.span_f1 import Counts, SpanF1Error, span_f1


def rows(*sentences):
    return [sentence.split() for sentence in sentences]


# gold, predicted -> right, predicted, gold; the first is the example of seqeval's own README (F1 0.5).
CASES = [
    (
        rows("O O O B-MISC I-MISC I-MISC O", "B-PER I-PER O"),
        rows("O O B-MISC I-MISC I-MISC I-MISC O", "B-PER I-PER O"),
        (1, 2, 2),
    ),
    (rows("B-PER I-PER"), rows("B-PER I-PER"), (1, 1, 1)),
    (rows("B-PER I-PER"), rows("B-LOC I-LOC"), (0, 1, 1)),  # right words, wrong type
    (rows("B-PER I-PER"), rows("B-PER O"), (0, 1, 1)),  # an end that is off is no half point
    (rows("B-PER I-PER"), rows("B-PER B-PER"), (0, 2, 1)),
    (rows("B-PER I-PER O"), rows("I-PER I-PER O"), (1, 1, 1)),  # conlleval: I- begins an entity where none is open
    (rows("B-PER O B-LOC"), rows("O O O"), (0, 0, 2)),
    (rows("O O"), rows("B-PER O"), (0, 1, 0)),
    (rows("O O"), rows("O O"), (0, 0, 0)),
    (rows("B-A B-A B-B", "B-A"), rows("B-A O B-B", "B-B"), (2, 3, 4)),
]


@pytest.mark.parametrize("gold, predicted, wanted", CASES)
def test_counts_by_hand(gold, predicted, wanted):
    found = span_f1(gold, predicted).all
    assert found == Counts(*wanted)
    right, out, there = wanted
    precision, recall = (right / out if out else 0), (right / there if there else 0)
    assert (found.precision, found.recall) == (precision, recall)
    assert found.f1 == pytest.approx(2 * precision * recall / (precision + recall) if right else 0)


def test_types_are_counted_apart_and_together():
    found = span_f1(rows("B-A B-A B-B", "B-A"), rows("B-A O B-B", "B-B"))
    assert found.kinds == ["A", "B"]
    assert (found.of("A"), found.of("B")) == (Counts(1, 1, 3), Counts(1, 2, 1))
    assert found.untyped == Counts(3, 3, 4)  # the last one has the right words
    told = found.told()
    assert told["sentences"] == 2 and told["all"]["f1"] == pytest.approx(4 / 7)
    assert told["kinds"]["A"] == {"precision": 1.0, "recall": 1 / 3, "f1": 0.5, "right": 1, "predicted": 1, "gold": 3}


@pytest.mark.parametrize(
    "predicted, said",
    [
        (rows("O O"), "found 1 sentences and more gold ones"),
        (rows("O O", "O", "O"), "found 2 sentences and more predicted ones"),
        (rows("O O", "O O"), "sentence 1: found 2 predicted labels, wanted 1"),
    ],
)
def test_labels_of_other_sentences_are_refused(predicted, said):
    with pytest.raises(SpanF1Error, match=said):
        span_f1(rows("O O", "O"), predicted)
