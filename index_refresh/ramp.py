"""The text of a ramp, 'start-end:every,...': its intervals, and mistakes pointed at by their place in the text.

Every step from 0 on belongs to exactly one interval, and the last one is open-ended: Atlas's schedule strings, which
this follows, silently stop refreshing after theirs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

EXAMPLE = "'0-1000:500,1000-5000:1000,5000-:2000' (steps 0 to 999 every 500, ..., from 5000 on every 2000)"
INTERVAL = re.compile(r"\s*([0-9]+)\s*-\s*([0-9]*)\s*:\s*([0-9]+)\s*")


class ScheduleError(ValueError):
    """A schedule that cannot be read, or that leaves steps without an answer."""


class Interval(NamedTuple):
    start: int
    end: int | None
    every: int


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
