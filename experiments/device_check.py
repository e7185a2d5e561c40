"""`python -m experiments.device_check`: what must be seen on an accelerator before a long job is trusted to it.

Four short checks, each one line with its numbers and whether it holds: exact search keeps float32 precision; loss and
gradients agree with the host's processor; a training step and embedding, as a share of the device's own matmul rate;
the bytes plan against the memory that was used; a refresher on the host and on a share of the device, while training
goes on. On a machine without one it runs on the processor at small sizes, which shows that the script works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.arguments import parse, write_answer
from experiments.config import Refresh, Stage, to_json
from experiments.presets import base, tiny
from experiments.step_bytes import StepBytes, step_bytes
from index_refresh.process import Process
from realm.index.exact import Exact
from realm.models.bert import BertConfig
from realm.models.dual_encoder import DualEncoderConfig
from realm.models.masked_lm import MaskedLmConfig
from realm.objectives.realm import Realm
from realm.retrieve import NULL, Candidates, Retrieval, device_arrays
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.training.feed import Feed
from realm.training.loop import Training
from realm.training.mesh import data_mesh, shard_batch
from realm.training.metrics import read_metrics
from realm.training.step import init_state, make_step

SMALL = BertConfig(width=64, layers=2, heads=2, feedforward=128, dropout=0.0, attention_dropout=0.0)


@dataclass(frozen=True)
class DeviceCheck:
    """Checks this machine's accelerator; exit code 1 where one of the checks does not hold."""

    small: bool = jax.default_backend() == "cpu"
    """Small sizes instead of BERT-base."""
    batch: int = 0
    """Examples of the training step; 0: 8 for small sizes, 64 else."""
    json: Path | None = None
    """Also write every number to this file."""


def main() -> int:
    given = parse(DeviceCheck, sys.argv[1:], "python -m experiments.device_check")
    found = {"devices": [str(device.device_kind) for device in jax.devices()], "backend": jax.default_backend()}
    print(f"{found['backend']}: {', '.join(found['devices'])}")
    with tempfile.TemporaryDirectory() as scratch:
        table = small_corpus(Path(scratch))
        stage = one_stage(given)
        for name, check in (
            ("exact search", lambda: exact_search(20_000 if given.small else 1_000_000)),
            ("loss and gradients", lambda: agreement(table)),
            ("training step", lambda: training_step(stage, table)),
            ("refresher", lambda: refreshers(Path(scratch))),
        ):
            began = time.monotonic()
            found[name] = check()
            told = ", ".join(f"{key} {value}" for key, value in found[name].items())
            print(f"{name}: {told} ({time.monotonic() - began:.0f} s)", flush=True)
    write_answer(given.json, found)
    return 0 if all(part["holds"] for part in found.values() if isinstance(part, dict)) else 1


def small_corpus(scratch: Path) -> BlockTable:
    config = CorpusConfig(
        documents=str(sample_path("corpus")), spans=str(sample_path("spans")), limit=400, block_length=288
    )
    return build_corpus(config, scratch / "corpus")


def one_stage(given: DeviceCheck) -> Stage:
    """REALM with K = 8 at the size that is asked for."""
    stage = base.preset().realm
    batch = given.batch or (8 if given.small else 64)
    training = replace(stage.training, batch_size=batch, devices=1, retrieve_ahead=0)
    if given.small:
        tower, joint = DualEncoderConfig(bert=SMALL, dropout=0.0), MaskedLmConfig(bert=SMALL)
        objective = replace(stage.objective, retriever=tower, joint=joint)
    else:
        objective = stage.objective
    return replace(stage, objective=objective, training=training)


def exact_search(rows: int) -> dict[str, Any]:
    """Unit vectors must find themselves first, with scores as float64 has them: reduced precision does not."""
    vector_NE = np.random.default_rng(0).standard_normal((rows, 128), np.float32)
    vector_NE /= np.linalg.norm(vector_NE, axis=1, keepdims=True)
    searcher = Exact().build([vector_NE])
    hits = searcher.search(vector_NE[:1000], 8)
    exact_BK = np.einsum("be,bke->bk", vector_NE[:1000].astype(np.float64), vector_NE[hits.id_BK].astype(np.float64))
    error = float(np.abs(exact_BK - np.asarray(hits.score_BK)).max())
    itself = float((hits.id_BK[:, 0] == np.arange(1000)).mean())
    return {
        "rows": rows,
        "finds_itself": itself,
        "score_error": f"{error:.1e}",
        "holds": itself == 1.0 and error < 1e-5,
    }


def prepared(objective: Realm, table: BlockTable, batch: int, seed: int = 0) -> dict[str, Any]:
    """A batch with random candidates, as the loss reads it."""
    units = objective.units(table)
    feed = Feed(objective, units, batch_size=batch, seed=seed, start=0, stop=1)
    arrays = next(iter(feed))
    rng = np.random.default_rng(seed)
    id_BK = rng.integers(0, table.indexed, (batch, objective.candidates)).astype(np.int32)
    id_BK[:, 0] = NULL
    found = Candidates(id_BK, np.ones_like(id_BK, bool), np.zeros(batch, bool))
    retrieval = Retrieval(table, candidates=objective.candidates, block_lengths=objective.block_lengths)
    return objective.found(arrays, retrieval.retrieved(found))


