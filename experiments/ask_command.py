"""`realm ask RUN "question"` and `realm hotswap RUN "statement with [MASK]"`: what a run answers, and why."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.arguments import UsageError, at_least_one, parse

if TYPE_CHECKING:
    from experiments.asking import Asking

USAGE = """\
wanted `realm ask RUN "question"`, or `realm ask RUN` to type questions; RUN is a folder such as runs/squad_open"""
SWAP = """\
wanted `realm hotswap RUN "question or statement with [MASK]" --replace FILE` (or --add FILE, --delete ID)"""


@dataclass(frozen=True)
class Ask:
    """Asks a run. A fine-tuned one answers questions with spans of its blocks; a pretrained one fills [MASK] in a
    statement. Without a question, one is read a line, until an empty one."""

    count: int = 3
    """How many blocks are shown."""
    pieces: int | None = None
    """Wordpieces that [MASK] stands for; by default each number is tried and the likeliest answer is taken."""
    json: bool = False
    """Print one JSON object a question instead of text: `answer`, `p`, `evidence`, `seconds`, `index`."""


@dataclass(frozen=True)
class Hotswap:
    """Exchanges documents of a run's corpus and asks before and after, without training (REALM, table 4). The edit is
    as of `realm data edit`; only new blocks are embedded."""

    out: Path | None = None
    """Folder for the new version of the corpus and its index; STAGE/hotswap by default, which is overwritten."""
    count: int = 3
    """How many blocks are shown."""
    json: bool = False
    """Print one JSON object: `before`, `after`, `swap`."""


def ask(arguments: list[str]) -> int:
    """realm ask RUN "question" """
    if arguments and arguments[0] in ("-h", "--help"):
        parse(Ask, ["--help"], 'realm ask RUN "question"')
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(USAGE)
    questions, rest = _said(arguments[1:])
    given = parse(Ask, rest, 'realm ask RUN "question"')
    at_least_one("count", given.count)
    asking = _opened(Path(arguments[0]), given.count)
    for question in questions:
        show(asking.ask(question, given.count, given.pieces), given.json)
    if not questions:
        _typed(asking, given)
    return 0


def hotswap(arguments: list[str]) -> int:
    """realm hotswap RUN "statement with [MASK]" --replace FILE"""
    from realm.text.edit import CorpusEdit

    if arguments and arguments[0] in ("-h", "--help"):
        parse(Hotswap, ["--help"], "realm hotswap RUN QUESTION", edit=(CorpusEdit, None))
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(SWAP)
    questions, rest = _said(arguments[1:])
    if not questions:
        raise UsageError(SWAP)
    given = parse(Hotswap, rest, "realm hotswap RUN QUESTION", edit=(CorpusEdit, None))
    at_least_one("count", given.count)
    from experiments.data_command import listed
    from experiments.hotswap import hotswap as run

    asking = _opened(Path(arguments[0]), given.count)
    out = given.out or asking.run.folder / "hotswap"
    found = run(asking, listed(given.edit), questions, out, overwrite=given.out is None, count=given.count)
    if given.json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    swap = found["swap"]
    took = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in swap["seconds"].items())
    for before, after in zip(found["before"], found["after"], strict=True):
        print("before:")
        show(before, False)
        print(f"\n{swap['embedded']} of {swap['blocks']} blocks embedded, nothing trained ({took})\n\nafter:")
        show(after, False)
    return 0


def show(record: dict[str, Any], as_json: bool) -> None:
    """One answer, for people or for programs."""
    if as_json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    from rich.text import Text

    from experiments.console import wide_console

    console = wide_console()
    console.print(Text(record["question"], style="dim"))
    if record["answer"] is None:
        console.print("no answer: no block was found")
        return
    console.print(Text(f"  {record['answer']}", style="bold") + Text(f"   p {record['p']:.3f}"))
    for one in record["evidence"]:
        said = "" if one["answer"] == record["answer"] else f"  {one['answer']}"
        place = "" if one["block"] is None else f" [{one['block']}]"
        line = f"  p(z|x) {one['p_block']:.3f}  p(y|z,x) {one['p_answer']:.3f}{said}  {one['title']}{place}"
        console.print(Text(line))
        if one["text"]:
            console.print(Text("    ") + _snippet(one["text"], one["spans"], console.is_terminal))
    index, seconds = record["index"], record["seconds"]
    took = "  ".join(f"{name} {1000 * value:.0f} ms" for name, value in seconds.items())
    age = f"generation {index['generation']} of step {index['generation_step']}, {index['index_age']} steps old"
    console.print(Text(f"  {took}  ({index['kind']} index, {index['rows']} blocks, {age})", style="dim"))


def _snippet(text: str, spans: list[list[int]], styled: bool, around: int = 140) -> Any:
    """The text about the first span, with all spans underlined, or in ⟦brackets⟧ where there is no terminal."""
    from rich.text import Text

    first, last = (spans[0][0], spans[0][1]) if spans else (0, 0)
    low, high = max(0, first - around), min(len(text), max(last + around, 2 * around))
    shown = Text("… " if low else "")
    at = low
    for start, end in spans:
        if start < at or end > high:
            continue
        shown += Text(text[at:start], style="dim")
        shown += Text(text[start:end], style="bold underline") if styled else Text(f"⟦{text[start:end]}⟧")
        at = end
    return shown + Text(text[at:high] + (" …" if high < len(text) else ""), style="dim")


def _said(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The questions in front, and the options after them."""
    number = next((n for n, one in enumerate(arguments) if one == "-h" or one.startswith("--")), len(arguments))
    return arguments[:number], arguments[number:]


def _opened(path: Path, count: int) -> Asking:
    """The run, ready: what its questions need is compiled, so that the times shown are those of answering."""
    from experiments.asking import open_asking
    from experiments.compiled import keep_compiled

    began = time.monotonic()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "realm-jax"
    keep_compiled(cache, 0.2)  # the second time is faster
    asking = open_asking(path)
    asking.ask("[MASK] is it ?" if asking.masked else "what is it ?", count)
    said = "fills [MASK] in a statement" if asking.masked else "answers questions with spans"
    seconds = time.monotonic() - began
    print(f"{asking.run.folder} at step {asking.step} {said}; ready in {seconds:.1f} s", file=sys.stderr)
    return asking


def _typed(asking: Asking, given: Ask) -> None:
    """Questions as they are typed, until an empty line; a mistake in one is told and the next one read."""
    from experiments.asking import AskError

    while True:
        try:
            line = input("? ") if sys.stdin.isatty() else next(sys.stdin, "")
        except (EOFError, KeyboardInterrupt):
            return
        if not line.strip():
            return
        try:
            show(asking.ask(line.strip(), given.count, given.pieces), given.json)
        except AskError as error:
            print(f"realm: {error}", file=sys.stderr)
