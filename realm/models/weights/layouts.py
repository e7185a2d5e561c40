"""Whose weights a folder holds, told by the tensor names alone.

A layout has an outer prefix for each of our two encoders: names are told without it, and without the `bert.` or
`realm.` that follows before those of the encoder itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from realm.models.weights.report import WeightsError


@dataclass(frozen=True)
class Layout:
    """name: the class that writes it. query, block, joint: prefix before the names of the encoder in that role.

    headed: whether `cls.predictions` of the joint encoder is a head that belongs to it. The REALM embedder carries one
    too, left over from its conversion: nothing trained it with these weights, nor is its output layer tied.
    """

    name: str
    query: str = ""
    block: str = ""
    joint: str = ""
    headed: bool = True


def layout_of(names: Iterable[str], path: Path) -> Layout:
    """Raises WeightsError where the names are those of no layout that is known."""
    names = frozenset(names)

    def any_under(*prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in names)

    if any_under("reader.realm."):
        return Layout("RealmForOpenQA", "embedder.", "embedder.", "reader.", headed=False)
    if any_under("embedder.realm.", "query_embedder.realm."):
        block = "embedder." if any_under("embedder.") else "query_embedder."
        query = "query_embedder." if any_under("query_embedder.") else block
        return Layout("RealmScorer", query, block, block, headed=False)
    if any_under("realm."):
        if any_under("qa_outputs."):
            return Layout("RealmReader", headed=False)
        if any_under("cls.dense."):
            return Layout("RealmEmbedder", headed=False)
        return Layout("RealmKnowledgeAugEncoder")
    if any_under("bert.embeddings.", "embeddings."):
        kinds = ("cls.seq_relationship.", "BertForPreTraining"), ("cls.predictions.", "BertForMaskedLM")
        return Layout(next((kind for prefix, kind in kinds if any_under(prefix)), "BertModel"))
    raise WeightsError(
        f"{path} holds tensors named {sorted(names)[:4]}, wanted those of a BERT (`bert.embeddings...` or "
        "`embeddings...`) or of a REALM (`realm.`, `embedder.realm.` or `reader.realm.`)"
    )


def told(name: str, prefix: str) -> str:
    """A name as our table has it: without prefixes, and with LayerNorm's `gamma` and `beta` in their new spelling."""
    name = name.removeprefix(prefix).removeprefix("bert.").removeprefix("realm.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
