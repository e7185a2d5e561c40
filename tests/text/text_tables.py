"""What the tests of this folder share: a small block table of the sample, and the sentences of one document alone."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_encode import Encoded
from realm.text.cut import lay_all
from realm.text.sample import sample_path
from realm.text.table import BlockTable
from realm.text.tokenizer import Encoding


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


def lay_sentences(text: str, encoding: Encoding, *, room: int, language: str, counts: Counter) -> np.ndarray:
    """Sentences of one document, int32 [S, 4], as `lay_all` lays those of many; `room` as there."""
    ends = np.array([0, len(text) + 1]), np.array([0, len(encoding.id_T)])
    encoded = Encoded(text, np.zeros(0), *ends, *encoding, np.zeros(0))
    row_S4, _ = lay_all([text], encoded, room_D=np.array([room]), language=language, counts=counts)
    return row_S4.astype(np.int32)
