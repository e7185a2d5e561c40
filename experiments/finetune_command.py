"""`realm finetune PRESET`: open-domain question answering; `realm compare A B`: two runs question by question."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.arguments import HELP_FLAGS, UsageError, at_least_one, make_room, parse, write_answer

if TYPE_CHECKING:
    from experiments.config import Preset


@dataclass(frozen=True)
class Finetune:
    """Fine-tunes a retriever and a span reader on questions and answers, and measures both."""

    out: Path | None = None
    """Folder of the main job; runs/PRESET by default."""
    resume: bool = False
    """Go on with what a killed or stopped job left."""
    overwrite: bool = False
    """Delete what is there and start again."""
    train: str | None = None
    """Questions to learn from: a file of any known format, `FORMAT:PATH`, or `sample:questions-dev`; `PATH#SET` or
    `PATH#SET:SPLIT` says which set they are (`q.jsonl#squad`, or a name of your own). What --questions names is
    measured, and says so where it is another set; without it the questions of --train about held-out documents
    (--corpus.holdout)."""
    warm_start: Path | None = None
    """A run (runs/sample, or one of its stages) whose retriever and, if it has one, joint encoder are started from.
    Its corpus is used too, unless another is named."""
    init: str | None = None
    """Start every encoder from these weights, `hf:FOLDER` or `embedded`. A folder that is a retriever already (a
    sentence encoder, a REALM) makes the ICT stage needless: it is left out."""
    reader_init: str | None = None
    """Start the reader from these weights instead, and shape it like them: a small reader beside a large retriever, or
    another reader than that of --warm-start."""
    json: Path | None = None
    """Also write the summary to this file."""


@dataclass(frozen=True)
class Compare:
    """Compares two runs, or two dumps, question by question: difference, its interval, and a sign-flip test."""

    field: str = "em"
    """What is compared: em or f1 of answers; gold@K or answer@K (gold@20) of retrieved blocks."""
    json: Path | None = None
    """Also write the comparison to this file: `difference` (`mean`, `low`, `high`: a fraction), `p_value`, the
    questions `better`, `worse` and `equal`, what both were measured on (`field`, `mode`, `dataset`, `split`,
    `fingerprint`), and of `first` and `second` the `path` and what its dump says of the row."""


def finetune(arguments: list[str]) -> int:
    """realm finetune PRESET"""
    from experiments.cli import chosen_preset
    from experiments.config import Preset
    from experiments.pipeline import pretrain
    from experiments.presets import PRESETS, card

    if not arguments or arguments[0] in {*HELP_FLAGS, "--list"}:
        print("usage: realm finetune PRESET [--train QUESTIONS] [--questions QUESTIONS] [--warm-start RUN] ...\n")
        print("\n".join(f"  {name:10s} {card(name)}" for name in PRESETS if PRESETS[name]().open_qa))
        print("\nor a preset.json file. realm finetune PRESET --help shows every option and field.")
        return 0 if arguments else 2
    name, preset, about = chosen_preset(arguments[0])
    if preset.open_qa is None:
        raise UsageError(f"preset {name} has no open_qa stage: give it to `realm pretrain`, or squad_open to this verb")
    given = parse(Finetune, arguments[1:], f"realm finetune {arguments[0]}", about, preset=(Preset, preset))
    if given.resume and given.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if given.warm_start and given.init:
        raise UsageError("--warm-start and --init exclude each other: parameters come from one of them")
    at_least_one("max-questions", given.preset.max_questions)
    make_room(given.json)
    existing = "resume" if given.resume else "overwrite" if given.overwrite else "refuse"
    said = any(one.partition("=")[0] == "--questions" for one in arguments[1:])
    chosen = _chosen(given, preset, said)
    write_answer(given.json, pretrain(chosen, given.out or Path("runs") / name, existing))
    return 0


def _chosen(given: Finetune, default: Preset, measured: bool = False) -> Preset:
    """The preset with what --train, --warm-start and --init say. measured: --questions says what to measure on."""
    from experiments.config import started_from, with_init
    from experiments.warm_start import warm_started
    from realm.models.weights import tower_settings

    preset = given.preset
    if given.train:
        stage = preset.open_qa
        objective = replace(stage.objective, questions=given.train)
        preset = replace(preset, open_qa=replace(stage, objective=objective))
        if preset.questions == default.questions and not measured:
            preset = replace(preset, questions=None)
    if given.warm_start:
        own = preset.corpus != default.corpus or preset.built_corpus is not None
        preset = warm_started(preset, given.warm_start, own_corpus=own, reader=given.reader_init)
    if given.init:
        preset = with_init(preset, given.init)
        if tower_settings(given.init) and preset.ict:
            print(f"{given.init} is a retriever already: no ICT stage", file=sys.stderr)
            kept = {part: source for part, source in preset.open_qa.warm_start.items() if source != "ict"}
            preset = replace(preset, ict=None, open_qa=replace(preset.open_qa, warm_start=kept))
    if given.reader_init and not given.warm_start:
        objective = preset.open_qa.objective
        objective = replace(objective, joint=started_from(objective.joint, given.reader_init))
        preset = replace(preset, open_qa=replace(preset.open_qa, objective=objective))
    return preset


def compare(arguments: list[str]) -> int:
    """realm compare FIRST SECOND"""
    usage = "realm compare FIRST SECOND"
    if arguments and arguments[0] in HELP_FLAGS:
        parse(Compare, ["--help"], usage)
    if len(arguments) < 2 or arguments[0].startswith("-") or arguments[1].startswith("-"):
        raise UsageError(
            f"wanted `{usage} [--field gold@20]`, each a run, a stage or a dump (answers-*.jsonl, recall-*.jsonl)"
        )
    given = parse(Compare, arguments[2:], usage)
    from experiments.dump_places import dump_of
    from realm.evaluation.dump import COMPARED, compare_dumps, read_dump

    if not COMPARED.fullmatch(given.field):
        raise UsageError(f"found --field {given.field}, wanted em, f1, gold@K or answer@K")
    make_room(given.json)
    paths = [dump_of(Path(one), given.field) for one in arguments[:2]]
    first, second = (read_dump(path) for path in paths)
    found = compare_dumps(first, second, given.field, group="article")
    header = first.header
    print(f"second minus first, {given.field} {header['mode']}: {found.difference} points, p = {found.p_value:.4f}")
    counts = f"{found.better} questions better, {found.worse} worse, {found.equal} equal"
    print(f"{counts}; {found.difference.units} articles of {header['dataset']} ({header['split']})")
    shared = {name: header[name] for name in ("mode", "dataset", "split", "fingerprint")}
    sides = {
        side: {"path": str(path)} | {name: value for name, value in dump.header.items() if name not in shared}
        for side, path, dump in zip(("first", "second"), paths, (first, second), strict=True)
    }
    write_answer(given.json, found.to_json() | {"field": given.field, **shared, **sides})
    return 0
