"""When the index is refreshed: a pure function of the training step.

`due(0)` is always true: generation 0 comes from the initial parameters, and there is nothing to retrieve from before
it. A ramp refreshes often while the retriever moves fast and seldom later. Atlas's schedule strings, which this
follows, silently stop refreshing after their last interval; here the last interval must be open-ended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

EXAMPLE = "'0-1000:500,1000-5000:1000,5000-:2000' (steps 0 to 999 every 500, ..., from 5000 on every 2000)"
INTERVAL = re.compile(r"\s*([0-9]+)\s*-\s*([0-9]*)\s*:\s*([0-9]+)\s*")


class ScheduleError(ValueError):
    """A schedule that cannot be read, or that leaves steps without an answer."""


@dataclass(frozen=True)
class Every:
    """A refresh at every multiple of `steps`."""

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ScheduleError(f"found every {self.steps} steps, wanted 1 or more; for none at all say 'never'")

    def due(self, step: int) -> bool:
        return step % self.steps == 0


@dataclass(frozen=True)
class Never:
    """Generation 0 and no other: the ablation with a fixed index."""

    def due(self, step: int) -> bool:
        return step == 0


class Interval(NamedTuple):
    start: int
    end: int | None
    every: int


@dataclass(frozen=True)
class Ramp:
    """Intervals 'start-end:every', joined by commas, the last one without an end.

    In [start, end) a refresh is due at start, start + every, start + 2 every, ... Raises ScheduleError, with the
    position in the text, for gaps, overlaps, empty intervals and whatever is not a number.
    """

    spec: str

    def __post_init__(self) -> None:
        read_ramp(self.spec)

    def due(self, step: int) -> bool:
        for start, end, every in read_ramp(self.spec):
            if start <= step and (end is None or step < end):
                return (step - start) % every == 0
        return False  # only for a negative step: the intervals cover everything from 0 on


Schedule = Every | Never | Ramp


@lru_cache(maxsize=64)
def read_ramp(spec: str) -> tuple[Interval, ...]:
    """The intervals of a ramp; they cover every step from 0 on exactly once."""

    def wrong(position: int, found: str, wanted: str) -> ScheduleError:
        return ScheduleError(
            f"refresh schedule {spec!r}, character {position + 1}: found {found!r}, wanted {wanted}. Example: {EXAMPLE}"
        )

    intervals: list[Interval] = []
    position, expected = 0, 0
    parts = spec.split(",")
    for ordinal, part in enumerate(parts):
        match = INTERVAL.fullmatch(part)
        if match is None:
            raise wrong(position, part, "an interval start-end:every in whole numbers")
        start, every = int(match[1]), int(match[3])
        end = int(match[2]) if match[2] else None
        last = ordinal == len(parts) - 1
        if start != expected:
            kind = "gap" if start > expected else "overlap"
            wanted = f"an interval that starts at {expected} (this one leaves a{'n' * (kind == 'overlap')} {kind})"
            raise wrong(position + match.start(1), match[1], wanted)
        if every < 1:
            raise wrong(position + match.start(3), match[3], "a refresh every 1 or more steps")
        if end is not None and end <= start:
            raise wrong(position + match.start(2), match[2], f"an end after {start}")
        if end is None and not last:
            raise wrong(position, part, "an end: only the last interval is open")
        if end is not None and last:
            wanted = f"the last interval without an end, as {start}-:{every}, so that refreshing does not silently stop"
            raise wrong(position + match.start(2), match[2], wanted)
        intervals.append(Interval(start, end, every))
        expected = end if end is not None else start
        position += len(part) + 1
    return tuple(intervals)


def parse_schedule(text: str) -> Schedule:
    """'every 500' | 'never' | '0-1000:500,1000-:2000' as a schedule. Raises ScheduleError."""
    words = text.strip().lower().split()
    if words == ["never"]:
        return Never()
    if len(words) == 2 and words[0] == "every" and words[1].isdecimal():
        return Every(int(words[1]))
    if ":" in text or "-" in text:
        return Ramp(text.strip())
    raise ScheduleError(f"found refresh schedule {text!r}, wanted 'every 500', 'never' or a ramp like {EXAMPLE}")
