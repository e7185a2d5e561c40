"""Work shared among processes, its results in order: so that nothing depends on how many there are.

A task is a module's function and a picklable argument. With one worker, or one task only, everything happens in this
process. Workers end when their parent does, however it ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from realm.text.build_encode import WordEncoder
from realm.text.tokenizer import Tokenizer

# Of Python's garbage collector: documents and their spans are millions of small tuples, and in no cycle.
SELDOM = (100_000, 50, 100)
_encoder: WordEncoder | None = None  # of a worker process


class WorkersError(ValueError):
    """Workers that cannot be had, or that were ended from outside."""


class Workers:
    """`count` processes, started when they are needed; to be used in a `with`. None: one for each core.

    Functions are called as function(encoder, task), with an encoder of `tokenizer` that lives as long as its process.
    """

    def __init__(self, count: int | None, tokenizer: Tokenizer):
        if count is not None and count < 1:
            raise WorkersError(f"found workers={count}, wanted at least 1, or None for all cores")
        self.count = count or len(os.sched_getaffinity(0))
        self._tokenizer = tokenizer
        self._here = WordEncoder(tokenizer)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        self._collected = gc.get_threshold()
        gc.set_threshold(*SELDOM)
        return self

    def __exit__(self, *_) -> None:
        gc.set_threshold(*self._collected)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def ordered(self, function: Callable[[WordEncoder, Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """The results of all tasks in their order; a few tasks more than workers are in memory at a time."""
        tasks = iter(tasks)
        first = list(islice(tasks, 2))
        if self.count == 1 or len(first) < 2:
            for task in chain(first, tasks):
                yield function(self._here, task)
            return
        waiting: deque[Future] = deque()
        try:
            for task in chain(first, tasks):
                pool = self._started()
                with _deaf():  # submitting starts a worker while there are fewer than wanted
                    waiting.append(pool.submit(_run, function, task))
                if len(waiting) > self.count + 2:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as problem:
            raise WorkersError(
                "found that a worker process was ended from outside (out of memory?), wanted it to finish: the same "
                "command goes on from the finished parts; fewer workers take less memory"
            ) from problem
        finally:
            for future in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (self._tokenizer,))
        return self._pool


@contextmanager
def _deaf() -> Iterator[None]:
    """Signals wait while a worker is started. Ctrl-C reaches every process of a terminal, and a worker would die of it
    with a traceback of its own while it imports: one that is started here never hears it. And one whose parent is
    interrupted before it was told everything would complain of that."""
    came: list[int] = []
    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no handler runs in another
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in old.items():
            signal.signal(number, handler or signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


def _begin(tokenizer: Tokenizer) -> None:
    global _encoder
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    gc.set_threshold(*SELDOM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers it
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    _encoder = WordEncoder(tokenizer)


def _run(function: Callable[[WordEncoder, Any], Any], task: Any) -> Any:
    return function(_encoder, task)
