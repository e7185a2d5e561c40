"""Where things lie: files of the embedded sample, and the run folders a command is pointed at."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from experiments.config import Preset, Stage, from_json
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.training.run_folder import RunFolderError, read_json


def resolve(path: str | None) -> str | None:
    """`sample:NAME` is a file of the embedded sample; anything else is a path."""
    return str(sample_path(path.removeprefix("sample:"))) if path and path.startswith("sample:") else path


class Run(NamedTuple):
    """A stage's run folder with what is needed to use it."""

    folder: Path
    name: str
    stage: Stage
    preset: Preset
    table: BlockTable


def open_run(path: Path, wanted: str | None = None) -> Run:
    """The run at `path`: a stage folder, or the folder of a main job, of which the last finished stage is taken.

    Raises RunFolderError naming what was looked for.
    """
    path = Path(path)
    if (path / "preset.json").exists():
        preset = from_json(read_json(path / "preset.json"), Preset)
        names = [wanted] if wanted else [n for n in ("realm", "ict", "mlm") if (path / n / "config.json").exists()]
        if not names:
            raise RunFolderError(f"{path} has no stage yet: run `realm pretrain` first")
        path = path / names[0]
    if not (path / "config.json").exists():
        raise RunFolderError(f"{path} is no run folder: wanted config.json (a stage) or preset.json (a main job) in it")
    record = read_json(path / "config.json")["config"]
    record.pop("corpus")
    preset = from_json(read_json(path.parent / "preset.json"), Preset)
    return Run(path, path.name, from_json(record, Stage), preset, BlockTable.open(path.parent / "corpus"))
