"""When the index is refreshed, and when the trainer goes over to it: pure functions of the training step.

`due(step)`: the parameters of this step are published; `due(0)` is always true, because generation 0 comes from the
initial parameters and there is nothing to retrieve from before it. (`drift` alone asks for a measurement besides.)
`visible(made, step)`: whether the generation of step `made` may be adopted at `step`; a schedule that delays it
imitates an asynchronous refresher exactly. A ramp refreshes often while the retriever moves fast and seldom later.
Atlas's schedule strings, which this follows, silently stop refreshing after their last interval; here the last interval
must be open-ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from index_refresh import files
from index_refresh.log import NAME as LOG

EXAMPLE = "'0-1000:500,1000-5000:1000,5000-:2000' (steps 0 to 999 every 500, ..., from 5000 on every 2000)"
Measure = Callable[[], float]
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

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return step % self.steps == 0

    def visible(self, made: int, step: int) -> bool:
        return True


@dataclass(frozen=True)
class Never:
    """Generation 0 and no other: the ablation with a fixed index."""

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return step == 0

    def visible(self, made: int, step: int) -> bool:
        return True


@dataclass(frozen=True)
class Drift:
    """A refresh when a fresh index would answer more than the share `tau` of a probe's top hits differently; measured
    at every multiple of `check` steps, by training itself, on a sample. A function of the parameters, not of the step
    alone, so it is as exact as they are."""

    tau: float
    check: int

    def __post_init__(self) -> None:
        if not 0 <= self.tau < 1 or self.check < 1:
            raise ScheduleError(
                f"found drift {self.tau} check {self.check}, wanted a share below 1, and 1 step or more"
            )

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return step == 0 or (step % self.check == 0 and drift is not None and drift() > self.tau)

    def visible(self, made: int, step: int) -> bool:
        return True


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

    def due(self, step: int, drift: Measure | None = None) -> bool:
        for start, end, every in read_ramp(self.spec):
            if start <= step and (end is None or step < end):
                return (step - start) % every == 0
        return False  # only for a negative step: the intervals cover everything from 0 on

    def visible(self, made: int, step: int) -> bool:
        return True


@dataclass(frozen=True)
class Latency:
    """What `inner` publishes at step s is adopted at s + `steps`, generation 0 at once: on the `sync` engine, an
    asynchronous refresher that always takes the same number of steps."""

    inner: Every | Never | Ramp
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ScheduleError(f"found latency {self.steps}, wanted 1 or more steps; without one, leave it out")
        if isinstance(self.inner, Drift):  # what is under way would have to be known to a resumed run
            raise ScheduleError("found a latency behind drift, wanted one behind every, never or a ramp")

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return self.inner.due(step, drift)

    def visible(self, made: int, step: int) -> bool:
        return made == 0 or step >= made + self.steps


@dataclass(frozen=True)
class Recorded:
    """Publishes and adopts at the steps of another run: `path` is its generations.jsonl.

    On the `sync` engine, with everything else the same, the run is repeated bit for bit, however its own refresher
    happened to be timed. After the recording ends nothing is refreshed any more. Raises ScheduleError.
    """

    path: str

    def __post_init__(self) -> None:
        self.events()

    def events(self) -> tuple[frozenset[int], dict[int, int]]:
        """(published steps, {step of a generation: step at which it was first adopted})."""
        return read_recording(str(Path(self.path).resolve()))

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return step in self.events()[0]

    def visible(self, made: int, step: int) -> bool:
        adopted = self.events()[1].get(made)
        return adopted is not None and step >= adopted


Delayed = Latency | Recorded


def refuse_delayed(schedule: Schedule, engine: str) -> None:
    """Raises ScheduleError for a schedule that says itself when to adopt, which only the engine sync can keep."""
    if isinstance(schedule, Delayed):
        raise ScheduleError(
            f"found {schedule}, which says when to adopt; the {engine} engine adopts when a generation is there. "
            "Use engine sync"
        )


Schedule = Every | Never | Ramp | Drift | Delayed


@lru_cache(maxsize=8)
def read_recording(path: str) -> tuple[frozenset[int], dict[int, int]]:
    """What `Recorded.events` tells of a log. Raises ScheduleError where it does not start at step 0."""
    if not Path(path).is_file():
        raise ScheduleError(f"found no file {path}, wanted the {LOG} of a run (in the folder of its stage)")
    events = files.read_lines(Path(path))
    adopted: dict[int, int] = {}
    for event in events:
        if event["event"] == "adopted":
            adopted.setdefault(event["generation_step"], event["step"])
    published = frozenset(event["step"] for event in events if event["event"] == "published")
    if adopted.get(0) != 0 or not adopted.keys() <= published:
        raise ScheduleError(
            f"{path}: found generations of steps {sorted(published)}, adopted {adopted}; wanted the whole record of a "
            "run, which begins by adopting the generation of step 0 at step 0"
        )
    return published, adopted


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
    """A schedule from its text. Raises ScheduleError.

    every 500 | never | 0-1000:500,1000-:2000, each also with `latency 120` behind it; drift 0.2 check 100; recorded
    PATH.
    """
    words = text.split()
    lower = [word.lower() for word in words]
    if lower[:1] == ["recorded"] and len(words) > 1:
        return Recorded(text.split(maxsplit=1)[1].strip())
    if len(lower) > 2 and lower[-2] == "latency" and lower[-1].isdecimal():
        return Latency(_plain(text, text.rsplit(maxsplit=2)[0]), int(lower[-1]))
    return _plain(text, text)


def _plain(whole: str, text: str) -> Every | Never | Ramp | Drift:
    words = text.lower().split()
    if words == ["never"]:
        return Never()
    if len(words) == 2 and words[0] == "every" and words[1].isdecimal():
        return Every(int(words[1]))
    if len(words) == 4 and (words[0], words[2]) == ("drift", "check") and words[3].isdecimal():
        if re.fullmatch(r"0?\.[0-9]+|0", words[1]):
            return Drift(float(words[1]), int(words[3]))
    if ":" in text or "-" in text:
        return Ramp(text.strip())
    raise ScheduleError(
        f"found refresh schedule {whole!r}, wanted 'every 500', 'never' or a ramp like {EXAMPLE}; any of these "
        "followed by 'latency 120'; 'drift 0.2 check 100'; or 'recorded PATH', the generations.jsonl of another run"
    )
