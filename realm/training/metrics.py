"""What a run says of itself: metrics.jsonl, TensorBoard curves, and one progress line.

metrics.jsonl holds one object a logged step, and one of the step where a run was stopped. It is never longer than the
run: on resume the lines after the restored step are dropped, so that every step appears once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from realm.training.run_folder import write_whole


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a metrics.jsonl; a last line torn by a kill is left out."""
    records = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return records


class MetricsLog:
    """Averages step metrics between logged steps and writes them. `start`: the step the run resumes from."""

    def __init__(self, folder: Path, *, start: int, every: int, stop: int, report: Callable[[str], None]):
        from tensorboardX import SummaryWriter

        self.path = Path(folder) / "metrics.jsonl"
        self.every, self.stop, self.report = every, stop, report
        # What happened at boundary `start` itself, a probe for instance, will happen again.
        kept = [r for r in read_metrics(self.path) if r["step"] < start + ("event" not in r)]
        write_whole(self.path, "".join(json.dumps(r) + "\n" for r in kept))
        self._file = self.path.open("a", encoding="utf-8")
        self._board = SummaryWriter(str(Path(folder) / "tensorboard"), purge_step=start + 1)
        self._window: list[dict[str, float]] = []
        self._weights: list[float] = []
        self._latest: tuple[int, dict[str, Any]] = start, {}  # the step added last, and its facts
        self._time = self._began = time.monotonic()
        self._kept = kept
        self._earlier = max((r["seconds"] for r in kept if "seconds" in r), default=0.0)
        self.last: dict[str, Any] = next((r for r in reversed(kept) if "event" not in r), {})

    def steps_begin(self) -> None:
        """Begins to time the steps: what the first index took belongs to none of them."""
        self._time = time.monotonic()

    def add(self, step: int, metrics: dict[str, Any], facts: dict[str, Any]) -> None:
        """Takes the metrics of the update that led to `step`; `facts` are logged as they are."""
        self._window.append({k: float(v) for k, v in metrics.items() if np.ndim(v) == 0 and k != "finite"})
        self._weights.append(float(metrics["weight"]))
        self._latest = step, facts
        if step % self.every == 0 or step == self.stop:
            self._write(step, facts)

    def stopped(self) -> None:
        """Writes what was added since the last record, as one of the last step: a run that ends there keeps these
        steps, so their metrics and seconds count. Nothing where there is none."""
        if self._window:
            self._write(*self._latest)

    def _write(self, step: int, facts: dict[str, Any]) -> None:
        weights = np.asarray(self._weights)
        share = weights / max(weights.sum(), 1e-9)
        means = {k: float(sum(s * w[k] for s, w in zip(share, self._window, strict=True))) for k in self._window[0]}
        means["weight"] = float(weights.mean())
        now = time.monotonic()
        seconds = (now - self._time) / len(self._window)
        record = {
            "step": step,
            **means,
            **facts,
            "seconds_per_step": round(seconds, 4),
            "seconds": round(self._earlier + now - self._began, 2),
        }
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        for name, value in record.items():
            if name != "step" and isinstance(value, (int, float)):
                self._board.add_scalar(name, value, step)
        self.report(self._line(record, seconds))
        self.last, self._window, self._weights, self._time = record, [], [], now

    def _line(self, record: dict[str, Any], seconds: float) -> str:
        left = (self.stop - record["step"]) * seconds
        parts = [f"step {record['step']}/{self.stop}", f"loss {record['loss']:.3f}"]
        for name, label in (("accuracy", "accuracy"), ("utility", "utility"), ("null_probability", "null")):
            if name in record:
                parts.append(f"{label} {record[name]:.3f}")
        if record.get("generation") is not None:
            parts.append(f"index {record['generation']} age {record['document_age']}")
        return "  ".join([*parts, f"{seconds:.2f} s/step", f"{int(left // 60)}:{int(left % 60):02d} left"])

    def event(self, step: int, name: str, values: dict[str, Any]) -> None:
        """A line of its own kind (`probe`, `warning`, ...) in metrics.jsonl."""
        self._file.write(json.dumps({"step": step, "event": name, **values}) + "\n")
        self._file.flush()
        for key, value in values.items():
            if isinstance(value, (int, float)):
                self._board.add_scalar(f"{name}/{key}", value, step)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of one name that the run had before it was resumed."""
        return [r for r in self._kept if r.get("event") == name]

    def close(self) -> None:
        self._file.close()
        self._board.close()


class ProgressLine:
    """Prints reports: one self-overwriting line on a terminal, one line a report elsewhere."""

    def __init__(self, label: str):
        from rich.console import Console

        self.label = label
        self._console = Console(file=sys.stderr, highlight=False)
        self._status = self._console.status("") if self._console.is_terminal else None
        if self._status:
            self._status.start()

    def __call__(self, text: str) -> None:
        if self._status and text.startswith("step "):
            self._status.update(f"{self.label}  {text}")
        else:
            self._console.print(f"{self.label}  {text}", soft_wrap=True, markup=False)

    def close(self) -> None:
        if self._status:
            self._status.stop()
