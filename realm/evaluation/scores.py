"""Exact match and F1 of predicted answers, in named modes, because scores by different rules are not comparable.

    orqa          ORQA's eval_utils, which REALM used: NFD first, lower case, ASCII punctuation deleted, a/an/the
                  dropped, blanks squeezed. It has no F1 of its own; here F1 is SQuAD's over these words.
    squad         the official SQuAD 1.1 script: the same without NFD, so composed and decomposed accents differ
    trivia        the official TriviaQA script: punctuation and the quotes of its list become blanks
    regex-match   answers are regular expressions that must match from the start of the prediction (ORQA, DrQA)
    regex-search  ... that may match anywhere in it; both in NFD (DPR)

The rules are kept as published, oddities too. Curly quotes and en dashes are no ASCII punctuation. An article is one
where no letter or digit touches it, so in NFD the letter of "à" is one. What normalises to nothing ("The A") equals
everything else that does, with EM 1 and F1 0; `Scores` counts the questions that are right only by that. A regular
expression that does not compile matches nothing. F1 is not defined for regular expressions.
"""

from __future__ import annotations

import re
import string
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, Protocol, get_args

import numpy as np

from realm.evaluation.table import Rate

Mode = Literal["orqa", "squad", "trivia", "regex-match", "regex-search"]
MODES: tuple[Mode, ...] = get_args(Mode)
REGEX_MODES: tuple[Mode, ...] = ("regex-match", "regex-search")

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_DELETE = str.maketrans("", "", string.punctuation)
_TO_BLANK = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))


class ScoreError(ValueError):
    """Predictions, answers and mode that do not fit together."""


class Asked(Protocol):
    """What is read of a question here."""

    id: str
    question: str
    answers: Sequence[str]
    kind: Literal["text", "regex"]


def normalise(text: str, mode: Mode) -> str:
    """`text` as the mode compares it: words between single blanks. Raises ScoreError for a regex mode."""
    return _normaliser(mode)(text)


def exact_match(prediction: str, answers: Iterable[str], mode: Mode) -> bool:
    """Whether the prediction is any of `answers` by the rules of the mode. Raises ScoreError on no answers."""
    answers = _answers(answers)
    if mode in REGEX_MODES:
        return any(_matches(answer, prediction, mode) for answer in answers)
    same = _normaliser(mode)
    return same(prediction) in {same(answer) for answer in answers}


def f1(prediction: str, answers: Iterable[str], mode: Mode) -> float:
    """The best F1 over `answers`: harmonic mean of precision and recall of words, repeated words as often as both
    sides have them; 0 where no word is shared, also when both sides are empty. Raises ScoreError in a regex mode."""
    same = _normaliser(mode)
    return max(_f1(same(prediction).split(), same(answer).split()) for answer in _answers(answers))


@dataclass(frozen=True)
class Scores:
    """The scores of a question set, question by question, in its order.

    em_Q bool; f1_Q float64, None in a regex mode; missing_Q bool (no prediction: scored 0); repeated_Q bool (a later
    question has the same text). empty_matches: questions (not answers: each is one EM) whose prediction and one or more
    of their answers normalise to nothing. unknown: predictions for ids that no question has.
    """

    mode: Mode
    em_Q: np.ndarray
    f1_Q: np.ndarray | None
    missing_Q: np.ndarray
    repeated_Q: np.ndarray
    empty_matches: int
    unknown: int

    def em(self) -> Rate:
        """Exact match over all questions."""
        return Rate(int(self.em_Q.sum()), len(self.em_Q))

    def em_by_text(self) -> Rate:
        """Exact match as ORQA's script counts it: keyed by question text, the last of repeated questions standing."""
        kept_Q = ~self.repeated_Q
        return Rate(int((self.em_Q & kept_Q).sum()), int(kept_Q.sum()))

    def f1(self) -> float | None:
        """Mean F1, between 0 and 1; None in a regex mode or without questions."""
        return None if self.f1_Q is None or not len(self.f1_Q) else float(self.f1_Q.mean())

    def counts(self) -> dict[str, int]:
        """What a report should say beside the scores."""
        return {
            "missing_predictions": int(self.missing_Q.sum()),
            "unknown_predictions": self.unknown,
            "repeated_questions": int(self.repeated_Q.sum()),
            "empty_matches": self.empty_matches,
        }


