"""Questions of a facts corpus: its statements with the object asked for, to fine-tune and measure question answering.

    python -m experiments.fact_questions runs/facts/facts OUT

writes OUT/train.jsonl, of the statements that are trained on, and OUT/facts.jsonl, OUT/subjects.jsonl and
OUT/relations.jsonl, of the held-out ones, whose "doc" is the block that holds the fact. "Rome has the rank what?" is no
good English, but the words that matter are all there.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from realm.text.facts import FILES, FactsError, read_clozes


def write_fact_questions(folder: str | Path, out: str | Path) -> dict[str, int]:
    """Writes the question files of a facts folder (as `write_facts` leaves it); questions by file.

    Raises FactsError for a folder of something else.
    """
    folder, out = Path(folder), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    clozes = {cloze.document: cloze for cloze in read_clozes(folder)}
    spans = {record["id"]: record["spans"][0] for record in _lines(folder / FILES["spans"])}
    written: Counter[str] = Counter()
    files = {}
    try:
        for record in _lines(folder / FILES["statements"]):
            cloze = clozes.get(record["id"])
            name = cloze.split if cloze else "train"
            if name not in files:
                files[name] = (out / f"{name}.jsonl").open("w", encoding="utf-8")
            start, end, _ = spans[record["id"]]
            question = {
                "id": record["id"],
                "question": asked(record["text"], start, end),
                "answers": [record["text"][start:end]],
            }
            if cloze:
                question["doc"] = cloze.gold[0]
            files[name].write(json.dumps(question, ensure_ascii=False) + "\n")
            written[name] += 1
    finally:
        for file in files.values():
            file.close()
    return dict(written)


def asked(text: str, start: int, end: int) -> str:
    """The statement's own sentence with "what" for its object; what follows it (the fact restated) is left out."""
    return f"{text[:start]}what{text[end:].partition('.')[0]}?"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield from map(json.loads, file)
    except (OSError, ValueError) as error:
        raise FactsError(f"{path}: {error}, wanted what write_facts leaves there") from error


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("wanted python -m experiments.fact_questions FACTS_FOLDER OUT_FOLDER")
    print(write_fact_questions(*sys.argv[1:]))
