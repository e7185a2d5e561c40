"""EM and F1: the modes' published rules, their traps, and a second implementation on thousands of pairs."""

import math
import random
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.evaluation.scores import MODES, ScoreError, exact_match, f1, normalise, score
from realm.text.questions import Question

TEXT_MODES = ("orqa", "squad", "trivia")
NFC, NFD = (unicodedata.normalize(form, "Beyoncé") for form in ("NFC", "NFD"))


# A second implementation, from the rules and character by character: no regular expression, no table, no counting.
def slow_words(text, mode):
    if mode == "orqa":
        text = unicodedata.normalize("NFD", text)
    kept = ""
    for character in text.lower():
        ascii_mark = character.isascii() and character.isprintable() and not (character.isalnum() or character == " ")
        if mode == "trivia" and (ascii_mark or character in "‘’´`"):
            kept += " "
        elif not ascii_mark:
            kept += character
    runs, inside = [], None
    for character in kept:
        word = character.isalnum() or character == "_"
        if word == inside:
            runs[-1] += character
        else:
            runs.append(character)
        inside = word
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


def slow_f1(left, right):
    rest, shared = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(left), shared / len(right)
    return 2 * precision * recall / (precision + recall)


PIECES = [
    "the The THE a A an An and Theatre anthem US U.S. USA us O'Hara O’Hara ‘x’ ´ ` 1914-1918 1914–1918 19,18 3.5 $5",
    f"{NFC} {NFD} à la thé İstanbul ΟΔΟΣ οδος ß ﬁ ① _ a_b the_a (the)",
    "\u00a0 \u200b \u3000 \t \n 東京 😀 ! ? . , - -- ''",
    "New York City of in war peace one two two two",
]
PIECES = " ".join(PIECES).split(" ")


def generated(count, seed=11):
    """Predictions with answers that are the same words written otherwise, some of them, or others."""
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choices(PIECES, k=rng.randint(0, 5))
        answers = []
        for _ in range(rng.randint(1, 2)):
            kept = [word for word in words if rng.random() < 0.8]
            more = rng.choices(PIECES, k=rng.choice([0, 0, 1, 2]))
            near = rng.choice([words, kept + more, rng.choices(PIECES, k=rng.randint(0, 4))])
            answers.append(" ".join(rng.choice([word, word, word.upper(), f"the {word}", f"{word}."]) for word in near))
        yield rng.choice(["", " ", " "]).join(words), answers


@pytest.mark.parametrize("mode", TEXT_MODES)
def test_agrees_with_a_second_implementation(mode):
    pairs = list(generated(3000))
    questions = [Question(str(n), f"q{n}", tuple(answers), None) for n, (_, answers) in enumerate(pairs)]
    scores = score(questions, {str(n): prediction for n, (prediction, _) in enumerate(pairs)}, mode)
    for number, (prediction, answers) in enumerate(pairs):
        left, rights = slow_words(prediction, mode), [slow_words(answer, mode) for answer in answers]
        em, best = left in rights, max(slow_f1(left, right) for right in rights)
        assert normalise(prediction, mode) == " ".join(left), repr(prediction)
        assert exact_match(prediction, answers, mode) == em == scores.em_Q[number], (prediction, answers)
        assert math.isclose(f1(prediction, answers, mode), best) and math.isclose(scores.f1_Q[number], best)
    assert 500 < scores.em_Q.sum() < 2000 and 250 < ((scores.f1_Q > 0) & ~scores.em_Q).sum()
    empty = sum(not slow_words(p, mode) and [] in [slow_words(a, mode) for a in answers] for p, answers in pairs)
    assert scores.empty_matches == empty > 50


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(TEXT_MODES))
def test_agrees_on_any_unicode(left, right, mode):
    assert normalise(left, mode) == " ".join(slow_words(left, mode))
    assert f1(left, [right], mode) == pytest.approx(slow_f1(slow_words(left, mode), slow_words(right, mode)))
    assert exact_match(left, [right, left], mode)


@pytest.mark.parametrize(
    ("prediction", "answers", "equal_in"),
    [
        (NFD, [NFC], "orqa"),
        ("Beyonce", [NFC], ""),
        ("O'Hara", ["O’Hara"], "trivia"),
        ("OHara", ["O’Hara"], ""),
        ("OHara", ["O'Hara"], "orqa squad"),
        ("1914-1918", ["1914–1918"], ""),
        ("1914-1918", ["19141918"], "orqa squad"),
        ("1914-1918", ["1914 1918"], "trivia"),
        ("the", ["a"], "orqa squad trivia"),
        ("", ["The A!"], "orqa squad trivia"),
        ("K2", ["Everest", "k2."], "orqa squad trivia"),
        ("snake_case", ["snake case"], "trivia"),
        ("snake_case", ["snakecase"], "orqa squad"),
        ("USA", ["US"], ""),
        ("U.S.", ["US"], "orqa squad"),
        ("la carte", ["à la carte"], ""),
        ("\u0300 la carte", ["à la carte"], "orqa"),
        ("theatre", ["atre"], ""),
    ],
)
def test_traps_of_the_word_modes(prediction, answers, equal_in):
    assert [mode for mode in TEXT_MODES if exact_match(prediction, answers, mode)] == equal_in.split()


