"""A corpus of facts: real, open for checking, and confusable, to see whether a retriever learns from masked words.

Every place (`geonames`) has up to ten facts. The knowledge corpus words them a few to a block, so that one place has
several blocks; statements word the same facts with other templates, and now and then another spelling of the place.
Statements are masked (the object is the salient span) and never retrieved, blocks are retrieved and never masked.
Words alone do not settle it: the templates of the two sides share no content words, a place's name stands in all of
its blocks, and places that share a name come in together.

Three kinds of held-out statements are never trained on, though their facts are in the index: single facts, all facts
of some places, and all facts of one kind of relation.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from realm.text.fact_templates import IDENTITY, RELATIONS
from realm.text.geonames import Place, nearest_large, places

OBJECT = "OBJECT"  # the label of the one salient span of a statement
SPLITS = ("facts", "subjects", "relations")
FILES = {"documents": "documents.jsonl.gz", "statements": "statements.jsonl.gz", "spans": "spans.jsonl.gz"}
LONGEST_NAME = 20  # characters of a place or an object, so that blocks stay short
CLOZES = "clozes.jsonl.gz"


class FactsError(ValueError):
    """A facts corpus that cannot be made as asked."""


@dataclass(frozen=True)
class FactsConfig:
    """blocks: of the knowledge corpus, about (at most 300,000). facts_per_place, facts_per_block: at most.
    restated: the document of a trained statement also tells its fact as a block would; those sentences have no salient
    span. From such pairs masked language modelling alone learns to copy an object from another wording, which is how
    the joint encoder can read before it has retrieved anything.

    heldout_facts, heldout_subjects: shares of facts and of places whose statements are never trained on;
    heldout_relations: kinds of facts that are not. spellings: share of statements with another spelling of the place,
    where there is one. Raises FactsError.
    """

    blocks: int = 6_000
    facts_per_place: int = 3
    facts_per_block: int = 1
    restated: bool = True
    heldout_facts: float = 0.1
    heldout_subjects: float = 0.05
    heldout_relations: tuple[str, ...] = ("longitude",)
    spellings: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= 300_000:
            raise FactsError(f"found facts.blocks={self.blocks}, wanted 1 to 300000: the place table has no more")
        for name in ("facts_per_place", "facts_per_block"):
            if getattr(self, name) < 1:
                raise FactsError(f"found facts.{name}={getattr(self, name)}, wanted 1 or more")
        for name in ("heldout_facts", "heldout_subjects", "spellings"):
            if not 0 <= getattr(self, name) < 1:
                raise FactsError(f"found facts.{name}={getattr(self, name)}, wanted a share from 0 to below 1")
        unknown = set(self.heldout_relations) - RELATIONS.keys()
        if unknown:
            raise FactsError(f"found facts.heldout_relations {sorted(unknown)}, wanted some of {sorted(RELATIONS)}")


class Cloze(NamedTuple):
    """A held-out statement. document: its id in the corpus. gold: ids of the documents that hold its fact. split: one
    of SPLITS. relation, subject, object: the fact. start, end: the object's characters in the statement."""

    document: str
    gold: tuple[str, ...]
    split: str
    relation: str
    subject: str
    object: str
    start: int
    end: int


class Fact(NamedTuple):
    relation: str
    object: str


