"""The schedule of a run that was: publishes and adopts at the steps that its generations.jsonl tells.

However the refresher of that run happened to be timed, on the `sync` engine its steps are had again bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from index_refresh import files
from index_refresh.log import NAME as LOG
from index_refresh.ramp import ScheduleError


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
        return read_recording(self.path)[:2]

    def slices(self) -> tuple[int, int]:
        """As `slices_of` of the schedule that was recorded."""
        return read_recording(self.path)[2]

    def due(self, step: int, drift: Callable[[], float] | None = None) -> bool:
        return step in self.events()[0]

    def visible(self, made: int, step: int) -> bool:
        adopted = self.events()[1].get(made)
        return adopted is not None and step >= adopted


def read_recording(path: str) -> tuple[frozenset[int], dict[int, int], tuple[int, int]]:
    """What `Recorded.events` and `Recorded.slices` tell of a log, as it is now. Raises ScheduleError where it does not
    start at step 0."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ScheduleError(f"found no file {file}, wanted the {LOG} of a run (in the folder of its stage)")
    now = file.stat()
    return _read(str(file), now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=8)  # asked at every step
def _read(path: str, mtime_ns: int, size: int) -> tuple[frozenset[int], dict[int, int], tuple[int, int]]:
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
    slices = next((tuple(event["slices"]) for event in events if "slices" in event), (1, 0))
    return published, adopted, slices
