"""What a batch's queries found, with where it comes from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from realm.protocols import Arrays
from realm.retrieve import Candidates
from realm.training.processes import rows_of_all, rows_of_this


class Found(NamedTuple):
    """Candidates with where they come from: the generation's number and step, and the step whose towers asked."""

    candidates: Candidates
    generation: int
    generation_step: int
    asked_step: int

    def arrays(self) -> Arrays:
        """For a checkpoint: the rows of every process; all of them call it together."""
        return rows_of_all(self.candidates._asdict()) | {"origin": np.array(self[1:], np.int64)}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Found:
        """Out of a checkpoint: the rows of this process."""
        arrays = {name: np.asarray(value) for name, value in arrays.items()}
        origin = arrays.pop("origin").tolist()
        return cls(Candidates(**rows_of_this(arrays)), *origin)

    def ages(self, step: int) -> dict[str, int]:
        """For the batch that update `step` (counted from 0) is made of: how old documents and queries are, in steps."""
        return {
            "generation": self.generation,
            "document_age": step - self.generation_step,
            "query_age": step - self.asked_step,
        }
