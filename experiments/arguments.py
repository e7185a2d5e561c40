"""What the verbs of the command line share: parsing with tyro, checks of single values, and the file of `--json`.

tyro is imported when something is parsed: `realm --help` loads nothing heavy.
"""

from __future__ import annotations

import json
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any


class UsageError(ValueError):
    """A command that cannot be understood; the message says what to type."""


def is_ours(error: BaseException) -> bool:
    """Whether the message is the whole story: the named errors of this project, and what the file system says."""
    packages = ("realm", "index_refresh", "experiments")
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in packages


def leading(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first option, and the rest."""
    cut = next((place for place, one in enumerate(arguments) if one.startswith("-")), len(arguments))
    return arguments[:cut], arguments[cut:]


def parse(
    kind: type, arguments: list[str], prog: str, description: str | None = None, **extra: tuple[type, Any]
) -> Any:
    """Parses `kind` with further fields `name=(type, default)`, whose own fields need no prefix.

    A default of None: the field is as the type's own defaults say.
    """
    import tyro

    fields = []
    for name, (type_, default) in extra.items():
        bare = Annotated[type_, tyro.conf.arg(name="")]
        fields.append((name, bare) if default is None else (name, bare, field(default=default)))
    whole = make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)
    options = (tyro.conf.AvoidSubcommands,)
    return tyro.cli(whole, args=arguments, prog=prog, description=description or kind.__doc__, config=options)


def run_and(kind: type, arguments: list[str], verb: str) -> tuple[Path, Any]:
    """(RUN, fields of `kind`) of `realm VERB RUN --FIELD VALUE ...`. Raises UsageError where RUN is missing."""
    import tyro

    if arguments and arguments[0] in ("-h", "--help"):
        tyro.cli(kind, args=["--help"], prog=f"realm {verb} RUN")
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"wanted `realm {verb} RUN`, RUN being a folder such as runs/sample")
    return Path(arguments[0]), tyro.cli(kind, args=arguments[1:], prog=f"realm {verb} RUN")


def at_least_one(name: str, number: int | None) -> None:
    """Raises UsageError for a number below 1; None is for the verb to fill in."""
    if number is not None and number < 1:
        raise UsageError(f"found --{name} {number}, wanted at least 1")


def make_room(path: Path | None) -> None:
    """Makes the folder of a file that is written at the end: better to fail now than after the work."""
    if path is not None and path.is_dir():
        raise UsageError(f"{path} is a folder: wanted a file for --json")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)


def write_answer(path: Path | None, value: Any) -> None:
    """The file of `--json`, where one was asked for."""
    if path is not None:
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
