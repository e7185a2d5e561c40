"""Configs to JSON and back, and the two dataclasses that presets are made of.

A config is the thing it configures: objectives, indexes and optimisers are frozen dataclasses, so a preset is a value.
Unions are written with a `type` tag, so that config.json reads back to the same value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import cattrs
from cattrs.strategies import configure_tagged_union

from index_refresh.external import External
from index_refresh.interleave import Interleave
from index_refresh.process import Process
from index_refresh.ray_engine import Ray
from index_refresh.schedule import parse_schedule
from index_refresh.sync import Sync
from realm.index.alsh import Alsh
from realm.index.exact import Exact
from realm.index.random_rows import RandomRows
from realm.index.scann import Scann
from realm.index.sharded import Sharded
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.span_reader import SpanReaderConfig
from realm.models.weights import bert_config, reader_settings, tower_settings
from realm.objectives.ict import Ict
from realm.objectives.mlm import Mlm
from realm.objectives.open_qa import OpenQa
from realm.objectives.realm import Realm
from realm.objectives.tagging import Tagging
from realm.text.blocks import CorpusConfig
from realm.text.facts import FactsConfig
from realm.text.masks import RandomSpan, RandomToken, SalientSpan
from realm.training.loop import Training

AnyObjective = Mlm | Ict | Realm | OpenQa | Tagging
AnyPart = Exact | Scann | Alsh
AnyIndex = Exact | Scann | Alsh | Sharded | RandomRows
AnyEngine = Sync | Process | Interleave | External | Ray
AnyMasking = SalientSpan | RandomSpan | RandomToken


class ConfigError(ValueError):
    """A value in a preset.json that its field cannot take."""


@dataclass(frozen=True)
class Refresh:
    """How the index follows the towers.

    schedule: `every 500`, `never`, a ramp such as `0-1000:500,1000-:2000`, `rolling 10 every 50` (a tenth of the
    corpus each time, put into the index that is there), each optionally followed by `latency 120`;
    `drift 0.2 check 100`; `recorded RUN/generations.jsonl`. engine: Sync waits, Process embeds in a child on this host,
    External in a job of its own (`realm refresh`), Interleave on the same devices between steps,
    Ray on a Ray cluster.
    block_lengths: padded lengths when the corpus is embedded; batch_rows: blocks a batch; shard_rows: vectors a file.
    vectors: a stage's folder, or that of `realm evaluate hf:FOLDER --vectors`, whose vectors the first index is made of
    instead of embedding; they must be of the same block tower, corpus, lengths and batch_rows.
    """

    schedule: str = "every 500"
    index: AnyIndex = field(default_factory=Scann)
    engine: AnyEngine = field(default_factory=Sync)
    block_lengths: tuple[int, ...] = (64, 128, 192, 288)
    batch_rows: int = 64
    shard_rows: int = 65536
    vectors: str | None = None

    def __post_init__(self) -> None:
        parse_schedule(self.schedule)

    @property
    def elsewhere(self) -> bool:
        """Whether other machines than the trainer's embed and build."""
        return isinstance(self.engine, External | Ray)


@dataclass(frozen=True)
class Stage:
    """One stage of a preset: what is learned, how, and from where it starts.

    warm_start: top-level parameter name -> the earlier stage whose final parameters it takes.
    """

    objective: AnyObjective
    training: Training = field(default_factory=Training)
    warm_start: dict[str, str] = field(default_factory=dict)
    refresh: Refresh = field(default_factory=Refresh)


