"""SIGTERM and SIGINT as a wish to stop: training ends at the next step boundary, with a checkpoint."""

from __future__ import annotations

import signal
from typing import Any


class StopSignal:
    """Notes the first SIGTERM or SIGINT instead of dying of it; a second one of the same kind kills as usual.

    Outside the main thread, where Python allows no handlers, it never asks for anything.
    """

    def __init__(self) -> None:
        self.asked, self.name = False, ""
        self._old: dict[int, Any] = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._old[number] = signal.signal(number, self._note)
        except ValueError:
            pass

    def _note(self, number: int, frame: Any) -> None:
        self.asked, self.name = True, signal.Signals(number).name
        signal.signal(number, self._old[number])

    def note_of_another(self) -> None:
        """Another process of the job was asked to stop, and all do."""
        if not self.asked:
            self.asked, self.name = True, "SIGTERM"

    def restore(self) -> None:
        """Gives the signals back to whoever had them."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
