"""`realm pretrain PRESET --plan`: the bytes of a main job as a table, and whether it fits into this machine."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from rich import box
from rich.table import Table

from experiments.config import Preset
from experiments.console import wide_console
from experiments.plan import Corpus, PlanError, StagePlan, corpus_of, plan
from experiments.plan_fit import DoesNotFit, check_fits, limits
from experiments.samples import resolved
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.table import BlockTable

SAMPLE = CorpusConfig(documents=("sample:corpus",), spans=("sample:spans",), limit=200)


def show(plans: list[StagePlan], corpus: Corpus) -> Table:
    """The plans as one table, GB being 10^9 bytes."""
    title = f"{corpus.rows:,} blocks; GB at the worst moment, on each device, on the host and on disk"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stage", "what"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("device", "host", "disk"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for one in plans:
        for number, line in enumerate(one.lines):
            where = f"{one.name}, {one.devices} devices" if number == 0 else ""
            beside = " *" if line.unless else ""
            shown.add_row(where, line.what + beside, *(_gb(line[place]) for place in (1, 2, 3)))
        shown.add_row("", "together", *(_gb(one.total(where), "0") for where in ("device", "host", "disk")))
        shown.add_section()
    shown.caption = "* not at the same time as others of its kind: the largest of them counts"
    return shown


def _gb(size: int, nothing: str = "") -> str:
    return f"{size / 1e9:.2f}" if size >= 5_000_000 else (nothing if not size else f"{size / 1e9:.4f}")


def as_json(plans: list[StagePlan], corpus: Corpus) -> dict[str, Any]:
    """Everything in bytes: `rows`, and for each stage `lines`, `devices` and the totals."""
    places = ("device", "host", "disk")
    stages = {
        one.name: {
            "devices": one.devices,
            "compiled": one.compiled,
            "lines": [line._asdict() for line in one.lines],
            "together": {where: one.total(where) for where in places},
        }
        for one in plans
    }
    return {"rows": corpus.rows, "backend": jax.default_backend(), "stages": stages}


def plan_preset(
    preset: Preset, out: Path, blocks: int | None, devices: int | None, compiled: bool = True
) -> dict[str, Any]:
    """Prints the plan of a preset and returns it as JSON. The corpus is the job's, where it is built already, and
    otherwise `blocks` blocks like those of the embedded sample. Raises PlanError where neither is there."""
    folder = Path(preset.built_corpus) if preset.built_corpus else out / "corpus"
    if folder.exists():
        return _planned(preset, corpus_of(BlockTable.open(folder), blocks), devices, compiled)
    if blocks is None:
        raise PlanError(f"{folder} is not built yet: say how many blocks it will have, --plan-blocks 13353718")
    with tempfile.TemporaryDirectory() as scratch:
        sample = resolved(SAMPLE)
        like = replace(sample, block_length=preset.corpus.block_length)
        return _planned(preset, corpus_of(build_corpus(like, Path(scratch) / "corpus"), blocks), devices, compiled)


def _planned(preset: Preset, corpus: Corpus, devices: int | None, compiled: bool) -> dict[str, Any]:
    plans = plan(preset, corpus, devices, compiled)
    wide_console().print(show(plans, corpus))
    here = limits()
    for one in plans if devices is None else ():  # so many devices are another machine's
        try:
            check_fits(one, here)
        except DoesNotFit as error:
            print(f"does not fit here: {error}")
    return as_json(plans, corpus)
