"""`realm tagger train | evaluate`: a token classifier from CoNLL files, and the span F1 of any tagger on such files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.arguments import HELP_FLAGS, UsageError, leading, make_room, parse, write_answer

USAGE = """\
wanted one of
  realm tagger train FILES... [--out DIR]                  CoNLL files, plain or packed -> a run folder
  realm tagger evaluate TAGGER FILES...                    span precision, recall and F1 on CoNLL files
(each with --help); TAGGER is a run folder of the first, or spacy:PIPELINE"""


@dataclass(frozen=True)
class TrainTagger:
    """Trains the `tagger` preset on CoNLL files."""

    out: Path = Path("runs/tagger")
    """The run folder."""
    resume: bool = False
    """Go on with what a killed or stopped run left."""
    overwrite: bool = False
    """Delete what is there and start again."""
    init: str | None = None
    """Start the encoder from these weights: `hf:PATH` or `embedded`."""
    vocabulary: Path | None = None
    """WordPiece file of the encoder; by default that beside the weights, or BERT's uncased one."""


@dataclass(frozen=True)
class EvaluateTagger:
    """Measures a tagger: both ends and the type of an entity have to be right."""

    heldout: float | None = None
    """Only this last share of each file's sentences (what --holdout kept from training)."""
    same: tuple[str, ...] = ()
    """THEIRS=OURS: the tagger's type THEIRS counts as the file's OURS; THEIRS= leaves a type out."""
    json: Path | None = None
    """Also write all counts to this file: by file, `all`, `untyped` and `kinds`."""


def tagger(arguments: list[str]) -> int:
    """realm tagger train | evaluate"""
    if not arguments or arguments[0] not in VERBS:
        raise UsageError(USAGE)
    return VERBS[arguments[0]](arguments[1:])


def train(arguments: list[str]) -> int:
    """realm tagger train FILES"""
    from experiments.presets.tagger import preset
    from experiments.tagger_run import completed, train_tagger
    from realm.objectives.tagging import Tagging
    from realm.training.loop import Training

    stage = preset()
    files, rest = leading(arguments)
    parts = {"objective": (Tagging, stage.objective), "training": (Training, stage.training)}
    given = parse(TrainTagger, rest, "realm tagger train FILES", preset.__doc__, **parts)
    objective = replace(given.objective, files=given.objective.files + tuple(files))
    if not objective.files:
        raise UsageError(USAGE)
    if given.resume and given.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    existing = "resume" if given.resume else "overwrite" if given.overwrite else "refuse"
    stage = replace(stage, objective=objective, training=given.training)
    stage, tokenizer = completed(stage, given.init, given.vocabulary)
    stopped = train_tagger(stage, tokenizer, given.out, existing)
    return 128 + stopped if stopped else 0


def evaluate(arguments: list[str]) -> int:
    """realm tagger evaluate TAGGER FILES"""
    files, rest = leading(arguments)
    if not files[1:] and not HELP_FLAGS & set(rest):
        raise UsageError(USAGE)
    given = parse(EvaluateTagger, rest, "realm tagger evaluate TAGGER FILES")
    same = _pairs(given.same)
    if given.heldout is not None and not 0 < given.heldout <= 1:
        raise UsageError(f"found --heldout {given.heldout}, wanted a share above 0, at most 1")
    make_room(given.json)
    from experiments.tagger_run import open_tagger
    from realm.text.taggers import Anchors, File

    found = open_tagger(files[0])
    if isinstance(found, Anchors | File):  # they know spans of documents, and sentences of CoNLL files are none
        raise UsageError(f"found the tagger {files[0]!r}, which reads no text, wanted a run folder or spacy:PIPELINE")
    answer: dict[str, Any] = {"tagger": files[0], "files": {}}
    for path in files[1:]:
        answer["files"][path] = _measured(found, path, given.heldout, same)
        _show(path, answer["files"][path])
    write_answer(given.json, answer)
    return 0


def _measured(tagger: Any, path: str, heldout: float | None, same: dict[str, str]) -> dict[str, Any]:
    from realm.evaluation.span_f1 import SpanF1
    from realm.text.conll import label_spans
    from realm.text.tag_units import chosen_sentences
    from realm.text.taggers import word_spans

    sentences = chosen_sentences(path, heldout or 0.0, None if heldout is None else True)
    if hasattr(tagger, "labels"):  # reads words as they are
        predicted = [label_spans(labels) for labels in tagger.labels([one.words for one in sentences])]
    else:
        predicted = [word_spans(one.words, tagger) for one in sentences]
    counts = SpanF1()
    for sentence, spans in zip(sentences, predicted, strict=True):
        named = [(start, end, same.get(kind, kind)) for start, end, kind in spans]
        counts.add(label_spans(sentence.labels), [span for span in named if span[2]])
    return counts.told()


def _show(path: str, found: dict[str, Any]) -> None:
    print(f"{path}: {found['sentences']} sentences")
    rows = {"all": found["all"], "whatever type": found["untyped"], **found["kinds"]}
    wide = max(map(len, rows))
    print(f"  {'':{wide}s} precision recall     F1     gold predicted  right")
    for name, row in rows.items():
        shares = f"{100 * row['precision']:9.2f} {100 * row['recall']:6.2f} {100 * row['f1']:6.2f}"
        print(f"  {name:{wide}s} {shares} {row['gold']:8d} {row['predicted']:9d} {row['right']:6d}")


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for one in given:
        theirs, equals, ours = one.partition("=")
        if not theirs or not equals:
            raise UsageError(f"found --same {one!r}, wanted THEIRS=OURS, such as PERSON=PER")
        pairs[theirs] = ours
    return pairs


VERBS: dict[str, Callable[[list[str]], int]] = {"train": train, "evaluate": evaluate}
