"""A small block table for the tests of this folder: paragraphs of the sample, some of them twice."""

import gzip
import json
from pathlib import Path

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.sample import sample_path
from realm.text.table import BlockTable


def small_table(folder: Path, *, documents: int = 60, copies: int = 5, block_length: int = 96) -> BlockTable:
    """Every 50th paragraph of the sample, the first `copies` of them once more under other ids."""
    lines = {}
    for name in ("corpus", "spans"):
        with gzip.open(sample_path(name), "rt", encoding="utf-8") as file:
            lines[name] = [json.loads(line) for line in list(file)[: documents * 50 : 50]]
        again = [{**record, "id": f"copy-{record['id']}"} for record in lines[name][:copies]]
        text = "".join(json.dumps(record) + "\n" for record in lines[name] + again)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    config = CorpusConfig(
        documents=str(folder / "corpus.jsonl"),
        spans=str(folder / "spans.jsonl"),
        block_length=block_length,
        holdout=0.2,
    )
    return build_corpus(config, folder / "table")
