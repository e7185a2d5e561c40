"""`realm export RUN --out DIR`: a run's parameters as a Hugging Face folder, with the vocabulary of its corpus.

The folder is what `--init hf:DIR` reads: the same parameters come back, and preflight sees that the wordpieces are the
corpus's. Layouts are those of realm/models/export.py; none of them has a place for all parts of a pretrained run, and
what is left out is said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from experiments.arguments import HELP_FLAGS, UsageError, parse

if TYPE_CHECKING:
    from experiments.locate import Run
    from realm.models.weights import Report
    from realm.protocols import Params

Layout = Literal["bert", "masked-lm", "knowledge-encoder", "embedder", "sentence-encoder", "open-qa"]
PARTS = {
    "bert": ("query", "block", "joint"),
    "masked-lm": ("joint",),
    "knowledge-encoder": ("joint",),
    "embedder": ("query", "block"),
    "sentence-encoder": ("query", "block"),
    "open-qa": ("query",),
}
USAGE = "wanted `realm export RUN --out DIR`, RUN being a folder such as runs/sample or runs/sample/ict, DIR a new one"


class ExportError(ValueError):
    """A run that cannot be written in the layout asked for."""


@dataclass(frozen=True)
class Export:
    """Writes a run as a folder that Hugging Face and --init hf:DIR read: config.json, model.safetensors, vocab.txt."""

    out: Path
    """The folder, which must not be there yet."""
    layout: Layout | None = None
    """Also spelled --as. Of a joint encoder: masked-lm (BertForMaskedLM; default of an mlm stage), knowledge-encoder
    (RealmKnowledgeAugEncoder; of a realm stage). Of a retriever's tower: embedder (RealmEmbedder, with `cls` pooling;
    of an ict stage), sentence-encoder (where its projection is still that of one). Of a fine-tuned run: open-qa, with
    question tower, span reader and block vectors (RealmForOpenQA). Of any: bert (BertModel), an encoder alone."""
    part: Literal["query", "block", "joint"] | None = None
    """Which encoder, where the layout holds one of several: of two towers (query by default); of bert also the joint
    encoder (the default where there is one)."""


def export(arguments: list[str]) -> int:
    """realm export RUN --out DIR"""
    if not arguments or (arguments[0].startswith("-") and not HELP_FLAGS & set(arguments)):
        raise UsageError(USAGE)
    path, options = (None, arguments) if arguments[0].startswith("-") else (Path(arguments[0]), arguments[1:])
    options = ["--layout" + one[4:] if one == "--as" or one.startswith("--as=") else one for one in options]
    given = parse(Export, options, "realm export RUN")
    print(export_run(path, given.out, given.layout, given.part))
    return 0


def export_run(path: Path, out: Path, layout: Layout | None = None, part: str | None = None) -> str:
    """Writes the run at `path` to the new folder `out`, whole or not at all; what was written and what was not.

    Raises ExportError for a folder that is there and for parts that the run lacks, WeightsError as the export does,
    RunFolderError for no run.
    """
    from experiments.locate import open_run
    from realm.training.checkpoint import restore_params

    if out.exists():
        raise ExportError(f"found {out}, wanted a folder that is not there yet")
    run = open_run(path)
    params, step = restore_params(run.folder / "checkpoints")
    layout = layout or _default(run, params)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as beside:
        folder = Path(beside) / out.name
        report, more = _write(run, params, layout, part, step, folder)
        run.table.tokenizer.save(folder / "vocab.txt")
        positions = json.loads((folder / "config.json").read_text("utf-8"))["max_position_embeddings"]
        tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": positions}
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n", "utf-8")
        folder.rename(out)
    lines = f"{out}: {report.layout} of {run.folder} at step {step}, {len(report.mapped)} tensors, vocab.txt of "
    lines += f"{run.table.tokenizer.size} wordpieces{more}"
    if report.missing:
        lines += f"\n  {len(report.missing)} tensors of Hugging Face's {report.layout} are not in it and not needed"
    return lines


def _default(run: Run, params: Params) -> Layout:
    """The layout with the most of what the run learned."""
    import numpy as np

    from realm.models.weights.sentence import cosine_parts
    from realm.objectives.ict import Ict
    from realm.objectives.mlm import Mlm
    from realm.objectives.open_qa import OpenQa

    objective = run.stage.objective
    if isinstance(objective, OpenQa):
        return "open-qa"
    if not isinstance(objective, Ict):
        return "masked-lm" if isinstance(objective, Mlm) else "knowledge-encoder"
    made = cosine_parts(objective.retriever.bert.width)["projection"]["kernel"]
    untouched = np.array_equal(np.asarray(_tower(params, "query")["projection"]["kernel"]), made)
    return "sentence-encoder" if untouched else "embedder"


def _tower(params: Params, part: str) -> Params:
    """One tower of the retriever: the shared one, or `query` or `block`."""
    return params["retriever"].get("tower") or params["retriever"][part]


def _write(run: Run, params: Params, layout: Layout, part: str | None, step: int, folder: Path) -> tuple[Report, str]:
    """The report of the export, and one line on its vectors and the encoders of the run that it leaves out."""
    from realm.models import export as to
    from realm.models.span_reader import SpanReaderConfig

    objective = run.stage.objective
    joint, retriever = getattr(objective, "joint", None), getattr(objective, "retriever", None)
    part = part or ("joint" if joint is not None and "joint" in PARTS[layout] else PARTS[layout][0])
    if part not in PARTS[layout]:
        raise ExportError(f"found part {part!r}, wanted one that {layout} holds: {' or '.join(PARTS[layout])}")
    encoder = joint if part == "joint" else retriever
    if encoder is None:
        raise ExportError(f"{run.folder}: stage {run.name} has no {part} encoder, which {layout} wants")
    reads = isinstance(joint, SpanReaderConfig)
    if reads and layout in ("masked-lm", "knowledge-encoder") or not reads and layout == "open-qa":
        kind = "a span reader" if reads else "no span reader"
        raise ExportError(f"{run.folder}: found {kind}, which is no {layout}; wanted --as bert, or another stage")
    tower, taken, said = _tower(params, part) if part != "joint" else None, {part}, ""
    if retriever is not None and retriever.shared and part != "joint":
        taken = {"query", "block"}
    segments = {"sentence-encoder": 1, "embedder": 2}.get(layout)
    if segments and "block" in taken and retriever.block_segments != segments:
        raise ExportError(
            f"{run.folder} embeds its blocks with retriever.block_segments={retriever.block_segments}, {layout} does "
            f"with {segments}: they would get other vectors. Wanted --as bert, or a run with that many"
        )
    if layout == "open-qa":
        vectors_NE, said = _vectors(run, step)
        report = to.export_open_qa(tower, retriever, params["joint"], joint, vectors_NE, folder)
        taken |= {"joint"}
    elif layout == "bert":
        report = to.export_bert(params["joint"] if part == "joint" else tower, encoder.bert, folder)
    elif part == "joint":
        write = to.export_masked_lm if layout == "masked-lm" else to.export_knowledge_encoder
        report = write(params["joint"], joint.bert, folder)
    else:
        write = to.export_embedder if layout == "embedder" else to.export_sentence_encoder
        report = write(tower, retriever, folder)
    there = ["query", "block"] * (retriever is not None) + ["joint"] * (joint is not None)
    left = [f"the {one} encoder" for one in there if one not in taken]
    left += [f"{', '.join(report.unused)} of the {part} encoder"] if report.unused else []
    return report, f"{said}\n  not in this layout: {', '.join(left)}" if left else said


def _vectors(run: Run, step: int) -> tuple[Any, str]:
    """float32 [N, E], the blocks' vectors in the newest index of the run, and how old they are."""
    import numpy as np

    from experiments.recipe_of import recipe_of
    from index_refresh.store import GenerationStore

    newest = GenerationStore(run.folder, recipe_of(run.stage, run.table)).newest()
    if newest is None:
        raise ExportError(f"{run.folder} has no generation: wanted the block vectors of its index for open-qa")
    return np.concatenate(list(newest.vectors())), f", block vectors of {newest} ({step - newest.step} steps old)"