def write_facts(config: FactsConfig, folder: str | Path) -> dict[str, int]:
    """Writes documents, statements, spans and clozes (FILES, CLOZES) into `folder`; gives counts.

    The same config gives the same bytes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([config.seed, 0xFAC7])
    everywhere = places()
    chosen = _choose(everywhere, config, rng)
    facts_of = _facts(chosen, everywhere)
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in (*FILES, "clozes")}
    name_count: dict[str, int] = defaultdict(int)
    for place in chosen:
        name_count[place.name] += 1
    blocks = 0
    for place, facts in zip(chosen, facts_of, strict=True):
        if blocks >= config.blocks:
            break
        shared = name_count[place.name] > 1
        # Where a place lies is in all of its blocks, so it cannot be asked.
        facts = [fact for fact in facts if fact.relation != ("state" if place.state else "country")]
        blocks += _word(place, facts, shared, config, rng, lines)
    for name, file in {**FILES, "clozes": CLOZES}.items():
        with (folder / file).open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed:
            packed.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines[name]).encode())
    trained = sum(not line["heldout"] for line in lines["statements"])
    return {
        "blocks": blocks,
        "statements": len(lines["statements"]),
        "trained": trained,
        **{split: sum(line["split"] == split for line in lines["clozes"]) for split in SPLITS},
    }


def read_clozes(folder: str | Path) -> list[Cloze]:
    """The held-out statements of a facts folder. Raises FactsError."""
    path = Path(folder) / CLOZES
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return [Cloze(**{**json.loads(line), "gold": tuple(json.loads(line)["gold"])}) for line in file]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FactsError(f"{path}: {error}, wanted what write_facts leaves there") from error


def _choose(everywhere: list[Place], config: FactsConfig, rng: np.random.Generator) -> list[Place]:
    """Places in random order, but those that share a name one after the other."""
    by_name: dict[str, list[Place]] = defaultdict(list)
    for place in everywhere:
        if len(place.name) <= LONGEST_NAME:
            by_name[place.name].append(place)
    names = list(by_name)
    # Shared names first in line half of the time, so that a small corpus has its share of them too.
    shared = [name for name in names if len(by_name[name]) > 1]
    order = [names[i] for i in rng.permutation(len(names))]
    mixed = [shared[i] for i in rng.permutation(len(shared))]
    chosen: list[Place] = []
    taken: set[str] = set()
    for at, name in enumerate(order):
        for one in (name, mixed[at // 8] if at % 8 == 0 and at // 8 < len(mixed) else name):
            if one not in taken:
                taken.add(one)
                chosen += by_name[one]
        if len(chosen) >= config.blocks:  # a place has at least one block
            break
    return chosen


def _facts(chosen: list[Place], everywhere: list[Place]) -> list[list[Fact]]:
    """The facts of each place; a relation is left out where it has no object."""
    number, km = nearest_large(chosen, everywhere)
    rank: dict[str, int] = {}
    seen: dict[str, int] = defaultdict(int)
    for place in everywhere:  # the most populous first
        seen[place.country] += 1
        rank[place.id] = seen[place.country]
    facts = []
    for place, near, distance in zip(chosen, number, km, strict=True):
        objects = {
            "country": place.country,
            "timezone": place.timezone.rpartition("/")[2].replace("_", " "),
            "population": _number(round(place.population / 1000)),
            "neighbour": everywhere[int(near)].name,
            "distance": _number(round(distance)),
            "latitude": _number(round(abs(place.latitude))),
            "longitude": _number(round(abs(place.longitude))),
            "rank": _number(rank[place.id]),
            "state": place.state,
            "name": place.other,
        }
        facts.append([Fact(relation, value) for relation, value in objects.items() if 0 < len(value) <= LONGEST_NAME])
    return facts


def _number(value: int) -> str:
    return str(value) if 1 <= value <= 999 else ""


def _word(
    place: Place, facts: list[Fact], shared: bool, config: FactsConfig, rng: np.random.Generator, lines: dict[str, list]
) -> int:
    """Appends the blocks and statements of a place; how many blocks."""
    where = place.state or place.country
    order = rng.permutation(len(facts))[: config.facts_per_place]
    starts = range(0, len(order), config.facts_per_block)
    heldout_subject = rng.random() < config.heldout_subjects
    for ordinal, start in enumerate(starts):
        group = [facts[i] for i in order[start : start + config.facts_per_block]]
        document = f"{place.id}-{ordinal}"
        chosen = [(rng.choice(RELATIONS[fact.relation].knowledge), fact.object) for fact in group]
        text, spans = _worded(chosen, place.name, str(rng.choice(IDENTITY)).format(x=place.name, y=where))
        lines["documents"].append({"id": document, "title": place.name, "text": text})
        lines["spans"].append({"id": document, "spans": spans})
        for fact in group:
            split = _split(fact, heldout_subject, config, rng)
            spelling = place.spelling if place.spelling and rng.random() < config.spellings else place.name
            called = f"{spelling} in {where}" if shared else spelling
            text, spans = _worded([(rng.choice(RELATIONS[fact.relation].query), fact.object)], called)
            if config.restated and split is None:
                told = rng.choice(RELATIONS[fact.relation].knowledge)
                again = _worded(
                    [(told, fact.object)], place.name, str(rng.choice(IDENTITY)).format(x=place.name, y=where)
                )
                text = f"{text} {again[0]}"
            statement = f"{place.id}-{fact.relation}"
            lines["statements"].append({"id": statement, "title": "", "text": text, "heldout": split is not None})
            lines["spans"].append({"id": statement, "spans": spans})
            if split is not None:
                cloze = Cloze(statement, (document,), split, fact.relation, place.id, fact.object, *spans[0][:2])
                lines["clozes"].append(cloze._asdict())
    return len(starts)


def _worded(chosen: list[tuple[str, str]], subject: str, text: str = "") -> tuple[str, list[list[Any]]]:
    """`text`, one sentence for each (template, object), and the spans [start, end, label] of the objects."""
    spans = []
    for template, value in chosen:
        before, after = template.format(x=subject, y="\0").split("\0")
        text += (" " if text else "") + before
        spans.append([len(text), len(text) + len(value), OBJECT])
        text += value + after
    return text, spans


def _split(fact: Fact, heldout_subject: bool, config: FactsConfig, rng: np.random.Generator) -> str | None:
    """Why a statement is held out, or None where it is trained on."""
    held = rng.random() < config.heldout_facts
    if fact.relation in config.heldout_relations:
        return "relations"
    return "subjects" if heldout_subject else "facts" if held else None
