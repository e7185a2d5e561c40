"""Where things lie: preset files and the run folders a command is pointed at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import cattrs

from experiments.config import Preset, Stage, from_json
from realm.text.table import BlockTable
from realm.training.run_folder import RunFolderError, read_json


class PresetError(ValueError):
    """A preset.json or config.json that is none, or not one of this version; the message names every wrong field."""


def read_preset(path: Path) -> Preset:
    """The preset of a preset.json, as an earlier run wrote it or as someone edited it. Raises PresetError."""
    return _structured(_read(path), Preset, path)


class Run(NamedTuple):
    """A stage's run folder with what is needed to use it."""

    folder: Path
    name: str
    stage: Stage
    preset: Preset
    table: BlockTable


def open_retrieving(path: Path) -> tuple[Path, Stage, BlockTable]:
    """(run folder, stage, corpus) of the stage with an index at `path`, or of the main job there, of which the last one
    that was started is taken (open_qa, else realm); it need not have trained yet.

    Raises RunFolderError where there is no such stage, PresetError for configs that cannot be read.
    """
    path = Path(path)
    job = (path / "preset.json").exists()
    folders = [path / name for name in ("open_qa", "realm")] if job else [path]
    started = [(folder, _stage_of(folder)) for folder in folders if (folder / "config.json").exists()]
    if not started:
        places = " and ".join(map(str, folders)) + (" have" if job else " has")
        raise RunFolderError(f"{places} no config.json: wanted a realm or open_qa stage that was started")
    folder, stage = next((one for one in started if _has_index(one[1])), started[-1])
    table = BlockTable.open(folder.parent / "corpus")
    if not _has_index(stage):
        raise RunFolderError(f"{folder}: its stage retrieves nothing, so there is no index to refresh")
    return folder, stage, table


def _has_index(stage: Stage) -> bool:
    return bool(stage.objective.candidates) and stage.objective.items == "blocks"


def _stage_of(folder: Path) -> Stage:
    file = folder / "config.json"
    record = _read(file)
    config = record.get("config") if isinstance(record, dict) else None
    if not isinstance(config, dict):
        raise PresetError(f"{file}: wanted an object with the stage's `config`, as `realm pretrain` writes it")
    config.pop("corpus", None)
    return _structured(config, Stage, file)


def open_run(path: Path) -> Run:
    """The run at `path`: a stage folder, or the folder of a main job, of which the last stage with a checkpoint is
    taken.

    Raises RunFolderError naming what was looked for, PresetError for configs that cannot be read.
    """
    path = Path(path)
    if (path / "preset.json").exists():
        names = [name for name in ("open_qa", "realm", "read", "ict", "mlm") if has_checkpoint(path / name)]
        if not names:
            raise RunFolderError(f"{path} has no stage with a checkpoint yet: go on with `realm pretrain ... --resume`")
        path = path / names[0]
    if not (path / "config.json").exists():
        raise RunFolderError(f"{path} is no run folder: wanted config.json (a stage) or preset.json (a main job) in it")
    if not has_checkpoint(path):
        raise RunFolderError(f"{path} has no checkpoint yet: go on with `realm pretrain ... --resume`")
    stage = _stage_of(path)
    preset = read_preset(path.parent / "preset.json")
    return Run(path, path.name, stage, preset, BlockTable.open(path.parent / "corpus"))


def has_checkpoint(folder: Path) -> bool:
    """Whether a stage's folder holds a whole checkpoint: an unfinished one has no plain number for a name."""
    return any(p.name.isdecimal() for p in (folder / "checkpoints").glob("*"))


def _read(path: Path) -> Any:
    try:
        record = read_json(path)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PresetError(f"{path} is no JSON: {error}") from error
    if record is None:
        raise PresetError(f"{path}: no such file, wanted a preset.json as `realm pretrain` writes into its --out")
    return record


def _structured(record: Any, kind: type, path: Path) -> Any:
    if not isinstance(record, dict):
        raise PresetError(f"{path}: found {type(record).__name__}, wanted an object with the fields of {kind.__name__}")
    try:
        return from_json(record, kind)
    except Exception as error:  # cattrs groups whatever its parts raised
        raise PresetError(f"{path}: " + "; ".join(cattrs.transform_error(error, format_exception=_told))) from error


def _told(error: BaseException, wanted: type | None) -> str:
    """One wrong field in words. Our own errors say it themselves; a union's KeyError holds the tag it did not know."""
    if type(error).__module__.split(".")[0] in ("realm", "index_refresh", "experiments"):
        return str(error)
    if isinstance(error, KeyError):
        return f"missing field or unknown type {error.args[0]!r}"
    return cattrs.v.format_exception(error, wanted)
