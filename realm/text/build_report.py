"""The manifest of a corpus: counts, what was left out and why, and what its builder should read first."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from realm.text.build_inputs import ABSENT, ROLES
from realm.text.columns import sha256_of
from realm.text.formats.admission import BY_DESIGN
from realm.text.table import FORMAT, MANIFEST, fingerprint_of


def write_manifest(
    folder: Path,
    config: Any,
    source: dict[str, Any],
    tokenizer: str,
    kinds: list[str],
    taggers: list[str],
    counts: dict[str, Any],
    dropped: Counter,
    span_skips: Counter,
    lineage: dict[str, Any] | None = None,
) -> None:
    """Writes what is known of a corpus whose arrays and vocabulary are in `folder`. `config` is its CorpusConfig.

    dropped, span_skips: documents and spans left out by reason, and fields that no document had (ABSENT). lineage: of a
    corpus made from another one.
    """
    absent = sorted(reason for reason in dropped if reason.startswith(ABSENT))
    for reason in absent:
        del dropped[reason]
    skips = {f"document: {reason}": count for reason, count in sorted((+dropped).items())}
    skips |= {f"span: {reason}": count for reason, count in sorted((+span_skips).items())}
    files = {path.name: sha256_of(path) for path in sorted(folder.iterdir())}
    manifest = {
        "format": FORMAT,
        "config": asdict(config),
        "source": source,
        "tokenizer": tokenizer,
        "kinds": kinds,
        "taggers": taggers,
        "counts": dict(sorted(counts.items())),
        "skips": skips,
        "warnings": absent + _warnings(config, counts, skips),
        "files": files,
        "fingerprint": fingerprint_of(files, tokenizer),
    }
    if lineage is not None:
        manifest["lineage"] = lineage
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _warnings(config: Any, counts: dict[str, Any], skips: dict[str, int]) -> list[str]:
    """What whoever starts a run should read first: losses above one in a hundred, and shares that came out odd."""
    lost = sum(
        count
        for reason, count in skips.items()
        if reason.startswith("document: ") and reason.removeprefix("document: ") not in BY_DESIGN
    )
    misplaced = sum(skips.get(f"span: {reason}", 0) for reason in ("outside the text", "of no document"))
    spans = counts["spans"] + sum(count for reason, count in skips.items() if reason.startswith("span: "))
    cut = skips.get("span: cuts a word", 0)
    documents = ", ".join(path for role in ROLES for path in getattr(config, role))
    files = ", ".join(config.spans)
    shares = (
        (lost, lost + counts["documents"], f"documents of {documents} were left out"),
        (misplaced, spans, f"salient spans of {files} fit no document of {documents}: other texts or ids?"),
        (cut, spans, f"salient spans of {files} begin or end inside a word: byte offsets, or another text?"),
        (counts["sentences_without_wordpieces"], counts["sentences"], "sentences hold nothing the tokenizer knows"),
        (counts["unknown_wordpieces"], counts["tokens"], "wordpieces are [UNK]: another script than the vocabulary's?"),
    )
    warnings = [f"{part} of {whole} {what}" for part, whole, what in shares if part > whole / 100]
    if others := skips.get("document: other file", 0):
        warnings.append(
            f"{others} files in the folders of {documents} were not read: another format than the corpus, or none that "
            "is known"
        )
    if config.holdout and not 0 < counts["heldout_documents"] < counts["documents"]:
        warnings.append(
            f"holdout={config.holdout} holds out {counts['heldout_documents']} of {counts['documents']} documents: "
            "a corpus this small needs another share"
        )
    return warnings
