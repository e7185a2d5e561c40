"""Where a stage starts from: an earlier stage of its job, a stage of another run (`run:FOLDER`), or pretrained weights.

`warm_started` makes a fine-tuning preset fit the run that it starts from: its towers, its corpus, its lengths.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.config import Preset, Stage, started_from
from experiments.locate import Run, has_checkpoint, open_run
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig
from realm.models.span_reader import SpanReaderConfig
from realm.models.tree_hash import tree_hash
from realm.models.weights import load_bert, load_reader, load_tower, vocabulary_of
from realm.protocols import Params
from realm.text.table import BlockTable
from realm.text.tokenizer import Tokenizer
from realm.training.checkpoint import restore_params
from realm.training.processes import leads
from realm.training.run_folder import read_json, write_json

RUN = "run:"
START_HASHES = "start_hashes.json"
SHORTEST = 8  # wordpieces of a question, [CLS] and [SEP] among them


class PreflightError(ValueError):
    """A preset that cannot be trained as it is; the message names the field."""


def is_run(source: str) -> bool:
    return source.startswith(RUN)


def run_folder(source: str) -> Path:
    return Path(source.removeprefix(RUN))


def check_run(name: str, part: str, source: str, table: BlockTable) -> None:
    """Raises PreflightError unless `source` is a run with a checkpoint, over a corpus cut with the same vocabulary."""
    folder = run_folder(source)
    if not has_checkpoint(folder):
        raise PreflightError(f"{name}.warm_start takes {part!r} from {folder}, which has no checkpoint")
    theirs = BlockTable.open(folder.parent / "corpus").tokenizer.fingerprint
    if theirs != table.tokenizer.fingerprint:
        raise PreflightError(
            f"{name}.warm_start takes {part!r} from {folder}, which reads the vocabulary {theirs[:12]}; the corpus "
            f"{table.path} was cut with {table.tokenizer.fingerprint[:12]}: its parameters mean other wordpieces"
        )


def check_vocabulary(spec: str, table: BlockTable) -> str | None:
    """None where the weights of `spec` (`hf:PATH` or `embedded`) read the vocabulary that the corpus was cut with; a
    warning where the folder holds none. Raises PreflightError where it is another: ids mean other wordpieces then.
    """
    ours = table.tokenizer
    if spec == "embedded":
        own = Tokenizer.load()
        theirs, size, where = own.fingerprint, own.size, "BERT's own"
    elif found := vocabulary_of(spec):
        theirs, size, where = found.fingerprint, len(found.pieces), found.path
    else:
        return f"{spec} has no vocab.txt and no tokenizer.json: nothing tells whether it reads the corpus's wordpieces"
    if theirs == ours.fingerprint:
        return None
    raise PreflightError(
        f"{spec} reads the vocabulary {theirs[:12]} of {size} wordpieces ({where}); the corpus {table.path} was cut "
        f"with {ours.fingerprint[:12]} of {ours.size}: its parameters mean other wordpieces. Wanted a corpus built "
        "with that vocabulary (--corpus.vocabulary, a vocab.txt or None for BERT's own)"
    )


def weights_line(part: str, encoder: Any) -> str:
    """One line of what the encoder config takes from the weights that its `init` names, and what stays random.

    part: what the line calls it. Raises WeightsError as loading does.
    """
    spec, bert = encoder.init, encoder.bert
    if isinstance(encoder, DualEncoderConfig):
        sides = (None,) if encoder.shared else ("query", "block")
        reports = [load_tower(spec, bert, encoder.width, side)[1] for side in sides]
    elif isinstance(encoder, SpanReaderConfig):
        reports = [load_reader(spec, bert, encoder.width)[1]]
    else:
        reports = [load_bert(spec, bert)[1]]
    # What one tower leaves may be the other's.
    unused = tuple(name for name in reports[0].unused if all(name in one.unused for one in reports))
    return f"{part} from {spec}: {replace(reports[0], unused=unused).line()}"


def told_weights(stage: Stage) -> list[str]:
    """`weights_line` of each encoder of a stage that starts from weights and is not taken over from another stage."""
    parts = {part: getattr(stage.objective, part, None) for part in ("retriever", "joint")}
    encoders = {part: one for part, one in parts.items() if one is not None and part not in stage.warm_start}
    return [weights_line(part, encoder) for part, encoder in encoders.items() if encoder.init != "random"]


def initial_params(stage: Stage, finished: dict[str, Path]) -> Params:
    """The objective's own initialisation, with the parts that `warm_start` names taken from earlier stages or runs."""
    params = stage.objective.init(jax.random.key(stage.training.seed))
    for part in stage.warm_start:
        params[part] = stage.objective.taken(part, params[part], earlier_params(stage, part, finished))
    return params


