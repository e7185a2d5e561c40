"""`--distributed`: the stages of a preset trained by several processes over one run folder on shared storage.

Process 0 leads: it claims the folder, builds the corpus, writes and refreshes. The others wait for it in the folder,
not in a collective, which would time out while a large corpus is built. Measuring is left to one process afterwards.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

import jax

from experiments import pipeline
from experiments.arguments import UsageError, is_ours
from experiments.config import Preset, to_json
from experiments.first_index import check_vectors
from experiments.preflight import preflight
from realm.text.table import BlockTable
from realm.training.processes import agreed, leads
from realm.training.run_folder import Existing, write_json

PLACE = re.compile(r"(.+:[0-9]+),([0-9]+)/([0-9]+)")
GONE = 10  # seconds that a process which ends waits for the others to end too


def join(place: str) -> None:
    """Makes this process one of several, before jax is used. place: `auto` on TPU pods, SLURM, Open MPI and Kubernetes,
    else `HOST:PORT,INDEX/COUNT`, with the address at which process 0 shall listen. Raises UsageError."""
    limits = {"shutdown_timeout_seconds": GONE}
    if place == "auto":
        jax.distributed.initialize(**limits)
        return
    match = PLACE.fullmatch(place)
    if not match or int(match[2]) >= int(match[3]):
        raise UsageError(f"found --distributed {place}, wanted auto, or HOST:PORT,INDEX/COUNT such as node0:7000,1/4")
    jax.distributed.initialize(match[1], int(match[3]), int(match[2]), **limits)


def train_stages(preset: Preset, out: Path, existing: Existing) -> None:
    """Trains what is left of the preset's stages in `out`, which every process of the job sees.

    A process that fails takes the others with it, as `jax.distributed` has it: at the latest when it is missed for
    100 seconds. `--resume` goes on, with any number of processes.
    """
    token = agreed(time.time_ns() % 2**31)
    if not leads():
        pipeline.begun(out, token)
        return _stages(preset, BlockTable.open(out / "corpus"), out, existing, token)
    with ExitStack() as held:
        try:
            held.enter_context(pipeline.locked(out))
            pipeline.claim(preset, out, existing)
            table = pipeline.open_corpus(preset, out)
            print(pipeline.corpus_line(table), file=sys.stderr)
            preflight(preset, table)
            check_vectors(preset, table, out)
            write_json(out / "preset.json", to_json(preset))
            write_json(out / pipeline.STARTED, {"job": token, "processes": jax.process_count()})
        except Exception as error:
            _leave(error)
        _stages(preset, table, out, existing, token)
    print(f"{out} is trained; `realm pretrain {out}/preset.json --out {out} --resume` in one process measures it")


def _leave(error: Exception) -> None:
    """Ends this process at once: at an exit in order jax waits for the others, which wait for this one, and aborts."""
    print(f"realm: {error}" if is_ours(error) else traceback.format_exc(), file=sys.stderr, flush=True)
    os._exit(1)


def _stages(preset: Preset, table: BlockTable, out: Path, existing: Existing, job: int) -> None:
    finished: dict[str, Path] = {}
    for name, stage in preset.stages().items():
        finished[name] = pipeline.run_stage(name, stage, table, out, finished, existing, job)
