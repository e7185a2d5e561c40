"""What a child of the `process` engine runs: `python -m index_refresh.child`, its order coming through stdin.

The order is a pickle, from our own parent only. After it the pipe stays open and silent: its end means that the parent
is gone, and then so is the child, at once. What it says goes to refresher.log.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, BinaryIO

PR_SET_PDEATHSIG = 1
# What vectors depend on must be the same in both processes; the compile cache saves the child its compilations.
SETTINGS = (
    "jax_default_matmul_precision",
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
)


@dataclass(frozen=True)
class Order:
    """What a child is told. `parent`: whose child it is; `claim`: the descriptor of the lock on the run folder;
    `config`: values of the jax settings named in SETTINGS; `cores`: the processors it may use, None for all."""

    parent: int
    run: str
    claim: int
    poll: float
    cores: tuple[int, ...] | None
    config: dict[str, Any]


def write_order(stream: BinaryIO, order: Order, recipe: Any, hands: Any = None) -> None:
    """Three pickles: the recipe is read only when jax has its settings, because its classes may import jax. `hands`:
    who embeds and builds for the child, None for itself."""
    for value in (order, recipe, hands):
        pickle.dump(value, stream)
    stream.flush()


def main() -> int:
    """Reads the order and works until the parent goes or says stop (SIGTERM)."""
    stream = sys.stdin.buffer
    order: Order = pickle.load(stream)
    die_with(order.parent)
    os.set_inheritable(order.claim, False)
    if order.cores is not None:
        os.sched_setaffinity(0, order.cores)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which ends us when it has saved

    import jax

    for name, value in order.config.items():
        jax.config.update(name, value)
    recipe, hands = pickle.load(stream), pickle.load(stream)
    threading.Thread(target=end_with, args=(stream.fileno(),), daemon=True).start()

    from index_refresh.worker import Worker

    tell(f"pid {os.getpid()} on {jax.devices()}, processors {processors()}")
    Worker(order.run, recipe, stop=stopped.is_set, report=tell, poll=order.poll, hands=hands).run()
    return 0


def tell(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}", flush=True)


def processors() -> list[int] | int | None:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def die_with(parent: int) -> None:
    """Asks the kernel (Linux) for SIGKILL when the parent's thread that started us ends; even a child deep in C code
    that never lets Python run goes then."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


def end_with(pipe: int) -> None:
    """Ends the process when the pipe does. Not through the buffered stream, whose lock would outlive the thread."""
    while os.read(pipe, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing is left to tidy up, and the trainer waits for our end