def noted_start(stage: Stage, finished: dict[str, Path], folder: Path) -> Params:
    """`initial_params`, told on stderr where they are pretrained weights; of a fine-tuning stage that begins at step 0,
    their hashes are written into its `folder`.

    Where it starts from may train on meanwhile, and is then no witness of what it was.
    """
    params = initial_params(stage, finished)
    if leads() and not has_checkpoint(folder):
        for line in told_weights(stage):
            print(line, file=sys.stderr)
        if hasattr(stage.objective, "frozen"):
            write_json(folder / START_HASHES, start_hashes(stage, params))
    return params


def start_hashes(stage: Stage, params: Params) -> dict[str, str | None]:
    """`tree_hash` of the `retriever`, and of what has to stay `frozen` (None for nothing)."""
    frozen = stage.objective.frozen(params)
    return {"retriever": tree_hash(params["retriever"]), "frozen": tree_hash(frozen) if frozen else None}


def noted_hashes(folder: Path) -> dict[str, str | None] | None:
    """What `noted_start` wrote into the stage's folder; None for a stage of before such notes."""
    return read_json(folder / START_HASHES)


def earlier_params(stage: Stage, part: str, finished: dict[str, Path]) -> Params:
    """What `stage.warm_start` names for `part`. Raises PreflightError for a stage that was not trained."""
    source = stage.warm_start[part]
    if not is_run(source) and source not in finished:
        raise PreflightError(f"warm_start takes {part!r} from stage {source!r}, found only {sorted(finished)}")
    folder = run_folder(source) if is_run(source) else finished[source]
    return restore_params(folder / "checkpoints")[0][part]


def warm_started(preset: Preset, path: Path, *, own_corpus: bool, reader: str | None = None) -> Preset:
    """The preset with its open_qa stage alone, started from the run at `path`: retriever, and reader where it has one.

    Encoders take the run's shape. reader: weights that the reader starts from and is shaped like instead. own_corpus:
    the preset names a corpus itself; otherwise corpus and lengths of blocks are the run's, and questions get what room
    they leave. Raises PreflightError for a run without a retriever, RunFolderError for none.
    """
    run = open_run(path)
    theirs, stage = run.stage.objective, preset.open_qa
    if not hasattr(theirs, "retriever"):
        raise PreflightError(f"{run.folder}: stage {run.name} has no retriever to start from; give an ict or realm one")
    objective = stage.objective
    changes: dict[str, Any] = {"retriever": replace(theirs.retriever, shared=False, init="random")}
    source = {"retriever": f"{RUN}{run.folder.resolve()}"}
    if reader is not None:
        changes["joint"] = started_from(objective.joint, reader)
    elif (theirs_too := _reader(run, objective.joint)) is not None:
        changes["joint"] = theirs_too
        source["joint"] = source["retriever"]
    refresh = stage.refresh
    if not own_corpus:
        retrieves = hasattr(theirs, "block_lengths")
        lengths = tuple(run.stage.refresh.block_lengths if retrieves else theirs.batch_lengths)
        changes["block_lengths"], refresh = (max(lengths),), replace(refresh, block_lengths=lengths)
    positions = changes.get("joint", objective.joint).bert.positions
    room = positions + 2 - max(changes.get("block_lengths", objective.block_lengths))
    if room < SHORTEST:
        raise PreflightError(
            f"{run.folder}: blocks leave a question {max(room, 0)} of the reader's {positions} positions, wanted "
            f"{SHORTEST} or more: start from a run with shorter blocks, or give a corpus of such"
        )
    fitting = tuple(length for length in objective.batch_lengths if length <= room)
    changes["batch_lengths"] = fitting or (room,)
    started = replace(stage, objective=replace(objective, **changes), warm_start=source, refresh=refresh)
    alone = dict.fromkeys(("facts", "mlm", "ict", "read", "realm"))
    corpus = {} if own_corpus else {"built_corpus": str((run.folder.parent / "corpus").resolve())}
    return replace(preset, open_qa=started, **alone, **corpus)


def _reader(run: Run, own: SpanReaderConfig) -> SpanReaderConfig | None:
    """The reader shaped like the run's joint encoder; None for a run that has none."""
    theirs = getattr(run.stage.objective, "joint", None)
    if isinstance(theirs, SpanReaderConfig):
        return replace(theirs, init="random")
    return replace(own, bert=theirs.bert, init="random") if isinstance(theirs, MaskedLmConfig) else None
