"""What `realm data` prints: the manifest of a corpus, and with `inspect` its lengths, some blocks, and what looks like
markup in all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from experiments.console import wide_console
from realm.text.formats import residue
from realm.text.table import BlockTable

BINS = 10
BAR = 40
QUANTILES = (0, 25, 50, 75, 100)
NAMED = 20  # blocks with residue that are named


def show_manifest(table: BlockTable, seconds: float | None = None) -> None:
    """Counts, skips by reason, warnings, and where a corpus that was edited comes from; `seconds` that it took."""
    console = wide_console()
    manifest = table.manifest
    console.print(f"{table.path}: {table.rows} blocks, fingerprint {table.fingerprint[:12]}", markup=False)
    if seconds is not None:
        console.print(f"  {seconds:.1f} seconds, {table.rows / seconds:.0f} blocks a second", markup=False)
    _print_counts(console, manifest)
    _print_lineage(console, manifest)


def inspected(table: BlockTable, blocks: int, seed: int, markup: bool = False) -> dict[str, Any]:
    """All that `realm data inspect` knows of a corpus; `blocks` sample rows, drawn by `seed`, ascending.

    markup: also look for residue of markup in every block, which takes time.
    """
    manifest = table.manifest
    row_R = np.sort(np.random.default_rng(seed).permutation(table.rows)[:blocks])
    sizes = {
        "wordpieces of a block": table.length_N,
        "sentences of a block": np.diff(table.sentence_offset_N1),
        "wordpieces of a sentence": table.sentence_S4[:, 1] - table.sentence_S4[:, 0],
        "salient spans of a block": np.diff(table.span_offset_N1),
        "blocks of a document": np.diff(table.first_row_D1),
    }
    return {
        "path": str(table.path),
        "fingerprint": table.fingerprint,
        "rows": table.rows,
        "counts": manifest["counts"],
        "skips": manifest["skips"],
        "warnings": manifest["warnings"],
        "lineage": manifest.get("lineage"),
        "kinds": _kinds(table),
        "taggers": _taggers(table),
        "lengths": {
            "histogram": _histogram(table.length_N),
            "quantiles": {
                name: dict(zip(map(str, QUANTILES), np.percentile(size, QUANTILES).tolist(), strict=True))
                for name, size in sizes.items()
                if len(size)
            },
        },
        "residue": residue_of(table) if markup else None,
        "blocks": [_block(table, row) for row in row_R.tolist()],
    }


def residue_of(table: BlockTable) -> dict[str, Any]:
    """What looks like markup in the text of any block: `blocks` with some, `kinds` by number, the first such blocks."""
    kinds, named, blocks = Counter(), [], 0
    for row in range(table.rows):
        found = residue(table.text(row))
        if found:
            kinds.update(found)
            blocks += 1
            named += [table.block_id(row)] if blocks <= NAMED else []
    return {"blocks": blocks, "kinds": dict(kinds.most_common()), "first": named}


def show_inspected(found: dict[str, Any]) -> None:
    """Prints what `inspected` found."""
    console = wide_console()
    console.print(f"{found['path']}: {found['rows']} blocks, fingerprint {found['fingerprint'][:12]}", markup=False)
    _print_counts(console, found)
    _print_lineage(console, found)
    for kind in found["kinds"]:
        line = f"  kind   {kind['kind']}: {kind['spans']} spans, {kind['supported']} of them also in another block"
        console.print(line, markup=False)
    for tagger in found["taggers"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in tagger["kinds"].items())
        console.print(f"  tagger {tagger['tagger']}: {tagger['spans']} spans ({kinds})", markup=False)
    for name, at in found["lengths"]["quantiles"].items():
        values = " ".join(f"{value:g}" for value in at.values())
        console.print(f"  {name}, least, quarter, half, three quarters, most: {values}", markup=False)
    if (left := found["residue"]) is not None:
        kinds = ", ".join(f"{kind} {count}" for kind, count in left["kinds"].items())
        line = f"  residue of markup in {left['blocks']} of {found['rows']} blocks" + (f": {kinds}" if kinds else "")
        console.print(line, markup=False)
        for block in left["first"]:
            console.print(f"    {block}", markup=False)
    most = max(one["blocks"] for one in found["lengths"]["histogram"])
    for one in found["lengths"]["histogram"]:
        bar = "█" * round(BAR * one["blocks"] / most)
        console.print(f"  {one['from']:5d}-{one['to']:<5d} {one['blocks']:9d} {bar}", markup=False)
    for block in found["blocks"]:
        console.print()
        console.print(Text(block["shown"]))


def _print_counts(console: Console, found: dict[str, Any]) -> None:
    for title in ("counts", "skips"):
        for name, value in sorted(found.get(title, {}).items()):
            console.print(f"  {title[:-1]:6s} {name}: {value}", markup=False)
    for warning in found.get("warnings", []):
        console.print(Text(f"WARNING {warning}", style="bold red"))


def _print_lineage(console: Console, found: dict[str, Any]) -> None:
    for name, value in (found.get("lineage") or {}).items():
        console.print(f"  lineage {name}: {value}", markup=False)


def _kinds(table: BlockTable) -> list[dict[str, Any]]:
    """For each kind of salient span how many there are, and how many other blocks hold too; most first."""
    kind_P = table.span_P6[:, 5]
    number = len(table.kinds)
    spans = np.bincount(kind_P, minlength=number).tolist()
    supported = np.bincount(kind_P[table.support_P > 0], minlength=number).tolist()
    rows = [
        {"kind": kind, "spans": count, "supported": held}
        for kind, count, held in zip(table.kinds, spans, supported, strict=True)
    ]
    return sorted(rows, key=lambda row: -row["spans"])


def _taggers(table: BlockTable) -> list[dict[str, Any]]:
    """For each tagger how many spans it found, and of which kinds; most first."""
    kinds = len(table.kinds)
    pair_P = table.tagger_P.astype(np.int64) * kinds + table.span_P6[:, 5]
    count_TK = np.bincount(pair_P, minlength=len(table.taggers) * kinds).reshape(len(table.taggers), kinds)
    rows = [
        {
            "tagger": name,
            "spans": int(count_K.sum()),
            "kinds": {table.kinds[kind]: int(count_K[kind]) for kind in np.argsort(-count_K) if count_K[kind]},
        }
        for name, count_K in zip(table.taggers, count_TK, strict=True)
    ]
    return sorted(rows, key=lambda row: -row["spans"])


def _histogram(length_N: np.ndarray) -> list[dict[str, int]]:
    """Blocks by length in wordpieces, both ends of a bin in it."""
    low, high = int(length_N.min()), int(length_N.max())
    edges = np.unique(np.linspace(low, high + 1, BINS + 1).astype(int))
    counts = np.histogram(length_N, edges)[0].tolist()
    return [
        {"from": start, "to": end - 1, "blocks": count}
        for start, end, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts, strict=True)
    ]


def _block(table: BlockTable, row: int) -> dict[str, Any]:
    text = table.text(row)
    spans = [
        [text[start:end], table.kinds[kind], tagger]
        for (_, _, _, start, end, kind), tagger in zip(table.spans(row).tolist(), table.found_by(row), strict=True)
    ]
    return {
        "row": row,
        "id": table.block_id(row),
        "title": table.title(row),
        "text": text,
        "spans": spans,
        "shown": table.show(row),
    }
