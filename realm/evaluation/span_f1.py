"""Precision, recall and F1 of entity spans, exact match of both ends and the type, as conlleval and seqeval count them.

A predicted span is right when the gold labels have one with the same first word, the same last word and the same type.
Counts are pooled over all sentences (micro average). Where nothing is predicted precision is 0, where there is nothing
to find recall is 0, and F1 is 0 where both are: seqeval's and conlleval's convention. Untyped counts leave the type
out, for taggers whose types are not those of the gold labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from realm.text.conll import label_spans

Span = tuple[int, int, str]


class SpanF1Error(ValueError):
    """Gold and predicted labels that do not belong together."""


@dataclass(frozen=True)
class Counts:
    """right of the predicted and of the gold spans."""

    right: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """2 PR / (P + R), written without the division by zero."""
        both = self.predicted + self.gold
        return 2 * self.right / both if both else 0.0

    def told(self) -> dict[str, float | int]:
        """The three measures, fractions, and what they were counted from."""
        measures = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return measures | {"right": self.right, "predicted": self.predicted, "gold": self.gold}


@dataclass
class SpanF1:
    """The growing counts. `add` takes one sentence at a time."""

    sentences: int = 0
    right: Counter = field(default_factory=Counter)
    predicted: Counter = field(default_factory=Counter)
    gold: Counter = field(default_factory=Counter)
    _untyped: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, gold: Collection[Span], predicted: Collection[Span]) -> None:
        """One sentence: spans (first word, end, type)."""
        gold, predicted = set(gold), set(predicted)
        self.sentences += 1
        for counter, spans in ((self.right, gold & predicted), (self.predicted, predicted), (self.gold, gold)):
            counter.update(kind for _, _, kind in spans)
        bare_gold, bare_predicted = ({span[:2] for span in spans} for spans in (gold, predicted))
        for place, spans in enumerate((bare_gold & bare_predicted, bare_predicted, bare_gold)):
            self._untyped[place] += len(spans)

    def of(self, kind: str) -> Counts:
        """The counts of one type."""
        return Counts(self.right[kind], self.predicted[kind], self.gold[kind])

    @property
    def all(self) -> Counts:
        """Micro average over types."""
        return Counts(self.right.total(), self.predicted.total(), self.gold.total())

    @property
    def untyped(self) -> Counts:
        """Both ends right, whatever the type."""
        return Counts(*self._untyped)

    @property
    def kinds(self) -> list[str]:
        """Every type that was seen, sorted."""
        return sorted(self.gold.keys() | self.predicted.keys())

    def told(self) -> dict[str, Any]:
        """All counts and measures, as JSON."""
        kinds = {kind: self.of(kind).told() for kind in self.kinds}
        whole = {"sentences": self.sentences, "all": self.all.told(), "untyped": self.untyped.told()}
        return whole | {"kinds": kinds}


def span_f1(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> SpanF1:
    """The counts over sentences of labels, in any scheme that `label_spans` reads, sentence by sentence the same words.

    Raises SpanF1Error where the two have not the same number of sentences, or of words in one.
    """
    counts, missing = SpanF1(), object()
    for number, (one, other) in enumerate(zip_longest(gold, predicted, fillvalue=missing)):
        if one is missing or other is missing:
            more = "predicted" if one is missing else "gold"
            raise SpanF1Error(f"found {number} sentences and more {more} ones, wanted as many gold as predicted")
        if len(one) != len(other):
            raise SpanF1Error(
                f"sentence {number}: found {len(other)} predicted labels, wanted {len(one)}, as there are words"
            )
        counts.add(label_spans(one), label_spans(other))
    return counts
