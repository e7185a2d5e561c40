"""The command line: a table of verbs. Each parses its own fields and imports what it needs only when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from experiments.arguments import HELP_FLAGS, UsageError, at_least_one, is_ours, make_room, parse, run_and, write_answer
from experiments.ask_command import ask, hotswap
from experiments.data_command import data
from experiments.export_command import export
from experiments.figure_command import figure
from experiments.finetune_command import compare, finetune
from experiments.refresh_command import bench, drill, refresh
from experiments.sweep_command import sweep
from experiments.tagger_command import tagger

HELP = """\
realm: retrieval-augmented language-model pretraining

  realm data build FILES --out DIR               documents of any format -> blocks, salient spans, manifest
  realm data inspect DIR                         counts, lengths, what was left out and why, sample blocks
  realm data edit DIR --out NEW                  a new version with documents added, deleted or replaced
  realm data tag FILES --tagger T --out SPANS    salient spans of documents: a trained tagger, spaCy, links, a file
  realm data embed NEW --like RUN --out DIR      the index of an edited corpus: only changed blocks are embedded
  realm data dates FILES --spans SPANS           precision and recall of the date finder against labels
  realm data tfds FILE --out DIR                 a corpus and its question sets as a TFDS dataset, for others to load
  realm tagger train FILES                       a BERT tagger from CoNLL files; realm tagger evaluate: its span F1
  realm pretrain PRESET [--resume|--overwrite]   mlm -> ict -> read -> realm, each resumable, then a table of recall
  realm finetune PRESET                          retriever and reader on question/answer files, EM and F1
  realm pretrain --list                          the presets, one line and cost each
  realm pretrain PRESET --plan                   what it would need in bytes, on devices, host and disk
  realm evaluate RUN                             recall@k next to BM25, masked-word loss with and without retrieval
  realm evaluate hf:FOLDER --corpus C --questions Q   the same of a pretrained encoder as it is
  realm report RUN                               masked sentences, retrieved blocks with p(z|x) and utility
  realm ask RUN "question"                       answer, evidence, p(z|x), p(y|z,x); without a question: type them
  realm hotswap RUN "... [MASK] ..." --replace F exchange documents, refresh, ask again: no training
  realm export RUN --out DIR                     a run as a Hugging Face folder with its vocabulary, for --init hf:DIR
  realm compare FIRST SECOND                     answers or recall of two runs question by question, with an interval
  realm refresh RUN                              the refresher as a job of its own, for an External engine
  realm sweep NAME [--jobs N]                    controls and ablations over seeds, resumable, as one table
  realm figure NAME                              recall, utility and index age of a sweep as a PNG
  realm figure RUN --what ages                   index age of a run, adoptions and blocked seconds as a PNG
  realm bench index [--rows N]                   index kinds: queries/s, recall, build seconds, bytes, peak memory
  realm bench overlap                            step time with and without a refresher on other cores, index age
  realm drill [--short]                          power cuts, kills, full disks, damage: a table of what must be 0

