"""The generations of one run folder, and the rules that keep them in order.

A generation is made in `.staging-<g>-<step>` and appears as `<g>-<step>` by one rename, when everything in it is on the
disk. Steps strictly increase (REALM's poller could re-embed an older export, and go backwards). A run resumed from an
earlier checkpoint sets later generations aside: when it comes past the same step with the same parameters they are
taken back, otherwise they go. One that cannot be read is left out, its number never used again. The refresher makes
generations, the trainer sets aside and deletes, each under one lock (`claim.ordered`); any number may read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from index_refresh import files
from index_refresh.claim import OrderBusy, ordered
from index_refresh.draft import Draft
from index_refresh.generation import (
    FORMAT,
    MANIFEST,
    Generation,
    GenerationCorrupt,
    GenerationMissing,
    check_manifest,
    content_of,
    read_manifest,
    sealed,
)
from index_refresh.log import GenerationLog
from index_refresh.recipe import Recipe, Table
from index_refresh.snapshot import StaleSnapshot
from realm.protocols import GenerationLike, Report

NAME = re.compile(r"([0-9]+)-([0-9]+)")
REWIND_SECONDS = 60.0  # how long a resuming trainer waits for a refresher to let go of the order lock


class Overtaken(RuntimeError):
    """A draft whose place in the line of generations was taken, or whose run was rewound, while it was made."""


class GenerationStore:
    """`<run>/generations/` and `generations.jsonl`, for one recipe. `report`: told once of each that is left out."""

    def __init__(self, run: str | Path, recipe: Recipe, report: Report = lambda line: None) -> None:
        self.run = Path(run)
        self.folder = self.run / "generations"
        self.recipe = recipe
        self.log = GenerationLog(run)
        self.report = report
        self.damage: str | None = None  # what is wrong with the last one that was left out
        self._left_out: set[str] = set()
        self._opened: dict[tuple[str, int], Generation] = {}

    @cached_property
    def table(self) -> Table:
        return self.recipe.open_table()

    # ---- reading

    def _named(self, prefix: str = "") -> dict[int, tuple[int, Path]]:
        """{number: (step, folder)} of the folders '<prefix><number>-<step>', ascending."""
        found = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            match = NAME.fullmatch(path.name.removeprefix(prefix)) if path.name.startswith(prefix) else None
            if match and path.is_dir():
                found[int(match[1])] = (int(match[2]), path)
        return dict(sorted(found.items()))

    def numbers(self) -> list[int]:
        """Numbers of the published generations, ascending."""
        return list(self._named())

    def open(self, number: int, encoder: str | None = None) -> Generation:
        """The published generation of that number, its manifest checked against the corpus and, where `encoder` names
        a fingerprint, against that. Raises GenerationMissing, GenerationMismatch, GenerationCorrupt."""
        named = self._named()
        if number not in named:
            raise GenerationMissing(f"{self.folder}: found generations {list(named)}, wanted number {number}")
        step, path = named[number]
        key = (path.name, (path / MANIFEST).stat().st_mtime_ns) if (path / MANIFEST).exists() else (path.name, 0)
        if key not in self._opened or encoder is not None:
            manifest = read_manifest(path)
            check_manifest(path, manifest, self.table, encoder)
            self._opened[key] = Generation(number, step, path, manifest, self.recipe)
        return self._opened[key]

    def newest(self) -> Generation | None:
        """The latest published generation. Cheap enough to ask for at every step."""
        numbers = self.numbers()
        return self.open(numbers[-1]) if numbers else None

    def sound(self) -> Generation | None:
        """The latest published generation that can be read: for who must go on, whatever became of later ones."""
        return next(self._readable(), None)

    def later(self, than: Generation | None) -> Generation | None:
        """`sound` where it is later than that one: nobody goes back because a generation in use was damaged."""
        found = self.sound()
        return found if found is not None and (than is None or found.number > than.number) else None

    def next_number(self) -> int:
        """Above that of every published generation: a damaged one keeps its number, a checkpoint may name it."""
        return max(self._named(), default=-1) + 1

    def _readable(self) -> Iterator[Generation]:
        """The published generations, latest first, without those that cannot be read."""
        for number in reversed(self.numbers()):
            try:
                yield self.open(number)
            except GenerationCorrupt as error:
                self.damage = f"generation {number} is left out: {error}"
                if self.damage not in self._left_out:
                    self._left_out.add(self.damage)
                    self.report(f"WARNING {self.damage}")

    def all(self) -> list[Generation]:
        """Every published generation, oldest first."""
        return [self.open(number) for number in self.numbers()]

    # ---- making a new one

    def begin(self, step: int, encoder: str, confirm: Callable[[], None] = lambda: None) -> Draft | Generation:
        """Opens (or takes up again) the draft for a snapshot with fingerprint `encoder`; a Generation where the same
        one is finished already. Raises StaleSnapshot for a step that is not after the newest published one, and what
        `confirm` raises."""
        with ordered(self.run):
            confirm()
            newest = self.sound()
            if newest is not None and step <= newest.step:
                self.refuse_unless_same(newest, step, encoder)
                return newest
            number = self.next_number()
            identity = self._identity(number, step, encoder)
            if self.recipe.slices > 1 and newest is not None and newest.number == number - 1:
                identity["base"] = content_of(newest.manifest)
            draft = Draft(number, step, self.folder / f".staging-{number}-{step}", identity)
            files.make_folder(self.folder)
            aside = self._named(".aside-")
            same = False
            with suppress(GenerationCorrupt):  # one that cannot be read goes with the others
                same = number in aside and draft.identity.items() <= read_manifest(aside[number][1]).items()
            if same:
                files.move(aside[number][1], self.folder / f"{number}-{step}")
                return self.open(number)
            for _, path in aside.values():  # history took another course: what came later in it cannot come again
                files.discard(path)
            draft.clear_others()
            files.make_folder(draft.folder)
            if not draft.progress.exists():
                files.write_json(draft.progress, {"identity": draft.identity, "shards": {}})
            return draft

    def publish(self, draft: Draft, manifest: dict[str, Any], confirm: Callable[[], None] = lambda: None) -> Generation:
        """Makes a finished draft visible, by one rename after everything is on the disk.

        `manifest`: dim, dtype, shards, index, what it cost; the rest is added here. Raises Overtaken where another
        generation has taken the draft's place, and what `confirm` raises; then the draft stays.
        """
        shards = [shard["file"] for shard in manifest["shards"]]
        paths = [path for path in sorted(draft.folder.rglob("*")) if path.is_file()]
        others = {path.relative_to(draft.folder).as_posix(): path for path in paths if path.name != MANIFEST}
        for name in list(others):
            if name.endswith(".aside"):  # left by a kill
                files.unlink(others.pop(name))
        complete = {"format": FORMAT} | draft.identity | manifest | {"time": time.time()}
        complete["files"] = {name: files.describe(path) for name, path in others.items() if name not in shards}
        files.write_json(draft.folder / MANIFEST, sealed(complete))
        files.fsync_tree(draft.folder)
        with ordered(self.run):
            confirm()
            newest = self.sound()
            if self.next_number() != draft.number or (newest is not None and draft.step <= newest.step):
                raise Overtaken(f"{draft.folder}: found {newest} published meanwhile, so this draft has no place")
            files.move(draft.folder, self.folder / f"{draft.number}-{draft.step}")
        files.unlink(draft.progress)
        return self.open(draft.number)

    def log_published(self) -> None:
        """Logs what can be read and the log does not know: the new generation, or one whose maker was killed before."""
        for generation in reversed(list(self._readable())):
            self.log.published(generation.manifest, generation.rolled())

    def log_adopted(self, generation: GenerationLike, step: int) -> None:
        """Logs that training searches this generation from `step` on; of a rolling one also how old its documents are:
        the youngest, the mean and the oldest, in steps."""
        self.log.adopted(generation.number, generation.step, step, generation.document_ages(step))

    # ---- order in the house

    def recover(self) -> None:
        """After a start: clears what a kill left (a draft stays, to be taken up again) and completes the log. For who
        is both refresher and owner of the log."""
        self.clear()
        self.log_published()

    def clear(self) -> None:
        """Clears what a kill left; for a refresher, which is the only one with drafts."""
        with ordered(self.run):
            for path in self.folder.glob(".*") if self.folder.is_dir() else ():
                if path.name.startswith(".trash-"):
                    files.remove_tree(path)
                elif path.is_file() and not (path.suffix == ".json" and path.with_suffix("").is_dir()):
                    files.unlink(path)

    def rewind(self, step: int) -> None:
        """On resume: generations after `step` are set aside, later events forgotten, and generations up to `step` that
        an earlier rewind had set aside are taken back. -1 sets all aside. Raises OrderBusy where a refresher holds the
        order lock for longer than a minute."""
        with ordered(self.run, REWIND_SECONDS):
            for number, (made, path) in reversed(self._named().items()):
                if made > step:
                    files.move(path, self.folder / f".aside-{number}-{made}")
            for number, (made, path) in self._named(".aside-").items():
                named = self._named()  # by their names alone, so that a damaged one is in nobody's way
                last = max(named, default=None)
                follows = last is None or (number == last + 1 and made > named[last][0])
                if made <= step and follows:
                    files.move(path, self.folder / f"{number}-{made}")
            self.log.rewind(step)
        self.log_published()

    def retain(self, keep_last: int, keep: Collection[int] = (), below: float = float("inf")) -> list[int]:
        """Deletes all but the newest `keep_last` (at least 1), those in `keep` and those from `below` on; returns the
        deleted numbers. None while a refresher holds the order lock: the trainer does not wait, the next call deletes
        them."""
        try:
            with ordered(self.run, 0.0):
                named = self._named()
                old = list(named)[: -max(keep_last, 1)]
                gone = [number for number in old if number < below and number not in keep]
                for number in gone:
                    files.discard(named[number][1])
                return gone
        except OrderBusy:
            return []

    def awaited(self, kept: Collection[int]) -> set[int]:
        """The generations that a run resumed from a checkpoint naming one of `kept` would still go over to: those made
        before the adoption that followed. Where adoption is delayed on purpose, their parameters are gone by then."""
        adopted = [event for event in self.log.events() if event["event"] == "adopted"]
        wanted: set[int] = set()
        for number in kept:
            places = [place for place, event in enumerate(adopted) if event["generation"] == number]
            if not places:
                continue
            following = adopted[places[-1] + 1 :][:1]
            until = following[0]["step"] if following else float("inf")
            wanted |= {later for later, (made, _) in self._named().items() if later > number and made < until}
        return wanted

    # ---- helpers

    def _identity(self, number: int, step: int, encoder: str) -> dict[str, Any]:
        return {
            "number": number,
            "step": step,
            "rows": self.table.indexed,
            "encoder_fingerprint": encoder,
            "corpus_fingerprint": self.table.fingerprint,
            "tokenizer_fingerprint": self.table.tokenizer.fingerprint,
            "recipe": self.recipe.settings(),
        }

    def refuse_unless_same(self, newest: Generation, step: int, encoder: str) -> None:
        """Raises StaleSnapshot where a snapshot, of a step up to the newest's, is not the newest's own."""
        manifest = newest.manifest
        if step != newest.step or encoder != manifest["encoder_fingerprint"]:
            raise StaleSnapshot(
                f"found a snapshot of step {step} with fingerprint {encoder}, but {newest} with fingerprint "
                f"{manifest['encoder_fingerprint']} is published: steps only increase. To resume from a checkpoint, "
                "call rewind(its step) first; to start over, use a new run folder"
            )
