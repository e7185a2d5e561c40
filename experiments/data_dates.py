"""`realm data dates`: the date finder beside the dates of a spans file, which a person or another system marked.

Other systems call more a date than the finder's definition (`realm/text/dates.py`) does: durations, ages, "today". So
recall is told twice, of all labels and of those that name a point on the calendar by themselves: a year, a month, a
decade, a century or an era.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.arguments import HELP_FLAGS, UsageError, leading, make_room, parse, write_answer
from experiments.data_reading import TOLD, Reading, described, entries_of, told_skips

CALENDAR = re.compile(
    r"\b(?:1\d|20)\d\d\b|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\b|\d0s\b|[Cc]entur|[Mm]illenni"
    r"|\b(?:BCE?|CE|AD)\b"
)
AROUND = 30  # characters shown before and after a span


@dataclass(frozen=True)
class DataDates:
    """Precision and recall of the date finder against labels of a spans file."""

    spans: tuple[str, ...]
    """Spans files of the documents, as `realm data build` takes them."""
    label: str = "DATE"
    """Which of their labels are dates."""
    show: int = 0
    """How many of the first disagreements of each kind to print."""
    json: Path | None = None
    """Also write the counts and shares, `skips` and `warnings` to this file."""


@dataclass
class Agreement:
    """Whole spans (both ends), and spans that share a character; `calendar` as the module says."""

    count: Counter = field(default_factory=Counter)

    def add(self, text: str, found: Iterable[tuple[int, int]], labelled: Iterable[tuple[int, int]]) -> None:
        """The spans of one document."""
        found, labelled = set(found), set(labelled)
        self.count["documents"] += 1
        self.count["found"] += len(found)
        self.count["labelled"] += len(labelled)
        self.count["same"] += len(found & labelled)
        self.count["found that touch a label"] += sum(_touches(one, labelled) for one in found)
        self.count["labelled that are touched"] += sum(_touches(one, found) for one in labelled)
        named = {one for one in labelled if CALENDAR.search(text[slice(*one)])}
        self.count["calendar"] += len(named)
        self.count["calendar, same"] += len(found & named)
        self.count["calendar, touched"] += sum(_touches(one, found) for one in named)

    def shares(self) -> dict[str, dict[str, float]]:
        """`precision`, `recall` and `calendar_recall` of whole spans (`exact`) and of those that share a character."""
        count = self.count

        def share(part: str, whole: str) -> float:
            return count[part] / count[whole] if count[whole] else 0.0

        return {
            "exact": {
                "precision": share("same", "found"),
                "recall": share("same", "labelled"),
                "calendar_recall": share("calendar, same", "calendar"),
            },
            "touching": {
                "precision": share("found that touch a label", "found"),
                "recall": share("labelled that are touched", "labelled"),
                "calendar_recall": share("calendar, touched", "calendar"),
            },
        }


def dates(arguments: list[str]) -> int:
    """realm data dates DOCUMENTS --spans FILES"""
    entries, rest = leading(arguments)
    if not entries and not HELP_FLAGS & set(rest):
        raise UsageError("wanted `realm data dates DOCUMENTS... --spans FILES`")
    about = described(DataDates)
    given = parse(DataDates, rest, "realm data dates DOCUMENTS", about, TOLD, reading=(Reading, None))
    make_room(given.json)
    from realm.text.dates import find_dates

    agreement, shown, skips = Agreement(), Counter(), Counter()
    for text, labelled in _labelled(entries, given, skips):
        found = find_dates(text)
        agreement.add(text, found, labelled)
        for kind, spans in (("found alone", set(found) - labelled), ("labelled alone", labelled - set(found))):
            for start, end in sorted(spans)[: given.show - shown[kind]]:
                shown[kind] += 1
                before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
                print(f"{kind}: {before}⟦{text[start:end]}⟧{after}".replace("\n", " "))
    count, shares = agreement.count, agreement.shares()
    print(f"{count['documents']} documents: {count['found']} dates found, {count['labelled']} labelled {given.label}")
    print(f"  {count['calendar']} of the labels name a point on the calendar")
    for kind, of in shares.items():
        values = "  ".join(f"{name.replace('_', ' ')} {100 * value:.1f}" for name, value in of.items())
        print(f"  {kind:8s}  {values}")
    write_answer(given.json, {"counts": dict(count), **shares, **told_skips(skips)})
    return 0


def _labelled(entries: list[str], given: Any, skips: Counter) -> Iterator[tuple[str, set[tuple[int, int]]]]:
    """The text of each document and its labelled spans; a document without a line in the files has none."""
    from experiments.samples import resolve
    from realm.text.build_inputs import plain_documents
    from realm.text.spans import SpanFile

    opened = entries_of(entries, given.reading)
    with closing(SpanFile(map(resolve, given.spans), lenient=given.reading.lenient, counts=skips)) as spans:
        for document, _ in plain_documents(opened, given.reading, skips):
            own = {(start, end) for start, end, label, *_ in spans.take(document.id) if label == given.label}
            yield document.text, own


def _touches(one: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(start < one[1] and one[0] < end for start, end in others)
