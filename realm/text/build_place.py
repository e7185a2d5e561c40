"""Salient spans brought from characters to whole wordpieces, for many documents at once.

A span is usable when it lies inside one sentence, covers whole words, is short enough to be predicted whole and does
not overlap a longer usable one. The reference code lost spans, and whole sentences, in silence
(google-research/language, realm/featurization.py); here each one that is not usable is counted by its reason.
Paper: arXiv 2002.08909, section 3.4.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from realm.text.build_encode import Encoded

DATE = "DATE"
REASONS = (  # of a span by itself; the first that is true counts
    "outside the text",
    "only blanks",
    "crosses a sentence",
    "no wordpieces",
    "cuts a word",
    "longer than {} wordpieces",
    "only unknown wordpieces",
)
IS_BLANK = np.array([chr(number).isspace() for number in range(0x3002)])  # no blank has a higher number


class Spans(NamedTuple):
    """P spans of documents in one row (`Encoded`): document, first character and end there, label's number, whether
    the date finder found it. All are arrays of length P."""

    document_P: np.ndarray
    start_P: np.ndarray
    end_P: np.ndarray
    label_P: np.ndarray
    finder_P: np.ndarray


def place(
    encoded: Encoded,
    sentence_S4: np.ndarray,
    sentence_D1: np.ndarray,
    spans: Spans,
    labels: list[str],
    *,
    max_tokens: int,
    unk: int,
    skips: Counter,
) -> np.ndarray:
    """int64 [P, 6], the usable spans in text order: sentence, token start and end, character start and end, label.

    sentence_S4: the sentences as `lay_all` gives them, sentence_D1 where each document's begin; offsets of both
    count in the whole of `encoded`. `skips` counts the rest by reason: REASONS, "overlaps a longer span". The longest
    in characters is taken first, a file's span before the finder's.
    """
    place_P5, reason_P = _each(encoded, sentence_S4, sentence_D1, spans, max_tokens, unk)
    for number, count in enumerate(np.bincount(reason_P, minlength=len(REASONS) + 1)[1:].tolist()):
        if count:
            skips[REASONS[number].format(max_tokens)] += count
    usable_P = np.flatnonzero(reason_P == 0)
    order_P = usable_P[np.argsort(place_P5[usable_P, 1], kind="stable")]
    chosen_P = order_P[_chosen(place_P5[order_P], spans.label_P[order_P], spans.finder_P[order_P], labels, skips)]
    return np.concatenate([place_P5[chosen_P], spans.label_P[chosen_P, None]], axis=1)


def _each(
    encoded: Encoded, sentence_S4: np.ndarray, sentence_D1: np.ndarray, spans: Spans, max_tokens: int, unk: int
) -> tuple[np.ndarray, np.ndarray]:
    """(sentence, token start and end, character start and end) of each span by itself, and its reason or 0."""
    begin_P = encoded.character_D1[spans.document_P]
    size_P = encoded.character_D1[spans.document_P + 1] - 1 - begin_P
    outside_P = ~((spans.start_P >= 0) & (spans.start_P < spans.end_P) & (spans.end_P <= size_P))
    start_P = np.where(outside_P, 0, spans.start_P) + begin_P
    end_P = np.where(outside_P, 1, spans.end_P) + begin_P
    blank_P = _strip(encoded, start_P, end_P, ~outside_P)
    sentence_P = np.searchsorted(sentence_S4[:, 2], start_P, side="right") - 1
    crosses_P = sentence_P < sentence_D1[spans.document_P]
    if len(sentence_S4) == 0:
        return np.zeros((len(start_P), 5), np.int64), np.select([outside_P, blank_P], [1, 2], 3)
    low_P, high_P = sentence_S4[sentence_P, 0], sentence_S4[sentence_P, 1]
    crosses_P |= end_P > sentence_S4[sentence_P, 3]
    # All wordpieces that share a character with the span, within its sentence. A few scripts have pieces out of step.
    rising_start_T, rising_end_T = np.maximum.accumulate(encoded.start_T), np.maximum.accumulate(encoded.end_T)
    first_P = np.clip(np.searchsorted(rising_end_T, start_P, side="right"), low_P, high_P)
    last_P = np.clip(np.searchsorted(rising_start_T, end_P, side="left"), low_P, high_P)
    none_P = first_P >= last_P
    at_P, to_P = np.minimum(first_P, len(encoded.id_T) - 1), np.maximum(last_P, 1)
    word_T = np.append(encoded.word_T, -1)  # one past the end is of no word; so is the one before the first
    cuts_P = (encoded.start_T[at_P] < start_P) | (encoded.end_T[to_P - 1] > end_P)
    cuts_P |= (word_T[at_P] == word_T[at_P - 1]) | (word_T[to_P] == word_T[to_P - 1])
    unknown_T1 = np.concatenate([[0], np.cumsum(encoded.id_T == unk)])
    long_P = last_P - first_P > max_tokens
    unknown_P = unknown_T1[last_P] - unknown_T1[first_P] == last_P - first_P
    tests = [outside_P, blank_P, crosses_P, none_P, cuts_P, long_P, unknown_P]
    return np.stack([sentence_P, first_P, last_P, start_P, end_P], axis=1), np.select(tests, range(1, 8), 0)


def _strip(encoded: Encoded, start_P: np.ndarray, end_P: np.ndarray, inside_P: np.ndarray) -> np.ndarray:
    """Takes blanks off both ends of the spans, in place; True for those of blanks only."""

    def blank(at_P: np.ndarray) -> np.ndarray:
        return IS_BLANK[np.minimum(encoded.code[at_P], len(IS_BLANK) - 1)]

    only_P = np.zeros(len(start_P), bool)
    for p in np.flatnonzero(inside_P & (blank(start_P) | blank(end_P - 1))).tolist():
        inner = encoded.text[start_P[p] : end_P[p]]
        only_P[p] = not inner.strip()
        end_P[p] -= len(inner) - len(inner.rstrip())
        start_P[p] += len(inner) - len(inner.lstrip())
    return only_P


def _chosen(
    place_P5: np.ndarray, label_P: np.ndarray, finder_P: np.ndarray, labels: list[str], skips: Counter
) -> np.ndarray:
    """Which of the usable spans, ordered by first wordpiece, do not overlap a longer one. Most overlap none."""
    if len(place_P5) == 0:
        return np.zeros(0, np.int64)
    begin_P = place_P5[:, 1]
    reach_P = np.maximum.accumulate(place_P5[:, 2])
    new_P = np.append(True, begin_P[1:] >= reach_P[:-1])  # the first of a group that hangs together
    alone_P = new_P & np.append(new_P[1:], True)  # the next one begins a group, too
    chosen = np.flatnonzero(alone_P).tolist()
    rest = np.flatnonzero(~alone_P)
    rows = zip(rest.tolist(), place_P5[rest].tolist(), label_P[rest].tolist(), finder_P[rest].tolist(), strict=True)
    group_P = np.cumsum(new_P)[rest].tolist()
    ordered = sorted(
        (group, at - end, at, finder, labels[label], number, first, last)
        for group, (number, (_, first, last, at, end), label, finder) in zip(group_P, rows, strict=True)
    )
    owned: set[int] = set()  # wordpieces that a span has
    for *_, number, first, last in ordered:
        if owned.isdisjoint(range(first, last)):
            owned.update(range(first, last))
            chosen.append(number)
        else:
            skips["overlaps a longer span"] += 1
    return np.sort(np.array(chosen, np.int64))
