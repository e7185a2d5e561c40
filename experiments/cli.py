"""The command line. Four verbs; each parses its own fields with tyro, and imports what it needs only when it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

HELP = """\
realm: retrieval-augmented language-model pretraining

  realm data build CORPUS.jsonl.gz --out DIR     documents -> blocks, salient spans, manifest
  realm pretrain PRESET [--resume|--overwrite]   mlm -> ict -> realm, each resumable, then a table of recall
  realm pretrain --list                          the presets, one line and cost each
  realm evaluate RUN                             recall@k next to BM25, masked-word loss with and without retrieval
  realm report RUN                               masked sentences, retrieved blocks with p(z|x) and utility

RUN is the folder of a main job (runs/sample) or of one of its stages (runs/sample/realm).
Every verb takes --help; every preset field can be changed: realm pretrain sample --realm.training.steps 200
"""


class UsageError(ValueError):
    """A command that cannot be understood; the message says what to type."""


@dataclass(frozen=True)
class DataBuild:
    """Builds a corpus folder from documents."""

    out: Path
    """Folder to write; an existing one of the same source and fields is reused."""
    json: Path | None = None
    """Also write the counts (`documents`, `blocks`, `spans`, `skips`, ...; the manifest) to this file."""


@dataclass(frozen=True)
class Pretrain:
    """Runs a preset."""

    out: Path | None = None
    """Folder of the main job; runs/PRESET by default."""
    resume: bool = False
    """Go on with what a killed or stopped job left."""
    overwrite: bool = False
    """Delete what is there and start again."""
    json: Path | None = None
    """Also write the table of recall to this file (its keys: experiments/measure.py)."""


@dataclass(frozen=True)
class Evaluate:
    """Measures a run: recall@{1,5,20,100} by gold block and by answer string, BM25 beside it, masked-word loss."""

    questions: str | None = None
    """JSONL(.gz) of id, question, answers, doc; the preset's own questions by default."""
    max_questions: int | None = None
    """A seeded sample of this many questions."""
    json: Path | None = None
    """Also write every number to this file: `recall` (a table), `masked_words`."""


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
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0 if arguments else 2
    try:
        return _verb(arguments)
    except UsageError as error:
        print(f"realm: {error}", file=sys.stderr)
        return 2
    except (ValueError, RuntimeError, FileNotFoundError, TypeError) as error:
        if not _is_ours(error):
            raise
        print(f"realm: {error}", file=sys.stderr)
        return 1


def _is_ours(error: BaseException) -> bool:
    """Whether the error is one of the named ones of this project, whose message is the whole story."""
    return type(error).__module__.split(".")[0] in ("realm", "index_refresh", "experiments")


def _verb(arguments: list[str]) -> int:
    verbs: dict[str, Callable[[list[str]], int]] = {
        "data": data,
        "pretrain": pretrain,
        "evaluate": evaluate,
        "report": report,
    }
    if arguments[0] not in verbs:
        raise UsageError(f"no verb {arguments[0]!r}: wanted one of {', '.join(verbs)} (realm --help)")
    return verbs[arguments[0]](arguments[1:])


def data(arguments: list[str]) -> int:
    """realm data build DOCUMENTS --out DIR"""
    if not arguments or arguments[0] != "build":
        raise UsageError("wanted `realm data build DOCUMENTS --out DIR` (realm data build --help)")
    import tyro

    from experiments.show import show_manifest
    from realm.text.blocks import CorpusConfig, build_corpus

    corpus = Annotated[CorpusConfig, tyro.conf.arg(name="")]
    rest = arguments[1:]
    if rest and not rest[0].startswith("-"):
        rest = ["--documents", *rest]
    given = _parse(DataBuild, rest, "realm data build DOCUMENTS", corpus=(corpus, None))
    table = build_corpus(given.corpus, given.out)
    show_manifest(table)
    _write_json(given.json, table.manifest)
    return 0


def pretrain(arguments: list[str]) -> int:
    """realm pretrain PRESET"""
    import tyro

    from experiments.config import Preset
    from experiments.pipeline import pretrain as run
    from experiments.presets import PRESETS, card

    if arguments and arguments[0] == "--list":
        for name in PRESETS:
            print(f"{name:8s} {card(name)}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: realm pretrain PRESET [--out DIR] [--resume | --overwrite] [--FIELD VALUE ...]\n")
        print("\n".join(f"  {name:8s} {card(name)}" for name in PRESETS))
        print("\nrealm pretrain PRESET --help shows every field of a preset.")
        return 0 if arguments else 2
    name = arguments[0]
    if name not in PRESETS:
        raise UsageError(f"no preset {name!r}: wanted one of {', '.join(PRESETS)} (realm pretrain --list)")

    kind = Annotated[Preset, tyro.conf.arg(name="")]
    given = _parse(
        Pretrain, arguments[1:], f"realm pretrain {name}", PRESETS[name].__doc__, preset=(kind, PRESETS[name]())
    )
    if given.resume and given.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    existing = "resume" if given.resume else "overwrite" if given.overwrite else "refuse"
    run(given.preset, given.out or Path("runs") / name, existing, given.json)
    return 0


def evaluate(arguments: list[str]) -> int:
    """realm evaluate RUN"""
    run, given = _run_and(Evaluate, arguments, "evaluate")
    from experiments.show import evaluate_run

    _write_json(given.json, evaluate_run(run, given.questions, given.max_questions))
    return 0


def report(arguments: list[str]) -> int:
    """realm report RUN"""
    run, given = _run_and(Report, arguments, "report")
    from experiments.show import report_run

    _write_json(given.json, report_run(run, given.examples, given.seed))
    return 0


def _parse(
    kind: type, arguments: list[str], prog: str, description: str | None = None, **extra: tuple[Any, Any]
) -> Any:
    """Parses `kind` with further fields `name=(type, default)`, whose own fields need no prefix."""
    import tyro

    fields = [(n, t) if d is None else (n, t, field(default=d)) for n, (t, d) in extra.items()]
    whole = make_dataclass(kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True)
    options = (tyro.conf.AvoidSubcommands,)
    return tyro.cli(whole, args=arguments, prog=prog, description=description or kind.__doc__, config=options)


def _run_and(kind: type, arguments: list[str], verb: str):
    import tyro

    if arguments and arguments[0] in ("-h", "--help"):
        tyro.cli(kind, args=["--help"], prog=f"realm {verb} RUN")
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"wanted `realm {verb} RUN`, RUN being a folder such as runs/sample")
    return Path(arguments[0]), tyro.cli(kind, args=arguments[1:], prog=f"realm {verb} RUN")


def _write_json(path: Path | None, value) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
