"""When the index is refreshed, and when the trainer goes over to it: pure functions of the training step.

`due(step)`: the parameters of this step are published; `due(0)` is always true, because generation 0 comes from the
initial parameters and there is nothing to retrieve from before it. (`drift` alone asks for a measurement besides.)
`visible(made, step)`: whether the generation of step `made` may be adopted at `step`; a schedule that delays it
imitates an asynchronous refresher exactly. A ramp refreshes often while the retriever moves fast and seldom later.
`slices_of(schedule)`: into how many slices a generation after the first divides the corpus, one of which it embeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from index_refresh.ramp import EXAMPLE, ScheduleError, read_ramp
from index_refresh.recording import Recorded

Measure = Callable[[], float]


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


@dataclass(frozen=True)
class Rolling:
    """At every multiple of `steps` one of `slices` equal slices of the corpus, in turn, is embedded anew and put into
    the index that is there.

    A refresh costs 1 / slices of a whole one, and documents are between 0 and slices * steps steps old (later where an
    engine takes its time); `max_age` is about the newest slice. ScaNN keeps the tree and the codes it was trained with
    on generation 0; with `rebuild` R the index is built anew, from the stored vectors, at every R-th round (0: never).
    """

    slices: int
    steps: int
    rebuild: int = 0

    def __post_init__(self) -> None:
        if self.slices < 2 or self.steps < 1 or self.rebuild < 0:
            raise ScheduleError(
                f"found rolling {self.slices} every {self.steps} rebuild {self.rebuild}, wanted 2 slices or more, "
                "1 step or more, and rounds from 0 (never) on; for one slice say 'every'"
            )

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return step % self.steps == 0

    def visible(self, made: int, step: int) -> bool:
        return True


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

    inner: Every | Never | Ramp | Rolling
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ScheduleError(f"found latency {self.steps}, wanted 1 or more steps; without one, leave it out")
        if isinstance(self.inner, Drift):  # what is under way would have to be known to a resumed run
            raise ScheduleError("found a latency behind drift, wanted one behind every, never, rolling or a ramp")

    def due(self, step: int, drift: Measure | None = None) -> bool:
        return self.inner.due(step, drift)

    def visible(self, made: int, step: int) -> bool:
        return made == 0 or step >= made + self.steps


Delayed = Latency | Recorded


def refuse_delayed(schedule: Schedule, engine: str) -> None:
    """Raises ScheduleError for a schedule that says itself when to adopt, which only the engine sync can keep."""
    if isinstance(schedule, Delayed):
        raise ScheduleError(
            f"found {schedule}, which says when to adopt; the {engine} engine adopts when a generation is there. "
            "Use engine sync"
        )


Schedule = Every | Never | Ramp | Drift | Rolling | Delayed


def slices_of(schedule: Schedule) -> tuple[int, int]:
    """(slices of the corpus, rounds after which the index is built anew): what a recipe has to say; (1, 0) for all but
    `rolling`, also behind a latency or in a recording."""
    if isinstance(schedule, Recorded):
        return schedule.slices()
    inner = schedule.inner if isinstance(schedule, Latency) else schedule
    return (inner.slices, inner.rebuild) if isinstance(inner, Rolling) else (1, 0)


def parse_schedule(text: str) -> Schedule:
    """A schedule from its text. Raises ScheduleError.

    every 500 | never | 0-1000:500,1000-:2000 | rolling 10 every 50 [rebuild 3], each also with `latency 120` behind
    it; drift 0.2 check 100; recorded PATH.
    """
    words = text.split()
    lower = [word.lower() for word in words]
    if lower[:1] == ["recorded"] and len(words) > 1:
        return Recorded(text.split(maxsplit=1)[1].strip())
    if len(lower) > 2 and lower[-2] == "latency" and lower[-1].isdecimal():
        return Latency(_plain(text, text.rsplit(maxsplit=2)[0]), int(lower[-1]))
    return _plain(text, text)


def _plain(whole: str, text: str) -> Every | Never | Ramp | Rolling | Drift:
    words = text.lower().split()
    if words == ["never"]:
        return Never()
    if len(words) == 2 and words[0] == "every" and words[1].isdecimal():
        return Every(int(words[1]))
    if len(words) == 4 and (words[0], words[2]) == ("drift", "check") and words[3].isdecimal():
        if re.fullmatch(r"0?\.[0-9]+|0", words[1]):
            return Drift(float(words[1]), int(words[3]))
    rolling = re.fullmatch(r"rolling ([0-9]+) every ([0-9]+)(?: rebuild ([0-9]+))?", " ".join(words))
    if rolling:
        return Rolling(*(int(number or 0) for number in rolling.groups()))
    if ":" in text or "-" in text:
        return Ramp(text.strip())
    raise ScheduleError(
        f"found refresh schedule {whole!r}, wanted 'every 500', 'never', 'rolling 10 every 50' or a ramp like "
        f"{EXAMPLE}; any of these followed by 'latency 120'; 'drift 0.2 check 100'; or 'recorded PATH', the "
        "generations.jsonl of another run"
    )