@dataclass(frozen=True)
class Preset:
    """A main job: corpus, the stages mlm -> ict -> read -> realm -> open_qa, and the questions that measure it.

    corpus.documents, corpus.spans and questions may be `sample:NAME`, a file shipped with the package. continue_ict is
    the control that tells REALM's gain from mere training time.
    """

    corpus: CorpusConfig
    """Documents, spans and how they are cut."""
    facts: FactsConfig | None = None
    """A corpus of facts besides (or alone, where `corpus` names no documents): blocks, statements, held-out ones."""
    built_corpus: str | None = None
    """A folder made by `realm data build`, used instead of building `corpus`."""
    questions: str | None = None
    """What measures the retriever: a question file of any known format or `FORMAT:PATH`, with `#SET`, `#SET:SPLIT` or
    `#regex` behind it to say which set it is and how its answers are written; None for no recall table."""
    mlm: Stage | None = None
    """Warm start of the joint encoder; None (in a preset.json: null) leaves the stage out."""
    ict: Stage | None = None
    """Warm start of the retriever."""
    read: Stage | None = None
    """Joint pretraining with the retriever frozen: the joint encoder learns to read before the retriever learns from
    its reading."""
    realm: Stage | None = None
    """Joint pretraining of both."""
    open_qa: Stage | None = None
    """Fine-tuning for open-domain question answering."""
    continue_ict: bool = True
    """Also train ICT on for the seconds that read and realm took, as a control."""
    max_questions: int | None = None
    """A seeded sample of so many questions; None for all."""

    def stages(self) -> dict[str, Stage]:
        """The stages there are, in the order they run."""
        names = ("mlm", "ict", "read", "realm", "open_qa")
        named = {name: getattr(self, name) for name in names}
        return {name: stage for name, stage in named.items() if stage is not None}


def with_init(preset: Preset, spec: str) -> Preset:
    """The preset with every encoder of every stage started from `spec` (`hf:PATH` or `embedded`) and shaped like it.

    Dropout, compute dtype and rematerialisation stay the preset's; the retriever's width, pooling and epsilon are the
    folder's where it says them. Raises WeightsError where there are no such weights.
    """
    stages = {}
    for name, stage in preset.stages().items():
        encoders = [part for part in ("retriever", "joint") if hasattr(stage.objective, part)]
        changed = {part: started_from(getattr(stage.objective, part), spec) for part in encoders}
        stages[name] = replace(stage, objective=replace(stage.objective, **changed))
    return replace(preset, **stages)


def started_from(encoder: Any, spec: str) -> Any:
    """The encoder's config as `with_init` changes it."""
    more = {DualEncoderConfig: tower_settings, SpanReaderConfig: reader_settings}
    own = {name: getattr(encoder.bert, name) for name in ("dropout", "attention_dropout", "compute_dtype", "remat")}
    shape = more[type(encoder)](spec) if type(encoder) in more else {}
    return replace(encoder, bert=replace(bert_config(spec), **own), init=spec, **shape)


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _strings)
    # Inner ones first: a hook is fixed when it is made.
    for union in (AnyPart, AnyMasking, AnyIndex, AnyEngine, AnyObjective):
        more = {"default": Sync} if union is AnyEngine else {}  # configs of before have no tag here
        configure_tagged_union(union, converter, tag_name="type", **more)
    return converter


def _strings(value: Any, kind: type) -> tuple[str, ...]:
    """One string stands for a tuple of one, null for none: without this a path would come apart into its letters."""
    values = () if value is None else (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(one, str) for one in values):
        raise ConfigError(f"found {value!r}, wanted a string or a list of strings")
    return values


def to_json(config: Any, kind: Any = None) -> dict[str, Any]:
    """A config as JSON values. `kind`: the union it belongs to, where it is not a field of another config."""
    return _converter().unstructure(config, unstructure_as=kind or type(config))


def up_to_date(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    """What `to_json` wrote, perhaps before the config had all its fields: these at their defaults, which always mean
    what was done without them. As it is where it cannot be read."""
    try:
        return to_json(from_json(value, kind))
    except Exception:  # cattrs raises groups of anything; the comparison that follows names the fields
        return value


def from_json(value: dict[str, Any], kind: Any) -> Any:
    """The config of type `kind` that `to_json` wrote; raises on unknown or missing fields."""
    return _converter().structure(value, kind)
