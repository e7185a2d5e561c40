"""`realm data embed`: the index of an edited corpus, made from a run's newest one: only changed blocks are embedded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.arguments import HELP_FLAGS, UsageError, make_room, parse, write_answer


@dataclass(frozen=True)
class DataEmbed:
    """Makes a generation for a corpus with the retriever of a run's newest generation."""

    like: Path
    """The run: a main job, or its realm or open_qa stage. Its retriever embeds, its index kind is built."""
    out: Path
    """Folder for the generation (`generations/`), which may be searched like any."""
    json: Path | None = None
    """Also write what was done (`rows`, `embedded`, `reused`, `reason`, `generation`) to this file."""


def embed(arguments: list[str]) -> int:
    """realm data embed CORPUS --like RUN --out DIR"""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in HELP_FLAGS):
        raise UsageError("wanted `realm data embed CORPUS --like RUN --out DIR`, CORPUS being an edited corpus")
    corpus, rest = (None, arguments) if arguments[0].startswith("-") else (Path(arguments[0]), arguments[1:])
    given = parse(DataEmbed, rest, "realm data embed CORPUS")
    make_room(given.json)
    from dataclasses import replace

    from experiments.locate import open_retrieving
    from experiments.recipe_of import recipe_of
    from index_refresh.reuse import refresh_edited
    from index_refresh.store import GenerationStore

    folder, stage, table = open_retrieving(given.like)
    recipe = recipe_of(stage, table)
    newest = GenerationStore(folder, recipe).newest()
    if newest is None:
        raise UsageError(f"{folder} has no generation yet: wanted a run whose index was made")
    made = refresh_edited(newest, replace(recipe, corpus=str(corpus.resolve()), slices=1), given.out)
    print(f"{made.generation}: {made.embedded} blocks embedded, {made.reused} taken over ({made.reason})")
    answer = {"rows": made.embedded + made.reused, "embedded": made.embedded, "reused": made.reused}
    answer |= {"reason": made.reason, "generation": str(made.generation.path)}
    write_answer(given.json, answer)
    return 0
