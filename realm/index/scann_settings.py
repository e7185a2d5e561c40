"""What a ScaNN index is built and searched with, derived from the number of rows; pure, and without scann.

The rules are those of ScaNN's own docs/algorithms.md (brute force, then quantisation, then a tree of sqrt(N) leaves);
a tenth of the leaves is searched, as REALM did (100 of 1000). They are a start: what they find must be measured
against Exact with `recall_at_k`, for it depends on the vectors far more than on N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from realm.index.vectors import IndexBuildError

HASH_FROM = 20_000
TREE_FROM = 100_000
FLOAT_BYTES = 2 * 2**30
CODEBOOK = 16


@dataclass(frozen=True)
class ScannSettings:
    """0 leaves: no tree. 0 dims_per_block: no quantisation. 0 reorder: scores stay approximate."""

    leaves: int
    leaves_to_search: int
    training_sample: int
    dims_per_block: int
    anisotropic: float
    reorder: int
    reorder_dtype: str

    def __str__(self) -> str:
        tree = f"{self.leaves_to_search} of {self.leaves} leaves, " if self.leaves else ""
        again = f", reorder {self.reorder} in {self.reorder_dtype}" if self.reorder else ""
        if self.dims_per_block:
            return f"{tree}{self.dims_per_block} dimensions a block{again}"
        return f"{tree}brute force{again}" if tree or again else "brute force, which is exact"


def derive(rows: int, dim: int, **given: Any) -> ScannSettings:
    """The settings for `rows` vectors of width `dim`; whatever is `given` by name stands, also below the thresholds.

    Below 20,000 rows brute force, which is exact; below 100,000 quantisation and reordering of 400; from there a tree
    of sqrt(rows) leaves, a tenth of them searched, quantisation and reordering of 200. Vectors are reordered in float32
    as long as they take at most 2 GiB, else in bfloat16. Without a tree, leaves_to_search is nothing and becomes 0.
    Raises IndexBuildError for what ScaNN would refuse with less to say, or accept and misread.
    """
    leaves = given.get("leaves", round(rows**0.5) if rows >= TREE_FROM else 0)
    dims_per_block = given.get("dims_per_block", min(2, dim) if rows >= HASH_FROM else 0)
    # Without a tree the codes are of whole vectors, not of what is left beside a centroid, and so coarser.
    reorder = (200 if leaves else 400) if dims_per_block else 0
    settings = ScannSettings(
        leaves=leaves,
        leaves_to_search=given.get("leaves_to_search", -(-leaves // 10)) if leaves else 0,
        training_sample=min(rows, given.get("training_sample", max(100_000, 64 * leaves))),
        dims_per_block=dims_per_block,
        anisotropic=given.get("anisotropic", 0.2),
        reorder=given.get("reorder", reorder),
        reorder_dtype=given.get("reorder_dtype", "float32" if 4 * rows * dim <= FLOAT_BYTES else "bfloat16"),
    )
    for wrong, message in _mistakes(settings, rows, dim):
        if wrong:
            raise IndexBuildError(message)
    return settings


def _mistakes(settings: ScannSettings, rows: int, dim: int):
    leaves, searched, sample = settings.leaves, settings.leaves_to_search, settings.training_sample
    block = settings.dims_per_block
    for name in ("leaves", "training_sample", "dims_per_block", "reorder"):
        yield getattr(settings, name) < 0, f"{name} is {getattr(settings, name)}, wanted 0 or more"
    yield leaves > rows, f"{leaves} leaves for {rows} rows; leave leaves=None, and few rows are searched exactly"
    yield leaves and not 1 <= searched <= leaves, f"leaves_to_search is {searched}, wanted 1 to {leaves}, all leaves"
    yield leaves > sample, f"training_sample is {sample}, wanted at least {leaves}, one row for each leaf"
    yield block > dim, f"dims_per_block is {block}, wanted at most the width {dim}"
    yield (
        block and sample < CODEBOOK,
        f"quantisation (dims_per_block {block}) would train on {sample} rows, wanted at least {CODEBOOK}; "
        "leave dims_per_block=None, and few rows are searched exactly",
    )
    yield not 0 <= settings.anisotropic < 1, f"anisotropic is {settings.anisotropic}, wanted 0 to below 1, often 0.2"
    dtypes = ("float32", "bfloat16")
    yield settings.reorder_dtype not in dtypes, f"reorder_dtype is {settings.reorder_dtype!r}, wanted one of {dtypes}"
