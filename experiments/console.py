"""Where tables are printed; imports nothing heavy."""

from __future__ import annotations

from rich.console import Console


def wide_console() -> Console:
    """The terminal, or 120 columns where the output is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)
