"""Answers without a reader: the majority counts what the scorer would count, overlap takes the name not yet said."""

import numpy as np
import pytest

from realm.evaluation.baselines import BaselineError, majority, overlap_answers
from realm.evaluation.scores import exact_match
from realm.protocols import Hits

TEXT = "Ada Lovelace wrote the first program. Charles Babbage built an engine in London. It rained."
SENTENCES = [(0, 37), (38, 80), (81, 91)]
SPANS = [(0, 0, 12), (1, 38, 53), (1, 73, 79)]  # sentence, first and last + 1 character


class Table:
    """One block, and one of a single sentence without names."""

    def text(self, row):
        return TEXT if row == 0 else "Nothing here has a name."

    def sentences(self, row):
        places = SENTENCES if row == 0 else [(0, 24)]
        return np.array([(0, 0, start, end) for start, end in places])

    def spans(self, row):
        return np.array([(s, 0, 0, a, b, 0) for s, a, b in SPANS] if row == 0 else []).reshape(-1, 6)


def hits(*rows):
    row_K = np.array([rows], np.int32)
    return Hits(np.zeros(row_K.shape, np.float32), np.maximum(row_K, 0), row_K >= 0)


def test_offsets_of_this_test_are_those_of_its_text():
    assert [TEXT[a:b] for a, b in SENTENCES][2] == "It rained." and TEXT[73:79] == "London"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who wrote the first program?", "Ada Lovelace"),
        ("Where did Charles Babbage build an engine?", "London"),  # the first name is in the question already
        ("Who built an engine in London?", "Charles Babbage"),
        ("When had it rained?", "It rained."),  # no name in that sentence: all of it
    ],
)
def test_the_answer_is_the_first_new_name_of_the_likest_sentence(question, answer):
    assert overlap_answers(Table(), [question], hits(1, 0), 2) == [answer]


def test_only_the_blocks_that_are_read_count():
    question = "Who wrote the first program?"
    assert overlap_answers(Table(), [question], hits(1, 0), 1) == ["Nothing here has a name."]
    assert overlap_answers(Table(), [question], hits(-1, -1), 2) == [None]


def test_the_majority_is_right_for_the_most_questions_by_the_scorers_rules():
    answers = [("the Moon",), ("moon!", "Luna"), ("Sun",), ("Sun", "Sol"), ("The moon.",), ("Sun", "sun")]
    answers += [("moon!",)]
    best = majority(answers, "orqa")
    assert best == "moon!"
    right = {text: sum(exact_match(text, one, "orqa") for one in answers) for row in answers for text in row}
    assert right[best] == max(right.values())


def test_a_majority_of_nothing_is_an_error():
    with pytest.raises(BaselineError, match="no training answers"):
        majority([("The A",)], "orqa")
