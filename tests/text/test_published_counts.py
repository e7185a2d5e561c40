"""Every file of a folder of data reads to as many rows as the table in the folder's README says.

The sample that the package ships always; with REALM_DATA=FOLDER also that folder, whose README has the same table
(file, rows, bytes, sha256): corpora, question sets, spans, CoNLL files, MediaWiki dumps and vocabularies.
"""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from realm.text.conll import read_conll
from realm.text.formats import read_documents, residue
from realm.text.question_sets import read_question_set
from realm.text.sample import sample_path
from realm.text.spans import read_spans
from realm.text.tokenizer import Tokenizer

FOLDERS = [sample_path("corpus").parent, *map(Path, filter(None, [os.environ.get("REALM_DATA")]))]
ROW = re.compile(r"^\| (\S+) \| ([\d,]+)( lines| pages)? \| [\d,]+ \| [0-9a-f]{64} \|$", re.MULTILINE)
QUESTIONS = ("questions", "nq-open/", "webquestions/", "curatedtrec/", "entityquestions/", "popqa/", "triviaqa/")
# Sentences of CoNLL files, of which the table has lines: of a file, or of one part of all CrossNER's domains.
SENTENCES = {
    "wnut17/train": 3394,
    "wnut17/dev": 1009,
    "wnut17/test": 1287,
    "wikigold/wikigold": 1841 - 145,  # its makers count the -DOCSTART- lines too
    "crossner/train": 700,
    "crossner/dev": 2121,
    "crossner/test": 2506,
}
# Residue in all articles of a dump, at most: what its authors broke ("[[[Name]]]", a template closed but not opened).
LEFT = 3


def read_as(kind: str, path: Path) -> int:
    """How many rows the reader of that kind finds, dropping nothing."""
    if kind == "dump":
        counts = Counter()
        return sum(1 for _ in read_documents(path, counts=counts)) + sum(counts.values())
    readers = {
        "corpus": read_documents,
        "spans": read_spans,
        "questions": lambda one: read_question_set(one).questions,
    }
    return sum(1 for _ in readers[kind](path))


def kind_of(name: str, unit: str) -> str | None:
    """None for what this project has no reader for: templates, clozes of other makers."""
    if name.endswith("corpus.jsonl.gz"):
        return "corpus"
    if name.endswith("spans.jsonl.gz"):
        return "spans"
    if unit == " pages":
        return "dump"
    asked = name.startswith(QUESTIONS) or "/questions-" in name or name.endswith("/questions.jsonl.gz")
    return "questions" if asked and not name.endswith("templates.json") else None


def rows_of(folder: Path) -> list[tuple[str, int, str]]:
    found = [(name, int(rows.replace(",", "")), unit or "") for name, rows, unit in ROW.findall(_readme(folder))]
    assert found, f"{folder}: no table of files in its README"
    return found


def _readme(folder: Path) -> str:
    return (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_file_reads_to_the_rows_of_its_readme(folder):
    read, sentences = {}, Counter()
    for name, rows, unit in rows_of(folder):
        path = folder / name
        if kind := kind_of(name, unit):
            read[name] = read_as(kind, path)
            assert read[name] == rows, name
        elif unit == " lines":
            part = re.sub(r"^ner/|/\w+(?=-)|\.\w+\.gz$", "", name).replace("-", "/")
            sentences[part] += sum(1 for _ in read_conll(path))
        elif name.endswith("vocab.txt"):
            assert Tokenizer.load(path).size == rows
    assert len(read) >= 3 and sentences in (SENTENCES, {})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_running_text_holds_no_markup(folder):
    """Of dumps, or of the corpus where a folder has no dump; other corpora are as their makers left them.

    `residue` looks for [[ ]] {{ }} {| |- '' <ref <!-- &nbsp; __TOC__ File: and list marks.
    """
    kinds = {name: kind_of(name, unit) for name, _, unit in rows_of(folder)}
    looked_at = [name for name, kind in kinds.items() if kind == "dump"] or ["corpus.jsonl.gz"]
    for name in looked_at:
        left = Counter()
        for document in read_documents(folder / name):
            left.update(residue(document.text))
        assert sum(left.values()) <= LEFT, (name, left)
