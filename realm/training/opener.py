"""Opening a generation beside the steps: reading gigabytes and comparing checksums must not hold training up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from realm.protocols import GenerationLike, Params, Searcher


class Opened(NamedTuple):
    """A generation with its index in memory, and its query tower where that is asked with."""

    generation: GenerationLike
    searcher: Searcher
    query_params: Params | None


class Opener:
    """Opens one generation at a time. `tower`: reads and places a generation's query parameters, or gives None."""

    def __init__(self, tower: Callable[[GenerationLike], Params | None], report: Callable[[str], None]) -> None:
        self.tower, self.report = tower, report
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="open-index")
        self._opening: tuple[int, Future[Opened]] | None = None
        self.refused: int | None = None  # the last one that could not be opened

    def now(self, generation: GenerationLike) -> Opened:
        """Opens it here, however long that takes."""
        return Opened(generation, generation.searcher(), self.tower(generation))

    def beside(self, generation: GenerationLike) -> Opened | None:
        """Opens it in a thread; the opened one at the first call after it is ready, before that None.

        What comes may be one that was asked for earlier. One that cannot be opened is told of and never tried again:
        training goes on with the index it has.
        """
        return self.find_beside(generation.number, lambda number: generation)

    def find_beside(self, number: int, find: Callable[[int], GenerationLike]) -> Opened | None:
        """The same for one that `find` gives by its number, in the thread too: it may take long, and it may raise."""
        if self._opening is None and number != self.refused:
            self._opening = (number, self._threads.submit(lambda: self.now(find(number))))
        if self._opening is None or not self._opening[1].done():
            return None
        (number, future), self._opening = self._opening, None
        error = future.exception()
        if error is None:
            return future.result()
        self.refuse(number, error)
        return None

    def refuse(self, number: int, error: BaseException) -> None:
        """Tells why it is not used, and never tries it again."""
        self.refused = number
        self.report(f"WARNING generation {number} is not used: {type(error).__name__}: {error}")
