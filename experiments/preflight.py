"""What a main job would fail at hours later, found before it starts."""

from __future__ import annotations

import importlib.util
import sys

import jax

from experiments.config import Preset, Stage
from experiments.plan import Corpus, corpus_of, plan_stage
from experiments.plan_fit import check_fits, limits
from experiments.questions import asked_of
from experiments.recipe_of import recipe_of
from experiments.warm_start import PreflightError, check_run, check_vocabulary, is_run
from index_refresh.device import refuse_tpu
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from index_refresh.rolling import check_slices
from index_refresh.schedule import Drift, parse_schedule, refuse_delayed
from index_refresh.sync import Sync
from realm.index.scann import Scann
from realm.protocols import Units
from realm.text.plan import BatchPlan
from realm.text.table import BlockTable
from realm.training.mesh import data_mesh
from realm.training.processes import several


def preflight(preset: Preset, table: BlockTable) -> None:
    """Reads the questions, plans every stage's batches, and checks devices, warm starts, lengths and vocabularies.

    Weights whose vocabulary nothing tells are warned of on stderr. Raises PreflightError, or the named error of the
    part that refuses (PlanError, QuestionsError, WeightsError, ...).
    """
    stages = preset.stages()
    if not stages:
        raise PreflightError("the preset has no stage: wanted at least one of mlm, ict, read, realm and open_qa")
    _check_vocabularies(stages, table)
    corpus, units = corpus_of(table), {}
    for number, (name, stage) in enumerate(stages.items()):
        earlier = list(stages)[:number]
        for part, source in stage.warm_start.items():
            if is_run(source):
                check_run(name, part, source, table)
            elif source not in earlier:
                raise PreflightError(
                    f"{name}.warm_start takes {part!r} from {source!r}, wanted an earlier stage: {earlier or 'none'}"
                )
        units[name] = _check_stage(name, stage, corpus)
    asked_of(preset, table, units=units.get("open_qa"))


def _check_vocabularies(stages: dict[str, Stage], table: BlockTable) -> None:
    """That all weights which encoders start from read the corpus's wordpieces; each is looked at once."""
    encoders = [getattr(stage.objective, part, None) for stage in stages.values() for part in ("retriever", "joint")]
    for spec in dict.fromkeys(one.init for one in encoders if one is not None and one.init != "random"):
        if warning := check_vocabulary(spec, table):
            print(f"WARNING {warning}", file=sys.stderr)


def _check_stage(name: str, stage: Stage, corpus: Corpus) -> Units:
    """The units of the stage, which take a pass over the corpus or the questions: nothing makes them twice."""
    objective, training, table = stage.objective, stage.training, corpus.table
    size = data_mesh(training.devices).size
    if training.batch_size % size:
        raise PreflightError(f"{name}.training.batch_size={training.batch_size} does not split over {size} devices")
    units = objective.units(table)
    BatchPlan(units.length_N, batch_size=training.batch_size, lengths=objective.batch_lengths, seed=training.seed)
    jax.eval_shape(objective.init, jax.random.key(0))  # reads the weights that `init` names
    for part in ("retriever", "joint"):
        bert = getattr(getattr(objective, part, None), "bert", None)
        if bert is not None and table.tokenizer.size > bert.vocabulary:
            raise PreflightError(
                f"{name}.objective.{part}.bert.vocabulary={bert.vocabulary} is smaller than the corpus's vocabulary of "
                f"{table.tokenizer.size} wordpieces"
            )
    if objective.candidates:
        _check_index(name, stage, table)
    found = limits()
    check_fits(plan_stage(name, stage, corpus, size, compiled=found.device is not None, units=units), found)
    return units


def _check_index(name: str, stage: Stage, table: BlockTable) -> None:
    objective, refresh = stage.objective, stage.refresh
    longest = int(table.length_N.max())
    for field, lengths in (
        ("objective.block_lengths", objective.block_lengths),
        ("refresh.block_lengths", refresh.block_lengths),
    ):
        if max(lengths) < longest:
            raise PreflightError(
                f"{name}.{field}={lengths} would cut blocks: the corpus has one of {longest} wordpieces"
            )
    if stage.training.rerank and getattr(objective, "vectors", None) == "batch":
        raise PreflightError(
            f"{name}.training.rerank={stage.training.rerank} and {name}.objective.vectors='batch', which embeds no "
            "candidates before they are chosen: wanted rerank 0, or vectors 'blocks'"
        )
    schedule, engine = parse_schedule(refresh.schedule), refresh.engine
    check_slices(recipe_of(stage, table), schedule, lambda: table.indexed)
    if not isinstance(engine, Sync):
        refuse_delayed(schedule, type(engine).__name__.lower())
    if isinstance(schedule, Drift) and stage.training.watch.blocks == 0:
        raise PreflightError(
            f"{name}.refresh.schedule={refresh.schedule!r} is measured on the watch's probe: wanted "
            f"{name}.training.watch.blocks above 0"
        )
    if several() and isinstance(engine, Sync | Interleave):
        raise PreflightError(
            f"{name}.refresh.engine is {type(engine).__name__}, whose index one process would make while the others "
            "wait: wanted Process, External or Ray in a job of several processes"
        )
    if isinstance(engine, Process):
        refuse_tpu(jax.default_backend())
    if isinstance(refresh.index, Scann) and importlib.util.find_spec("scann") is None:
        raise PreflightError(
            f"{name}.refresh.index is Scann, but scann is not installed (Linux only): pip install scann, or Exact"
        )
