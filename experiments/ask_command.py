"""`realm ask RUN "question"` and `realm hotswap RUN "statement with [MASK]"`: what a run answers, and why."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.arguments import HELP_FLAGS, UsageError, at_least_one, parse

if TYPE_CHECKING:
    from experiments.asking import Asking
    from experiments.locate import Run

USAGE = """\
wanted `realm ask RUN "question"`, or `realm ask RUN` to type questions; RUN is a folder such as runs/squad_open. A \
question that begins with -- stands behind a -- of its own"""
SWAP = """\
wanted `realm hotswap RUN "question or statement with [MASK]" --replace FILE` (or --add FILE, --delete ID)"""


@dataclass(frozen=True)
class Ask:
    """Asks a run. A fine-tuned one answers questions with spans of its blocks; a pretrained one fills [MASK] in a
    statement. Without a question, one is read a line, until an empty one. What stands behind a bare `--` is a question,
    however it begins."""

    count: int = 3
    """How many blocks are shown."""
    pieces: int | None = None
    """Wordpieces that [MASK] stands for, of a pretrained run; by default each number is tried and the likeliest answer
    is taken."""
    json: bool = False
    """Print one JSON object a question instead of text: `answer`, `p`, `evidence`, `warnings`, `seconds`,
    `index`."""


@dataclass(frozen=True)
class Hotswap:
    """Exchanges documents of a run's corpus and asks before and after, without training (REALM, table 4). The edit is
    as of `realm data edit`; only new blocks are embedded."""

    out: Path | None = None
    """Folder for the new version of the corpus and its index; STAGE/hotswap by default, which is overwritten."""
    count: int = 3
    """How many blocks are shown."""
    json: bool = False
    """Print one JSON object: `before`, `after`, `swap`; swap.parameters has the hashes of what must not have moved."""


def ask(arguments: list[str]) -> int:
    """realm ask RUN "question" """
    said, options = parted(arguments, Ask)
    if not said and not HELP_FLAGS & set(options):
        raise UsageError(USAGE)
    given = parse(Ask, options, 'realm ask RUN "question"')
    at_least_one("count", given.count)
    questions = said[1:]
    run = _checked(Path(said[0]), questions, given.pieces)
    asking = _loaded(run, given.count, given.pieces)
    for question in questions:
        show(asking.ask(question, given.count, given.pieces), given.json)
    if not questions:
        _typed(asking, given)
    return 0


def hotswap(arguments: list[str]) -> int:
    """realm hotswap RUN "statement with [MASK]" --replace FILE"""
    from experiments.data_reading import TOLD_OF_EDIT, described
    from realm.text.edit import CorpusEdit

    said, options = parted(arguments, Hotswap, CorpusEdit)
    if len(said) < 2 and not HELP_FLAGS & set(options):
        raise UsageError(SWAP)
    prog = "realm hotswap RUN QUESTION"
    given = parse(Hotswap, options, prog, described(Hotswap), TOLD_OF_EDIT, edit=(CorpusEdit, None))
    at_least_one("count", given.count)
    from experiments.data_command import deleted_ids
    from experiments.hotswap import edited
    from experiments.hotswap import hotswap as swapped

    questions = said[1:]
    change = replace(given.edit, delete=tuple(deleted_ids(given.edit.delete)))
    run = _checked(Path(said[0]), questions)
    new = edited(run.table.path, change, given.out or run.folder / "hotswap", overwrite=given.out is None)
    found = swapped(_loaded(run, given.count), new, questions, given.count)
    if given.json:
        print(json.dumps(found, ensure_ascii=False))
        return 0
    swap = found["swap"]
    took = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in swap["seconds"].items())
    why = f" ({swap['reason']})" if swap["embedded"] == swap["blocks"] else ""
    hashes = swap["parameters"]
    trained = "nothing trained" if hashes["before"] == hashes["after"] else f"PARAMETERS DIFFER: {hashes}"
    for before, after in zip(found["before"], found["after"], strict=True):
        print("before:")
        show(before, False)
        print(f"\n{swap['embedded']} of {swap['blocks']} blocks embedded{why}, {trained} ({took})\n\nafter:")
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
    for warning in record["warnings"]:
        console.print(Text(f"  WARNING {warning}"))
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


def parted(arguments: list[str], *kinds: type) -> tuple[list[str], list[str]]:
    """(RUN and questions, options) of a command line, whichever stands first; all behind a bare `--` are questions.

    kinds: the dataclasses of the options, by whose types an option takes no value, one, or all up to the next option.
    """
    kind_of = {f"--{one.name.replace('_', '-')}": str(one.type) for kind in kinds for one in fields(kind)}
    said, options, wanted = [], [], 0
    for place, one in enumerate(arguments):
        if one == "--":
            return [*said, *arguments[place + 1 :]], options
        if one.startswith("--") or one == "-h":
            kind = kind_of.get(one, "bool")  # of no or another name: parsing says so
            wanted = 0 if kind == "bool" else len(arguments) if kind.startswith(("tuple", "Mapping")) else 1
            options.append(one)
        elif wanted:
            wanted -= 1
            options.append(one)
        else:
            said.append(one)
    return said, options


def _checked(path: Path, questions: list[str], pieces: int | None = None) -> Run:
    """The run at `path`. Raises what is wrong with the questions before anything is loaded."""
    from experiments.asking import answering_run
    from experiments.cloze_question import check_question

    run = answering_run(path)
    for question in questions:
        check_question(run, question, pieces)
    return run


def _loaded(run: Run, count: int, pieces: int | None = None) -> Asking:
    """The run, ready: what its questions need is compiled, so that the times shown are those of answering."""
    from experiments.asking import loaded
    from experiments.compiled import keep_compiled

    began = time.monotonic()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "realm-jax"
    keep_compiled(cache, 0.2)  # the second time is faster
    asking = loaded(run)
    asking.ask("[MASK] is it ?" if asking.masked else "what is it ?", count, pieces)
    said = "fills [MASK] in a statement" if asking.masked else "answers questions with spans"
    seconds = time.monotonic() - began
    print(f"{asking.run.folder} at step {asking.step} {said}; ready in {seconds:.1f} s", file=sys.stderr)
    return asking


def _typed(asking: Asking, given: Ask) -> None:
    """Questions as they are typed, until an empty line; a mistake in one is told and the next one read."""
    from experiments.asking import AskError

    if hasattr(sys.stdin, "reconfigure"):  # bytes that are no text shall cost their line, not the session
        sys.stdin.reconfigure(errors="surrogateescape")
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
