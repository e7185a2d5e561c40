"""What the verbs of the command line share: parsing with tyro, checks of single values, and the file of `--json`.

tyro is imported when something is parsed: `realm --help` loads nothing heavy. It takes an option's help from the text
below a field; most of our dataclasses tell of their fields in the docstring instead, "name: text.", and `told` makes
help of that.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

HELP_FLAGS = {"-h", "--help"}


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
    kind: type,
    arguments: list[str],
    prog: str,
    description: str | None = None,
    told_as: Mapping[str, str] | None = None,
    **extra: tuple[type, Any],
) -> Any:
    """Parses `kind` with further fields `name=(type, default)`, whose own fields need no prefix.

    A default of None: the field is as the type's own defaults say. told_as: help of options without a prefix, in place
    of what their classes tell.
    """
    import tyro

    more = []
    for name, (type_, default) in extra.items():
        bare = Annotated[type_, tyro.conf.arg(name="")]
        more.append((name, bare) if default is None else (name, bare, field(default=default)))
    whole = make_dataclass(kind.__name__, more, bases=(kind,), frozen=True, kw_only=True)
    bare_kinds = {whole, *(type_ for type_, _ in extra.values())}
    return tyro.cli(
        whole,
        args=arguments,
        prog=prog,
        description=description or kind.__doc__,
        config=(tyro.conf.AvoidSubcommands,),
        registry=_telling(told_as or {}, bare_kinds) if HELP_FLAGS & set(arguments) else None,
    )


def told(kind: type) -> dict[str, str]:
    """What the docstrings of a dataclass and of those it extends tell of its fields, as sentences.

    "name: text." or "one, two: text.", up to the next such place or the end of the paragraph.
    """
    one = f"`?(?:{'|'.join(sorted((re.escape(part.name) for part in fields(kind)), reverse=True)) or '$'})`?"
    place = re.compile(rf"(?:^|(?<=[.;)] ))({one}(?:, {one})*): ")
    found = {}
    for owner in reversed(kind.__mro__):
        for paragraph in inspect.cleandoc(vars(owner).get("__doc__") or "").split("\n\n"):
            line = " ".join(paragraph.split())
            places = list(place.finditer(line))
            ends = [after.start() for after in places[1:]] + [len(line)]
            for at, end in zip(places, ends, strict=False):
                text = re.sub(r"(^|\. )Raises [A-Z].*", r"\1", line[at.end() : end]).strip(" .;,")
                text = text[:1].upper() + text[1:] if re.match(r"[a-z]+\b(?!\()", text) else text
                if text:
                    found |= {name.strip("`"): f"{text}." for name in at[1].split(", ")}
    return found


def _telling(told_as: Mapping[str, str], bare: set[type]) -> Any:
    """A tyro registry that takes help from the docstrings of dataclasses; of those in `bare`, from `told_as` first."""
    from tyro.constructors import ConstructorRegistry, StructConstructorSpec

    registry, busy = ConstructorRegistry(), []

    @registry.struct_rule
    def rule(info):
        if busy or not is_dataclass(info.type):
            return None
        busy.append(info)
        try:
            spec = ConstructorRegistry.get_struct_spec(info)  # as without this rule
        finally:
            busy.pop()
        if not isinstance(spec, StructConstructorSpec):
            return spec
        help_of = told(info.type) | (dict(told_as) if info.type in bare else {})
        parts = (replace(part, helptext=help_of.get(part.name, part.helptext)) for part in spec.fields)
        return replace(spec, fields=tuple(parts))

    return registry


def run_and(kind: type, arguments: list[str], verb: str) -> tuple[Path, Any]:
    """(RUN, fields of `kind`) of `realm VERB RUN --FIELD VALUE ...`. Raises UsageError where RUN is missing."""
    import tyro

    if arguments and arguments[0] in HELP_FLAGS:
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
