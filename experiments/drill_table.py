"""The result of a drill: one row a kind of trouble, and what must not have happened in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

SHOWN = 5


@dataclass
class Row:
    """tries: how often the trouble was made. torn: generations seen that were not whole. lost: checkpoints, or
    generations that they refer to, that were gone. wrong_results: anything else that differs from an undisturbed job.
    unnoticed: trouble that should have been refused or told of, and was not."""

    name: str
    tries: int = 0
    torn: int = 0
    lost: int = 0
    wrong_results: int = 0
    unnoticed: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def torn_seen(self, what: str) -> None:
        self.torn += 1
        self.notes.append(f"torn: {what}")

    def lost_one(self, what: str) -> None:
        self.lost += 1
        self.notes.append(f"lost: {what}")

    def wrong(self, what: str) -> None:
        self.wrong_results += 1
        self.notes.append(f"wrong: {what}")

    def missed(self, what: str) -> None:
        self.unnoticed += 1
        self.notes.append(f"unnoticed: {what}")

    @property
    def sound(self) -> bool:
        return not (self.torn or self.lost or self.wrong_results or self.unnoticed)


def as_json(rows: Iterable[Row], **facts: Any) -> dict[str, Any]:
    """The rows with their sums, and the facts of the whole."""
    rows = list(rows)
    names = ("tries", "torn", "lost", "wrong_results", "unnoticed")
    sums = {name: sum(getattr(row, name) for row in rows) for name in names}
    return (
        facts
        | {"sound": all(row.sound for row in rows) and bool(rows), "sums": sums}
        | {"rows": [asdict(row) for row in rows]}
    )


def show(rows: Iterable[Row], title: str) -> None:
    """Prints the table, and below it the first findings of each row."""
    from rich.console import Console
    from rich.table import Table

    rows = list(rows)
    table = Table(title=title)
    table.add_column("drill")
    for column in ("tries", "torn", "lost", "wrong", "unnoticed", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        counts = (row.tries, row.torn, row.lost, row.wrong_results, row.unnoticed)
        table.add_row(row.name, *(str(count) for count in counts), f"{row.seconds:.1f}")
    sums = as_json(rows)["sums"]
    table.add_section()
    total = sum(row.seconds for row in rows)
    table.add_row("all", *(str(value) for value in sums.values()), f"{total:.1f}", style="bold")
    console = Console()
    console.print(table)
    console.print("torn generations seen, lost checkpoints, wrong results, trouble that nobody was told of")
    for row in rows:
        for note in row.notes[:SHOWN]:
            console.print(f"{row.name}: {note}", markup=False, soft_wrap=True)
        if len(row.notes) > SHOWN:
            console.print(f"{row.name}: and {len(row.notes) - SHOWN} more", markup=False)
