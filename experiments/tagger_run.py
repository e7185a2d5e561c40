"""A tagger's run folder: training one, opening one, and the tagger that a command names.

The folder is that of any stage (config.json, metrics, checkpoints, done.json) and holds the vocabulary besides, so that
it can be taken elsewhere as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from experiments.config import Stage, from_json, started_from, to_json
from experiments.pipeline import run_to_end
from realm.objectives.bert_tagger import BertTagger
from realm.objectives.tagging import Tagging
from realm.text.conll import read_conll, types_of
from realm.text.spacy_tagger import load_spacy
from realm.text.tag_units import Vocabulary
from realm.text.taggers import Anchors, File, Tagger, TaggerError
from realm.text.tokenizer import Tokenizer
from realm.training.checkpoint import restore_params
from realm.training.run_folder import Existing, RunFolder, RunFolderError, read_json

VOCABULARY = "vocab.txt"
KINDS_OF_TAGGER = "a run folder of `realm tagger train`, spacy:PIPELINE, anchors or file:SPANS"


def completed(stage: Stage, init: str | None, vocabulary: Path | None) -> tuple[Stage, Tokenizer]:
    """The stage with its encoder started from `init` and the types of entity found in its files, and the tokenizer.

    Raises WeightsError, ConllError, VocabularyError, and TaggerError where vocabulary and encoder differ in size.
    """
    objective = stage.objective
    if init is not None:
        objective = replace(objective, joint=started_from(objective.joint, init))
    if not objective.kinds:
        objective = replace(objective, kinds=types_of([one for path in objective.files for one in read_conll(path)]))
    if vocabulary is None and objective.joint.init.startswith("hf:"):
        beside = Path(objective.joint.init.removeprefix("hf:")).expanduser() / VOCABULARY
        vocabulary = beside if beside.is_file() else None
    tokenizer = Tokenizer.load(vocabulary)
    if tokenizer.size > objective.joint.bert.vocabulary:
        raise TaggerError(
            f"found a vocabulary of {tokenizer.size} wordpieces, wanted at most {objective.joint.bert.vocabulary}, "
            "which the encoder has: give --vocabulary"
        )
    return replace(stage, objective=objective), tokenizer


def train_tagger(stage: Stage, tokenizer: Tokenizer, out: Path, existing: Existing) -> int | None:
    """Trains to the last step, or goes on; the signal's number where one ended it early, None otherwise."""
    run = RunFolder(out, existing if out.exists() else "refuse")
    run.write_config(to_json(stage) | {"corpus": tokenizer.fingerprint})
    tokenizer.save(run.path / VOCABULARY)
    if run.done:
        return None
    return run_to_end(
        run, "tagger", stage, Vocabulary(tokenizer), lambda: stage.objective.init(jax.random.key(stage.training.seed))
    )


def open_run(folder: Path) -> BertTagger:
    """The tagger of a run, with the parameters of its newest checkpoint. Raises RunFolderError, CheckpointMissing."""
    record = read_json(folder / "config.json")
    config: Any = record.get("config") if isinstance(record, dict) else None
    tagging = isinstance(config, dict) and isinstance(config.get("objective"), dict)
    if not tagging or config["objective"].get("type") != Tagging.__name__:
        raise RunFolderError(f"{folder}: found no tagger's config.json, wanted {KINDS_OF_TAGGER}")
    stage = from_json({name: value for name, value in config.items() if name != "corpus"}, Stage)
    params, _ = restore_params(folder / "checkpoints")
    return BertTagger(stage.objective, params, Tokenizer.load(folder / VOCABULARY))


def open_tagger(spec: str, *, lenient: bool = False, counts: Counter | None = None) -> Tagger:
    """The tagger that `spec` names. Raises TaggerError, and what its files raise."""
    kind, colon, rest = spec.partition(":")
    if spec == Anchors.name:
        return Anchors()
    if colon and kind in ("spacy", "file", "bert") and rest:
        if kind == "spacy":
            return load_spacy(rest)
        return open_run(Path(rest)) if kind == "bert" else File([rest], lenient=lenient, counts=counts)
    if not Path(spec).is_dir():
        raise TaggerError(f"found no tagger {spec!r}, wanted {KINDS_OF_TAGGER}")
    return open_run(Path(spec))
