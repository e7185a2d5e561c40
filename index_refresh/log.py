"""generations.jsonl: which generation was published when, and at which step the trainer went over to it.

The adopted-at lines are what makes an asynchronous run repeatable: adopting the same generations at the same steps
gives the same losses. One object a line: {"event": "published", generation, step, seconds_embed, seconds_build,
blocks_per_second, time} and {"event": "adopted", generation, generation_step, step, time}. Where the refresh is
rolling, "published" also has `slices` [count, rebuild] and `documents` [[rows, step of their vectors], ...], and
"adopted" the ages of the youngest, the mean and the oldest document.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from index_refresh import files

NAME = "generations.jsonl"


class GenerationLog:
    """The event log of one run folder; one writer."""

    def __init__(self, run: str | Path) -> None:
        self.path = Path(run) / NAME

    def events(self) -> list[dict[str, Any]]:
        """All complete events, in the order they were written."""
        return files.read_lines(self.path)

    def published(self, manifest: dict[str, Any], more: dict[str, Any]) -> None:
        """Logs a publication once, with `more` of it; asked again for the same generation it does nothing."""
        event = {"event": "published", "generation": manifest["number"], "step": manifest["step"]}
        if any(event.items() <= known.items() for known in self.events()):
            return
        event |= {key: manifest[key] for key in ("seconds_embed", "seconds_build", "blocks_per_second")}
        event |= more
        files.append_line(self.path, event | {"time": time.time()})

    def adopted(self, generation: int, generation_step: int, step: int, more: dict[str, Any] | None = None) -> None:
        """Logs that training searches this generation from `step` on, with `more` of it; repeating the last adoption
        does nothing."""
        event = {"event": "adopted", "generation": generation, "generation_step": generation_step, "step": step}
        last = self.last_adopted()
        if last is None or not event.items() <= last.items():
            files.append_line(self.path, event | (more or {}) | {"time": time.time()})

    def last_adopted(self) -> dict[str, Any] | None:
        return next((e for e in reversed(self.events()) if e["event"] == "adopted"), None)

    def rewind(self, step: int) -> None:
        """Forgets every event of a later step, atomically; untouched where there is none."""
        events = self.events()
        kept = [event for event in events if event["step"] <= step]
        if len(kept) < len(events):
            files.write_lines(self.path, kept)
