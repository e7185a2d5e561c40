"""A corpus folder comes to be whole or not at all, once for each source, whoever else builds the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from realm.text.build_parts import TAKEN, parts_folder
from realm.text.columns import written_aside
from realm.text.corpus import CorpusError
from realm.text.table import MANIFEST, VOCABULARY, BlockTable, read_manifest


def built_in(
    out: str | Path, source: dict[str, Any], overwrite: bool, write: Callable[[Path, Path], None]
) -> BlockTable:
    """The table in `out`, written by `write(folder, parts)` unless it is there already, from the same `source`.

    Raises CorpusError for a folder that holds something else, which only `overwrite` replaces and only if it is a
    corpus folder.
    """
    out = Path(out).absolute()
    replace = False
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        if not overwrite:
            return _same(out, source)
        if not ((out / MANIFEST).is_file() and (out / VOCABULARY).is_file()):
            raise CorpusError(
                f"{out}: found files that no corpus build left there, wanted a corpus folder to overwrite"
            )
        replace = True
    try:
        with parts_folder(out, source) as parts, written_aside(out, replace) as folder:
            write(folder, parts)
    except OSError as error:
        if replace or error.errno not in TAKEN:
            raise
        return _same(out, source)  # another process was first
    return BlockTable.open(out)


def _same(out: Path, source: dict[str, Any]) -> BlockTable:
    """The table in `out` if it was built from the same source; CorpusError names what differs."""
    found = read_manifest(out)["source"]
    if found == source:
        return BlockTable.open(out)
    differs = "; ".join(
        f"{name}: found {found.get(name)!r}, wanted {source.get(name)!r}"
        for name in sorted(found.keys() | source.keys())
        if found.get(name) != source.get(name)
    )
    raise CorpusError(
        f"{out} holds a corpus built otherwise ({differs}): choose another folder, or replace it "
        "(--overwrite, overwrite=True)"
    )
