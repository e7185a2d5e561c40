"""A corpus, an objective and an index small enough to check by hand; module-level, so that a recipe of them pickles."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from index_refresh import files
from index_refresh.recipe import Recipe
from realm.protocols import Hits

VOCABULARY, WIDTH, DIM, ODD = 40, 6, 5, 39  # the ODD wordpiece occurs in row 3 only
PACKED: list[tuple[np.ndarray, int]] = []  # every (rows, length) that was packed: what embedding cost


@dataclass(frozen=True)
class FakeTokenizer:
    fingerprint: str


class FakeTable:
    """Blocks of 4 to 19 random wordpieces; described by the text 'rows=23 seed=7 corpus=abc tokenizer=xyz'."""

    def __init__(self, description: str) -> None:
        values = {"seed": "0", "corpus": "c0", "tokenizer": "t0"} | dict(p.split("=") for p in description.split())
        rng = np.random.default_rng(int(values["seed"]))
        self.rows = self.indexed = int(values["rows"])
        self.length_N = rng.integers(4, 20, self.rows).astype(np.int32)
        self.token_NT = rng.integers(1, ODD, (self.rows, 20)).astype(np.int32)
        if self.rows > 3:
            self.token_NT[3, 0] = ODD
        self.fingerprint, self.tokenizer = values["corpus"], FakeTokenizer(values["tokenizer"])

    def block_id(self, row: int) -> str:
        return f"document-{row}:0"


@dataclass(frozen=True)
class FakeRecipe(Recipe):
    """A recipe over a FakeTable."""

    def open_table(self) -> FakeTable:
        return FakeTable(self.corpus)

    def pack(self, table: FakeTable, row_N: np.ndarray, length: int) -> dict[str, np.ndarray]:
        PACKED.append((np.array(row_N), length))
        null_N = row_N < 0
        length_N = np.where(null_N, 3, np.minimum(table.length_N[row_N], length)).astype(np.int32)
        token_NT = np.zeros((len(row_N), length), np.int32)
        wide = min(length, table.token_NT.shape[1])
        token_NT[:, :wide] = np.where(null_N[:, None], 0, table.token_NT[row_N, :wide])
        token_NT[np.arange(length) >= length_N[:, None]] = 0
        return {"token_NT": token_NT, "length_N": length_N, "body_N": np.full(len(row_N), 2, np.int32)}


@dataclass(frozen=True)
class SlowRecipe(FakeRecipe):
    """Takes `seconds` to pack a batch, without using the processor."""

    seconds: float = 0.0

    def pack(self, table: FakeTable, row_N: np.ndarray, length: int) -> dict[str, np.ndarray]:
        time.sleep(self.seconds)
        return super().pack(table, row_N, length)


@dataclass(frozen=True)
class FakeObjective:
    """Mean word vector through two layers kept in a list (integer keys)."""

    scale: float = 1.0
    items: str = "blocks"

    def embed_items(self, params: dict[str, Any], blocks: dict[str, Any], key: Any = None) -> Any:
        retriever = params["retriever"]
        mask_NT = jnp.arange(blocks["token_NT"].shape[1]) < blocks["length_N"][:, None]
        hidden_NTD = retriever["words"][blocks["token_NT"]]
        mean_ND = (hidden_NTD * mask_NT[:, :, None]).sum(1) / mask_NT.sum(1, keepdims=True)
        return jnp.tanh(mean_ND @ retriever["layers"][0]) @ retriever["layers"][1] * self.scale


@dataclass(frozen=True)
class FakeIndex:
    """All inner products, in numpy. `offset` stands for a setting that an index depends on."""

    offset: float = 0.0
    lose_rows: int = 0

    def build(self, shards: Any, mesh: Any = None, rows: int | None = None) -> FakeSearcher:
        vector_NE = np.concatenate([np.array(shard) for shard in shards])
        return FakeSearcher(vector_NE[: len(vector_NE) - self.lose_rows], np.float32(self.offset))

    def load(self, folder: Any, shards: Any, mesh: Any = None) -> FakeSearcher:
        offset = json.loads((Path(folder) / "index.json").read_text())["offset"]
        if offset != self.offset:
            raise ValueError(f"{folder}: found offset {offset}, wanted {self.offset}")
        return FakeSearcher(np.concatenate([np.array(shard) for shard in shards]), np.float32(offset))


class FakeSearcher:
    kind = "fake"

    def __init__(self, vector_NE: np.ndarray, offset: np.float32) -> None:
        self.vector_NE, self.offset = vector_NE, offset
        self.rows, self.dim = vector_NE.shape

    def search(self, query_BE: np.ndarray, k: int) -> Hits:
        score_BN = query_BE @ self.vector_NE.T + self.offset
        id_BK = np.argsort(-score_BN, axis=1, kind="stable")[:, :k].astype(np.int32)
        return Hits(np.take_along_axis(score_BN, id_BK, 1), id_BK, np.ones_like(id_BK, bool))

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "offset": self.offset}

    def save(self, folder: Any) -> None:
        content = json.dumps({"offset": float(self.offset)}).encode()
        files.put(Path(folder) / "index.json", content[:5])
        files.put(Path(folder) / "index.json", content[5:], append=True)


def make_params(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    return {"retriever": {"words": draw(VOCABULARY, WIDTH), "layers": {0: draw(WIDTH, WIDTH), 1: draw(WIDTH, DIM)}}}


def make_recipe(corpus: str = "rows=23", **changes: Any) -> FakeRecipe:
    changes = {"shard_rows": 10, "batch_rows": 4, "lengths": (8, 16), "index": FakeIndex()} | changes
    kind = SlowRecipe if "seconds" in changes else FakeRecipe
    return kind(changes.pop("objective", FakeObjective()), corpus, **changes)


def expected_vectors(table: FakeTable, params: dict[str, Any], longest: int = 16) -> np.ndarray:
    """float64 [N, E], block by block."""
    rows = []
    for row in range(table.rows):
        token_T = table.token_NT[row, : min(table.length_N[row], longest)]
        mean_D = params["retriever"]["words"][token_T].astype(np.float64).mean(0)
        layers = params["retriever"]["layers"]
        rows.append(np.tanh(mean_D @ layers[0].astype(np.float64)) @ layers[1].astype(np.float64))
    return np.stack(rows)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a generation but its manifest, which tells the time."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "manifest.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