def agreement(table: BlockTable) -> dict[str, Any]:
    """Loss and gradients in float32 with full-precision products, here and on the host's processor."""
    tower, joint = DualEncoderConfig(bert=SMALL, dropout=0.0), MaskedLmConfig(bert=SMALL)
    objective = Realm(retriever=tower, joint=joint, candidates=4, batch_lengths=(96,), block_lengths=(288,))
    params, batch = objective.init(jax.random.key(0)), prepared(objective, table, 8)
    numbers = device_arrays(batch)

    def run(device: Any) -> Any:
        with jax.default_device(device), jax.default_matmul_precision("highest"):
            placed = jax.device_put((params, numbers), device)
            return jax.device_get(jax.jit(jax.value_and_grad(lambda p, b: objective.loss(p, b, None)[0]))(*placed))

    (loss, grads), (wanted, exact) = run(jax.devices()[0]), run(jax.devices("cpu")[0])
    norm = np.sqrt(sum(np.square(leaf, dtype=np.float64).sum() for leaf in jax.tree.leaves(exact)))
    apart = max(float(np.abs(a - b).max()) for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(exact), strict=True))
    loss_apart = abs(float(loss) - float(wanted))
    holds = loss_apart < 1e-4 and apart < 1e-3 * norm
    return {"loss_apart": f"{loss_apart:.1e}", "largest_gradient_apart": f"{apart / norm:.1e}", "holds": holds}


def seconds_of(run: Callable[[], Any], times: int) -> float:
    """Mean seconds of a call, after two that compile and warm up."""
    for _ in range(2):
        jax.block_until_ready(run())
    began = time.monotonic()
    for _ in range(times):
        last = run()
    jax.block_until_ready(last)
    return (time.monotonic() - began) / times


def matmul_rate(dtype: Any, size: int) -> float:
    """FLOP/s of a square product: the device's own limit, in the same run."""
    a = jnp.ones((size, size), dtype)
    product = jax.jit(lambda x: x @ x)
    return 2 * size**3 / seconds_of(lambda: product(a), 5)


def training_step(stage: Stage, table: BlockTable) -> dict[str, Any]:
    """Seconds of a step and of embedding, FLOPs as XLA counts them against the matmul rate, planned bytes against used
    ones (of devices that tell)."""
    objective, training = stage.objective, stage.training
    mesh, device = data_mesh(1), jax.devices()[0]
    plan: StepBytes = step_bytes(stage, table, 1, compiled=True)
    batch = shard_batch(prepared(objective, table, training.batch_size), mesh)
    step = make_step(
        objective,
        training.optimizer,
        steps=1000,
        active=training.optimizer.active(objective.groups(), 999),
        accumulate=1,
        seed=0,
    )
    params = jax.jit(objective.init)(jax.random.key(0))
    state = [init_state(objective, training.optimizer, params, 1000)]
    flops = (step.lower(state[0], batch).compile().cost_analysis() or {}).get("flops", 0.0)

    def once() -> Any:
        state[0], metrics = step(state[0], batch)
        return metrics["loss"]

    seconds = seconds_of(once, 3)
    blocks = {"token_NT": batch["block_token_UT"], "length_N": batch["block_length_U"], "body_N": batch["block_body_U"]}
    towers = {"retriever": state[0]["params"]["retriever"]}
    embed = jax.jit(objective.embed_items)
    embed_seconds = seconds_of(lambda: embed(towers, blocks), 5)
    rate = matmul_rate(jnp.bfloat16 if objective.joint.bert.compute_dtype == "bfloat16" else jnp.float32, 2048)
    planned = plan.params + plan.moments + plan.batch + (plan.step or 0)
    used = (device.memory_stats() or {}).get("peak_bytes_in_use")
    found = {
        "batch": training.batch_size,
        "seconds": round(seconds, 4),
        "share_of_matmul_rate": round(flops / seconds / rate, 3),
        "matmul_tflops": round(rate / 1e12, 2),
        "blocks_per_second": round(len(blocks["length_N"]) / embed_seconds),
        "planned_gb": round(planned / 1e9, 3),
        "used_gb": None if used is None else round(used / 1e9, 3),
    }
    return found | {"holds": used is None or 0.5 < planned / used < 1.5}


def refreshers(scratch: Path) -> dict[str, Any]:
    """The tiny preset with a refresher in a child: on the host, and on three tenths of the device if there is one."""
    places = ["cpu"] if jax.default_backend() == "cpu" else ["cpu", "gpu:0:0.3"]
    found: dict[str, Any] = {}
    for place in places:
        folder = scratch / place.replace(":", "-")
        job = tiny.preset()
        training: Training = replace(job.realm.training, steps=200, checkpoint_every=100, log_every=20)
        refresh: Refresh = replace(job.realm.refresh, engine=Process(device=place), schedule="every 20")
        job = replace(job, realm=replace(job.realm, training=training, refresh=refresh), max_questions=20)
        scratch.joinpath("job.json").write_text(json.dumps(to_json(job)))
        command = [sys.executable, "-m", "experiments.cli", "pretrain", str(scratch / "job.json"), "--out", str(folder)]
        room = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
        done = subprocess.run(command, env=room, capture_output=True, text=True)
        if done.returncode:
            return found | {place: done.stderr[-500:], "holds": False}
        swaps = [r for r in read_metrics(folder / "realm/metrics.jsonl") if r.get("event") == "swap"]
        found[f"generations on {place}"] = len(swaps)
    return found | {"holds": all(count > 1 for name, count in found.items())}


if __name__ == "__main__":
    sys.exit(main())