def score(questions: Sequence[Asked], predictions: Mapping[str, str | None], mode: Mode) -> Scores:
    """Scores the predictions, by question id, of a whole set. A missing or null prediction is wrong and counted.

    Raises ScoreError when questions share an id, have no answers or answers of a kind the mode is not for, or when a
    prediction is not a string.
    """
    number_of = {question.id: number for number, question in enumerate(questions)}
    if len(number_of) != len(questions):
        raise ScoreError(f"found {len(questions)} questions with {len(number_of)} ids, wanted an id for each")
    wanted = "regex" if mode in REGEX_MODES else "text"
    for question in questions:
        if question.kind != wanted:
            raise ScoreError(
                f"found {question.kind} answers of {question.id!r} in mode {mode!r}, wanted {wanted} answers"
            )
        if isinstance(question.answers, str) or not question.answers:
            raise ScoreError(f"found the answers {question.answers!r} of {question.id!r}, wanted one or more in a list")
    given = {name: text for name, text in predictions.items() if name in number_of and text is not None}
    for name, text in given.items():
        if not isinstance(text, str):
            raise ScoreError(f"found the prediction {text!r:.40} for {name!r}, wanted a string or null")
    last_of = {question.question: number for number, question in enumerate(questions)}
    repeated_Q = np.array([last_of[question.question] != n for n, question in enumerate(questions)], bool)
    missing_Q = np.array([question.id not in given for question in questions], bool)
    unknown = sum(name not in number_of for name in predictions)
    if mode in REGEX_MODES:
        em_Q = np.array([q.id in given and exact_match(given[q.id], q.answers, mode) for q in questions], bool)
        return Scores(mode, em_Q, None, missing_Q, repeated_Q, 0, unknown)
    em_Q, f1_Q, empty_Q = _score_text(questions, given, mode)
    return Scores(mode, em_Q, f1_Q, missing_Q, repeated_Q, int(empty_Q.sum()), unknown)


def _score_text(
    questions: Sequence[Asked], given: Mapping[str, str], mode: Mode
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """EM, F1 and whether the match is of nothing with nothing, over all (question, answer) pairs at once.

    Strings become numbers once; then a pair's shared words are the smaller counts of equal (pair, word) keys.
    """
    same = lru_cache(maxsize=None)(_normaliser(mode))
    asked = [number for number, question in enumerate(questions) if question.id in given]
    pairs = [(n, same(given[questions[n].id]), same(a)) for n in asked for a in questions[n].answers]
    size = len(questions)
    if not pairs:
        return np.zeros(size, bool), np.zeros(size), np.zeros(size, bool)
    question_P = np.array([number for number, _, _ in pairs])
    equal_P = np.array([left == right for _, left, right in pairs], bool)
    number_of: dict[str, int] = {}
    left_P, left_key, left_often = _word_counts([left for _, left, _ in pairs], number_of)
    right_P, right_key, right_often = _word_counts([right for _, _, right in pairs], number_of)
    _, at_left, at_right = np.intersect1d(left_key, right_key, assume_unique=True, return_indices=True)
    shared_P = np.zeros(len(pairs))
    np.add.at(shared_P, left_key[at_left] // _WORDS, np.minimum(left_often[at_left], right_often[at_right]))
    # 2pr / (p + r) with p = shared / left and r = shared / right is 2 shared / (left + right).
    f1_P = np.divide(2 * shared_P, left_P + right_P, out=np.zeros(len(pairs)), where=shared_P > 0)
    em_Q, f1_Q, empty_Q = np.zeros(size, bool), np.zeros(size), np.zeros(size, bool)
    np.logical_or.at(em_Q, question_P, equal_P)
    np.logical_or.at(empty_Q, question_P, equal_P & (left_P == 0))
    np.maximum.at(f1_Q, question_P, f1_P)
    return em_Q, f1_Q, empty_Q


_WORDS = 2**32  # more than any vocabulary, so that pair * _WORDS + word is one key for each


def _word_counts(texts: list[str], number_of: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words in each text; the distinct keys pair * _WORDS + word, ascending; how often each occurs."""
    words = [[number_of.setdefault(word, len(number_of)) for word in text.split()] for text in texts]
    length_P = np.array([len(one) for one in words])
    flat = np.fromiter((word for one in words for word in one), np.int64, int(length_P.sum()))
    key, often = np.unique(np.repeat(np.arange(len(texts)), length_P) * _WORDS + flat, return_counts=True)
    return length_P, key, often


def _f1(prediction: list[str], answer: list[str]) -> float:
    shared = sum((Counter(prediction) & Counter(answer)).values())
    return 2 * shared / (len(prediction) + len(answer)) if shared else 0.0


def _answers(answers: Iterable[str]) -> tuple[str, ...]:
    if isinstance(answers, str):
        raise ScoreError(f"found the string {answers!r} as answers, wanted a list of strings: [{answers!r}]")
    answers = tuple(answers)
    if not answers:
        raise ScoreError("found no answers, wanted one or more")
    return answers


def _squeezed(text: str) -> str:
    return " ".join(_ARTICLE.sub(" ", text).split())


def _normaliser(mode: Mode) -> Callable[[str], str]:
    if mode == "orqa":
        return lambda text: _squeezed(unicodedata.normalize("NFD", text).lower().translate(_DELETE))
    if mode == "squad":
        return lambda text: _squeezed(text.lower().translate(_DELETE))
    if mode == "trivia":
        return lambda text: _squeezed(text.lower().translate(_TO_BLANK))
    raise ScoreError(f"found mode {mode!r}, wanted one that compares words: orqa, squad, trivia")


def _matches(pattern: str, text: str, mode: Mode) -> bool:
    if mode == "regex-search":
        pattern, text = (unicodedata.normalize("NFD", one) for one in (pattern, text))
    compiled = compiled_pattern(pattern)
    if compiled is None:
        return False
    return (compiled.search if mode == "regex-search" else compiled.match)(text) is not None


@cache
def compiled_pattern(pattern: str) -> re.Pattern[str] | None:
    """The regular expression with the flags of ORQA, DrQA and DPR (any case, ^ and $ at line ends); None if broken."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except (re.error, OverflowError, RecursionError):
        return None