PRESET is a name or a preset.json file: change index, masking or stages there (every run writes its own).
RUN is the folder of a main job (runs/sample) or of one of its stages (runs/sample/realm).
Every verb takes --help; every preset field can be changed: realm pretrain sample --realm.training.steps 200
"""


@dataclass(frozen=True)
class Pretrain:
    """Runs a preset."""

    out: Path | None = None
    """Folder of the main job; runs/PRESET by default (of a preset file: runs/ and its name without .json)."""
    resume: bool = False
    """Go on with what a killed or stopped job left."""
    overwrite: bool = False
    """Delete what is there and start again."""
    plan: bool = False
    """Only print what it needs in bytes: devices, host and disk. Nothing is allocated or trained."""
    plan_blocks: int | None = None
    """With --plan: as if the corpus had so many blocks."""
    plan_devices: int | None = None
    """With --plan: as if so many devices shared a batch."""
    plan_compile: bool = True
    """With --plan: compile the steps to know their activations, which takes as long as the start of training."""
    init: str | None = None
    """Start every encoder from these weights: `hf:PATH`, a folder of BERT-family safetensors, or `embedded`."""
    distributed: str | None = None
    """This is one of several processes that train together over the same --out on shared storage, all started with the
    same options: `auto` (TPU pods, SLURM, Open MPI, Kubernetes), or HOST:PORT,INDEX/COUNT with the address at which
    process 0 shall listen. Measuring is left to one process, with --resume."""
    json: Path | None = None
    """Also write the table of recall to this file: `title` and `rows`, each with its `name`, its `setting` (data set,
    corpus, index, ...) and `values`, column -> `value` (a fraction), `text` (as printed), `hits`, `questions`."""


@dataclass(frozen=True)
class Evaluate:
    """Measures a run: recall@{1,5,20,100} by gold block and by answer string, BM25 beside it; masked-word loss or, of a
    fine-tuned run, EM and F1 of its answers."""

    questions: str | None = None
    """A question file of any known format, or `FORMAT:PATH`; the preset's own questions by default. `PATH#SET` or
    `PATH#SET:SPLIT` says which set it is (`q.jsonl#nq-open:dev`), `PATH#regex` that its answers are regular
    expressions, as those of `PATH#curatedtrec` are."""
    max_questions: int | None = None
    """A seeded sample of this many questions; by default what the preset says for its own, all of other files."""
    mode: Literal["orqa", "squad", "trivia", "regex-match", "regex-search"] | None = None
    """Rules of EM and F1 of a fine-tuned run; by default ORQA's, or prefix match for regular expressions."""
    corpus: Path | None = None
    """Where RUN is `hf:FOLDER`, an encoder as it is: the folder of the corpus that it shall search."""
    vectors: Path | None = None
    """Where RUN is `hf:FOLDER`: keep its vectors in this folder, in one of their own for each encoder and corpus; a
    measurement that was stopped goes on there."""
    dumps: Path | None = None
    """Folder for what was found question by question, one JSON lines file a row: recall-*.jsonl and, of a fine-tuned
    run, answers-*.jsonl. `realm compare` takes two of them."""
    json: Path | None = None
    """Also write every number to this file: `recall` (a table: `title`, `rows`) with `recall_setting`,
    `recall_intervals` (over articles) and `question_counts` beside it; `masked_words` with a `masked_words_setting`
    (null, with a `masked_words_reason`, where nothing is held out) or `answers`, by row."""


@dataclass(frozen=True)
class Report:
    """Shows what a realm stage does with held-out sentences."""

    examples: int = 5
    """How many sentences."""
    seed: int = 0
    """Which sentences."""
    json: Path | None = None
    """Also write the examples to this file: `examples`, each with `sentence`, `masked`, `candidates`."""


