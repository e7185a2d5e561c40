"""Result tables in which no number stands alone: each row says what it was measured on and with what.

A `Setting` (data set, split, fingerprints of questions and corpus, index rows, k, index kind, and the generation's step
and age where the index is one) belongs to each row; settings that all rows share are printed once under the table, the
others become columns. A `Rate` keeps its numerator and denominator, so that a reader can recompute it, or the reason
why there is none; a `Mean` likewise.

`to_json()` has these keys: "title"; "notes", what to know before believing the numbers, a list of sentences that are
printed under the table; "rows", a list of {"name", "setting", "values"}. "setting" has the fields of
`Setting` by name. "values" maps each column to {"value": number, string or null, "text": as printed} and, where the
value is a rate, "hits" and "questions", where it is a mean, "questions". A rate's "value" is a fraction (0.741), its
"text" a percentage ("74.1"); "value" is null where nothing was measured, and "text" says why.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text


class TableError(ValueError):
    """A row or a setting that would print something misleading."""


@dataclass(frozen=True)
class Rate:
    """`hits` out of `questions`, printed in percent; or, with a `note`, the reason why it was not measured."""

    hits: int
    questions: int
    note: str = ""

    @property
    def value(self) -> float | None:
        """The fraction between 0 and 1; None when not measured."""
        return self.hits / self.questions if self.questions and not self.note else None

    def __str__(self) -> str:
        if self.value is None:
            return f"n/a ({self.note or 'no questions'})"
        return f"{100 * self.value:.1f}"


@dataclass(frozen=True)
class Mean:
    """`total` over `questions`, printed as it is; or, with a `note`, the reason why it was not measured."""

    total: float
    questions: int
    note: str = ""

    @property
    def value(self) -> float | None:
        """None when not measured."""
        return self.total / self.questions if self.questions and not self.note else None

    def __str__(self) -> str:
        return f"n/a ({self.note or 'no questions'})" if self.value is None else f"{self.value:.3f}"


@dataclass(frozen=True)
class Setting:
    """What a row of numbers was measured on. `rows` are index rows, `corpus` the corpus's fingerprint, `k` how many
    blocks were asked for; `generation_step` is the training step of the index's vectors and `index_age` how many steps
    later the queries were embedded (both None where the index was not made by training, as for BM25); `fingerprint` is
    that of the questions asked (None where they are no question set)."""

    dataset: str
    split: str
    rows: int
    corpus: str
    k: int
    index: str
    generation_step: int | None = None
    index_age: int | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if (self.generation_step is None) != (self.index_age is None):
            raise TableError(
                f"found generation_step {self.generation_step} with index_age {self.index_age}, wanted both or neither"
            )


Cell = int | float | str | bool | Rate | Mean | None
SETTINGS = tuple(field.name for field in fields(Setting))


class ResultTable:
    """Named rows of named numbers with their settings; prints itself with rich and writes itself as JSON."""

    def __init__(self, title: str, notes: Iterable[str] = ()):
        self.title, self.notes = title, list(notes)
        self.rows: list[tuple[str, Setting, dict[str, Cell]]] = []

    def add(self, name: str, setting: Setting, values: dict[str, Cell]) -> None:
        """Adds one row. Raises TableError on a column that has the name of a setting, or a value it cannot print."""
        for column, cell in values.items():
            if column in SETTINGS or column == "name":
                raise TableError(f"found the column {column!r}, wanted another name: that one says what was measured")
            if not isinstance(cell, Cell):
                raise TableError(
                    f"found {type(cell).__name__} as {column!r}, wanted a Python number, string, Rate, Mean or None"
                )
        self.rows.append((name, setting, dict(values)))

    def columns(self) -> list[str]:
        """Every value column, in the order of first appearance."""
        return list(dict.fromkeys(column for _, _, values in self.rows for column in values))

    def __rich__(self) -> Group:
        # A row that has no such setting (None: BM25 has no generation) differs in nothing.
        known = {name: dict.fromkeys(getattr(row, name) for _, row, _ in self.rows) for name in SETTINGS}
        known = {name: [value for value in values if value is not None] for name, values in known.items()}
        own = [name for name, values in known.items() if len(values) > 1]
        said = [f"{_label(name)} {_setting(name, values[0])}" for name, values in known.items() if len(values) == 1]
        # Text, not str: rich reads square brackets in a str as its own markup.
        caption, title = Text(" · ".join(said) or "no rows"), Text(self.title)
        table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
        for name in ("name", *map(_label, own)):
            table.add_column(name, overflow="fold")
        for column in self.columns():
            table.add_column(Text(column), justify="right", overflow="fold")
        for name, setting, values in self.rows:
            cells = [_text(values[column]) if column in values else "" for column in self.columns()]
            table.add_row(*map(Text, (name, *(_setting(field, getattr(setting, field)) for field in own), *cells)))
        return Group(table, *(Text(f"WARNING {note}", style="bold red") for note in self.notes))

    def text(self, width: int = 120) -> str:
        """The table as plain text, for logs and files."""
        out = io.StringIO()
        Console(file=out, width=width, color_system=None, force_terminal=False).print(self)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """The table as JSON-ready values; the keys are described at the top of this module."""
        return {
            "title": self.title,
            "notes": self.notes,
            "rows": [
                {"name": name, "setting": asdict(setting), "values": {key: _json(cell) for key, cell in values.items()}}
                for name, setting, values in self.rows
            ],
        }

    def write(self, path: str | Path) -> None:
        """Writes `to_json()` to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")


def _label(name: str) -> str:
    return name.replace("_", " ")


def _setting(name: str, value: Any) -> str:
    if value is None:
        return "-"
    # A fingerprint is long; twelve characters tell two apart on a screen, and the JSON has all of it.
    return value[:12] if name in ("corpus", "fingerprint") else f"{value:,}" if name == "rows" else str(value)


def _text(cell: Cell) -> str:
    if cell is None:
        return "n/a"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return str(cell)


def _json(cell: Cell) -> dict[str, Any]:
    if isinstance(cell, Rate):
        return {"value": cell.value, "text": str(cell), "hits": cell.hits, "questions": cell.questions}
    if isinstance(cell, Mean):
        return {"value": cell.value, "text": str(cell), "questions": cell.questions}
    # JSON has no nan and no infinity: the number is null there and the text still says which it was.
    value = None if isinstance(cell, float) and not math.isfinite(cell) else cell
    return {"value": value, "text": _text(cell)}