@pytest.mark.parametrize(
    ("pattern", "prediction", "match", "search"),
    [
        ("Everest", "Mount Everest", False, True),
        ("everest", "EVEREST, of course", True, True),
        ("19(60|70)", "1970s and later", True, True),
        ("^1969$", "in\n1969", False, True),
        ("(", "(", False, False),
        ("a{99999999999}", "a", False, False),
        ("Beyonc.$", NFC, True, False),
        (NFC, NFD, False, True),
        ("", "anything", True, True),
        ("[[a]", "[", True, True),
    ],
)
def test_traps_of_the_regex_modes(pattern, prediction, match, search):
    assert exact_match(prediction, ["never", pattern], "regex-match") is match
    assert exact_match(prediction, ["never", pattern], "regex-search") is search


def test_f1_by_hand():
    assert f1("the cat sat", ["a cat sat down", "dog"], "squad") == pytest.approx(2 * 2 / (2 + 3))
    assert f1("two two", ["two two two"], "squad") == pytest.approx(0.8)
    assert f1("The", ["a"], "squad") == 0.0 and exact_match("The", ["a"], "squad")


def asked(*answers, kind="text", texts=None):
    return [Question(f"q{n}", (texts or {}).get(n, f"text {n}"), one, None, kind) for n, one in enumerate(answers)]


def test_a_set_counts_missing_unknown_repeated_and_empty():
    questions = asked(("Rome",), ("The",), ("Oslo", "Bergen"), ("Rome",), texts={0: "same", 3: "same"})
    scores = score(questions, {"q0": "rome", "q1": "a", "q2": None, "zz": "x"}, "squad")
    assert scores.em_Q.tolist() == [True, True, False, False]
    assert scores.f1_Q.tolist() == [1.0, 0.0, 0.0, 0.0] and scores.f1() == 0.25
    assert scores.counts() == dict(missing_predictions=2, unknown_predictions=1, repeated_questions=1, empty_matches=1)
    assert (str(scores.em()), scores.em().questions) == ("50.0", 4)
    # the first of the two "same" is not counted there, and the one that stands has no prediction
    assert (scores.em_by_text().hits, scores.em_by_text().questions) == (1, 3)


def test_questions_where_nothing_matches_nothing_are_counted_and_not_their_answers():
    assert score(asked(("the", "!"), ("Rome",)), {"q0": "", "q1": ""}, "orqa").empty_matches == 1
    assert score(asked(("the", "Rome")), {"q0": "Rome"}, "orqa").empty_matches == 0
    both = score(asked(("the", "a"), ("an", "Rome")), {"q0": "an", "q1": "The"}, "orqa")
    assert both.empty_matches == both.em().hits == 2  # as many as such EMs, though three answers match


def test_regex_sets_have_no_f1():
    scores = score(asked(("19(60|70)",), ("(",), ("x",), kind="regex"), {"q0": "1970s", "q1": "("}, "regex-match")
    assert scores.em_Q.tolist() == [True, False, False] and scores.f1_Q is None and scores.f1() is None
    assert scores.counts()["missing_predictions"] == 1


def test_no_prediction_and_no_question():
    scores = score(asked(("x",)), {}, "trivia")
    assert not scores.em_Q.any() and scores.f1() == 0.0
    none = score([], {}, "squad")
    assert none.em().value is None and none.f1() is None and len(none.em_Q) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_match("x", [], "squad"), "no answers, wanted one or more"),
        (lambda: exact_match("x", "x", "squad"), r"wanted a list of strings: \['x'\]"),
        (lambda: exact_match("x", ["x"], "bleu"), "mode 'bleu'"),
        (lambda: f1("x", ["x"], "regex-match"), "mode 'regex-match', wanted one that compares words"),
        (lambda: score(asked(()), {}, "squad"), r"answers \(\) of 'q0'"),
        (lambda: score(asked("Rome"), {}, "squad"), "answers 'Rome' of 'q0'"),
        (lambda: score(asked(("x",)), {}, "regex-match"), "text answers of 'q0' in mode 'regex-match'"),
        (lambda: score(asked(("x",), kind="regex"), {}, "orqa"), "regex answers of 'q0' in mode 'orqa'"),
        (lambda: score(asked(("x",)) * 2, {}, "orqa"), "2 questions with 1 ids"),
        (lambda: score(asked(("x",)), {"q0": 7}, "orqa"), "prediction 7 for 'q0'"),
    ],
)
def test_errors_say_what_was_wanted(call, message):
    with pytest.raises(ScoreError, match=message):
        call()


def test_modes_are_all_tested():
    assert set(MODES) == {*TEXT_MODES, "regex-match", "regex-search"}
    assert np.array_equal(score(asked(("a b",)), {"q0": "b"}, "orqa").f1_Q, [1.0])