def main(argv: list[str] | None = None) -> int:
    """Runs one command; errors that a user can mend are one line on stderr and exit code 1 or 2."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in HELP_FLAGS:
        print(HELP, end="")
        return 0 if arguments else 2
    try:
        return _verb(arguments)
    except UsageError as error:
        print(f"realm: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output (head, less) has gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, RuntimeError, OSError, TypeError) as error:
        if not is_ours(error):
            raise
        print(f"realm: {error}", file=sys.stderr)
        return 1


def _verb(arguments: list[str]) -> int:
    if arguments[0] not in VERBS:
        raise UsageError(f"no verb {arguments[0]!r}: wanted one of {', '.join(VERBS)} (realm --help)")
    return VERBS[arguments[0]](arguments[1:])


def pretrain(arguments: list[str]) -> int:
    """realm pretrain PRESET"""
    from experiments.config import Preset, with_init
    from experiments.pipeline import pretrain as run
    from experiments.presets import PRESETS, card

    if arguments and arguments[0] == "--list":
        for name in PRESETS:
            print(f"{name:10s} {card(name)}")
        return 0
    if not arguments or arguments[0] in HELP_FLAGS:
        print("usage: realm pretrain PRESET [--out DIR] [--resume | --overwrite] [--FIELD VALUE ...]\n")
        print("\n".join(f"  {name:10s} {card(name)}" for name in PRESETS))
        print("\nor a preset.json file, as every run writes one: change index, masking or stages there.")
        print("realm pretrain PRESET --help shows every field of a preset.")
        return 0 if arguments else 2
    name, preset, about = chosen_preset(arguments[0])
    given = parse(Pretrain, arguments[1:], f"realm pretrain {arguments[0]}", about, preset=(Preset, preset))
    if given.resume and given.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    existing = "resume" if given.resume else "overwrite" if given.overwrite else "refuse"
    at_least_one("max-questions", given.preset.max_questions)
    make_room(given.json)
    preset = with_init(given.preset, given.init) if given.init else given.preset
    at_least_one("plan-blocks", given.plan_blocks)
    at_least_one("plan-devices", given.plan_devices)
    if given.plan:
        from experiments.plan_command import plan_preset

        out = given.out or Path("runs") / name
        write_answer(given.json, plan_preset(preset, out, given.plan_blocks, given.plan_devices, given.plan_compile))
        return 0
    out = given.out or Path("runs") / name
    if given.distributed:
        from experiments.distributed import join, train_stages

        join(given.distributed)
        train_stages(preset, out, existing)
        return 0
    run(preset, out, existing, given.json)
    return 0


def chosen_preset(given: str) -> tuple[str, Any, str]:
    """(name of its run, Preset, description) of a preset's name or of a preset.json file.

    Raises UsageError for another word, PresetError for a file that holds no preset.
    """
    from experiments.locate import read_preset
    from experiments.presets import PRESETS

    if given in PRESETS:
        return given, PRESETS[given](), PRESETS[given].__doc__
    if given.endswith(".json"):
        return Path(given).stem, read_preset(Path(given)), f"The preset that {given} holds."
    names = ", ".join(PRESETS)
    raise UsageError(f"no preset {given!r}: wanted one of {names}, or a preset.json file (realm pretrain --list)")


def evaluate(arguments: list[str]) -> int:
    """realm evaluate RUN"""
    run, given = run_and(Evaluate, arguments, "evaluate")
    at_least_one("max-questions", given.max_questions)
    make_room(given.json)
    if arguments[0].startswith("hf:"):
        if given.corpus is None or given.questions is None:
            raise UsageError("wanted `realm evaluate hf:FOLDER --corpus CORPUS --questions QUESTIONS`")
        _refuse(given, ("mode",), "an encoder as it is answers nothing: wanted it with a fine-tuned run")
        from experiments.encoder_recall import evaluate_encoder

        found = evaluate_encoder(
            arguments[0], given.corpus, given.questions, given.max_questions, given.vectors, given.dumps
        )
        write_answer(given.json, found)
        return 0
    _refuse(given, ("corpus", "vectors"), "a run has its own corpus: wanted them with hf:FOLDER")
    from experiments.show import evaluate_run

    write_answer(given.json, evaluate_run(run, given.questions, given.max_questions, given.mode, given.dumps))
    return 0


def _refuse(given: Evaluate, names: tuple[str, ...], why: str) -> None:
    """Raises UsageError for options that would change nothing here."""
    found = [f"--{name}" for name in names if getattr(given, name) is not None]
    if found:
        raise UsageError(f"found {' and '.join(found)}, but {why}")


def report(arguments: list[str]) -> int:
    """realm report RUN"""
    run, given = run_and(Report, arguments, "report")
    at_least_one("examples", given.examples)
    make_room(given.json)
    from experiments.show import report_run

    write_answer(given.json, report_run(run, given.examples, given.seed))
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "data": data,
    "pretrain": pretrain,
    "evaluate": evaluate,
    "report": report,
    "refresh": refresh,
    "sweep": sweep,
    "figure": figure,
    "bench": bench,
    "drill": drill,
    "tagger": tagger,
    "finetune": finetune,
    "ask": ask,
    "hotswap": hotswap,
    "export": export,
    "compare": compare,
}

if __name__ == "__main__":
    sys.exit(main())
