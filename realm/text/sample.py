"""A small real corpus inside the package, so that everything can be tried, tested and benchmarked without a download.

Paragraphs, questions and salient spans from 92 Wikipedia articles of SQuAD 1.1; sources, licence and counts are in
data/sample/README.md.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "sample"
FILES = {"corpus": "corpus.jsonl.gz", "questions": "questions.jsonl.gz", "spans": "spans.jsonl.gz"}


class SampleError(ValueError):
    """There is no such sample file."""


def sample_path(name: str) -> Path:
    """The file of the sample `name`: "corpus", "questions" or "spans". Raises SampleError for another name."""
    if name not in FILES:
        raise SampleError(f"found the sample name {name!r}, wanted one of {sorted(FILES)}")
    path = FOLDER / FILES[name]
    if not path.is_file():
        raise SampleError(f"found no {path}, wanted the package's sample data: install the package with its data files")
    return path
