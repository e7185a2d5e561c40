"""`sample:NAME` instead of a path: a file of the sample that the package ships. Imports no jax."""

from __future__ import annotations

from dataclasses import replace

from realm.text.blocks import FILE_FIELDS, CorpusConfig
from realm.text.sample import sample_path


def resolve(path: str | None) -> str | None:
    """`sample:NAME` is a file of the embedded sample; anything else is a path."""
    return str(sample_path(path.removeprefix("sample:"))) if path and path.startswith("sample:") else path


def resolved(corpus: CorpusConfig) -> CorpusConfig:
    """The corpus config with every `sample:NAME` replaced by its path."""
    return replace(corpus, **{name: tuple(map(resolve, getattr(corpus, name))) for name in FILE_FIELDS})
