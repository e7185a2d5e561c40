"""Question sets that TensorFlow Datasets has prepared: known layouts, splits, and what a name needs first."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from realm.text.formats.tfds import tensorflow_datasets
from realm.text.formats.tfds_builder import prepare
from realm.text.question_sets import read_question_set
from realm.text.questions import QuestionsError
from realm.text.sample import sample_path

sys.path.insert(0, str(Path(__file__).parent / "formats"))
from format_samples import write_tfds  # noqa: E402

TFDS = tensorflow_datasets()
TEXT, SEVERAL = TFDS.features.Text, TFDS.features.Sequence
LAYOUTS = {
    "web_questions": (
        {"url": TEXT(), "question": TEXT(), "answers": SEVERAL(TEXT())},
        {"url": "u", "question": "who?", "answers": ["Ada", "Ada", "A. L."]},
        ("row-1", "who?", ("Ada", "A. L.")),
    ),
    "natural_questions_open": (
        {"question": TEXT(), "answer": SEVERAL(TEXT())},
        {"question": "où", "answer": ["Zürich"]},
        ("row-1", "où", ("Zürich",)),
    ),
    "squad": (
        {"id": TEXT(), "question": TEXT(), "answers": SEVERAL({"text": TEXT(), "answer_start": np.int32})},
        {"id": "56be", "question": "what?", "answers": {"text": ["Rome", "Rome"], "answer_start": [0, 0]}},
        ("56be", "what?", ("Rome",)),
    ),
    "trivia_qa": (
        {
            "question_id": TEXT(),
            "question": TEXT(),
            "answer": {"value": TEXT(), "aliases": SEVERAL(TEXT()), "type": TEXT()},
        },
        {"question_id": "tc", "question": "who?", "answer": {"value": "Ada", "aliases": ["Ada", "A. L."], "type": "W"}},
        ("tc", "who?", ("Ada", "A. L.")),
    ),
    "one_text": (
        {"question": TEXT(), "answer": TEXT()},
        {"question": "when?", "answer": "1969"},
        ("row-1", "when?", ("1969",)),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_known_layouts(tmp_path, name):
    columns, row, wanted = LAYOUTS[name]
    folder = write_tfds(tmp_path, {"test": [row]}, columns, name=name)
    for path in (folder, f"tfds:{folder}", f"tfds:{folder}:test"):
        found = read_question_set(path)
        assert found.format == "tfds" and [tuple(one[:3]) for one in found.questions] == [wanted]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Questions of the sample, prepared by our builder in two splits."""
    folder = tmp_path_factory.mktemp("sample")
    lines = {"documents": '{"id": "d", "title": "", "text": "Ada."}\n', "train": "", "test": ""}
    for split in ("train", "test"):
        for number in range(3 if split == "train" else 2):
            lines[split] += f'{{"id": "{split}-{number}", "question": "q{number}", "answers": ["Ada"], "doc": "d"}}\n'
    for name, text in lines.items():
        (folder / f"{name}.jsonl").write_text(text)
    sets = {split: folder / f"{split}.jsonl" for split in ("train", "test")}
    return prepare(folder / "documents.jsonl", folder / "out", questions=sets)["questions"], sets


def test_a_prepared_set_of_ours_is_the_file_it_was_made_from(sample):
    folder, sets = sample
    for split, path in sets.items():
        found, wanted = read_question_set(f"tfds:{folder}:{split}"), read_question_set(path)
        assert (found.questions, found.fingerprint) == (wanted.questions, wanted.fingerprint)
        assert read_question_set(folder, split=split).questions == wanted.questions
        assert found.questions[0].document == "d"


def test_of_several_splits_one_is_named(sample):
    folder, _ = sample
    with pytest.raises(QuestionsError, match=r"found the splits \['test', 'train'\], wanted one of them"):
        read_question_set(folder)
    with pytest.raises(QuestionsError, match="and no 'dev', wanted one of them"):
        read_question_set(f"tfds:{folder}:dev")


def test_a_name_is_found_where_it_was_prepared(sample, tmp_path, monkeypatch):
    folder, sets = sample
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder.parents[2]))
    assert (
        read_question_set("tfds:realm_corpus/questions:train").questions == read_question_set(sets["train"]).questions
    )


@pytest.mark.parametrize("name", ["web_questions", "trivia_qa/unfiltered.nocontext"])
def test_a_name_that_is_not_prepared_says_what_to_type(tmp_path, monkeypatch, name):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(QuestionsError, match=f"{name}: found no dataset_info.json.*need TensorFlow.*tfds build {name}"):
        read_question_set(f"tfds:{name}")


@pytest.mark.parametrize(
    "columns, row, said",
    [
        (
            {"question": TEXT()},
            {"question": "q"},
            r"row 0 of test: found the features \['question'\], wanted `answers`",
        ),
        ({"text": TEXT(), "answer": TEXT()}, {"text": "q", "answer": "a"}, "row 0 of test: found the question None"),
        ({"question": TEXT(), "answers": SEVERAL(TEXT())}, {"question": "q", "answers": []}, "found the answers"),
        ({"question": TEXT(), "answer": TEXT()}, {"question": b"caf\xe9", "answer": "a"}, "not UTF-8"),
    ],
)
def test_bad_examples_are_named_by_their_row(tmp_path, columns, row, said):
    folder = write_tfds(tmp_path, {"test": [row]}, columns)
    with pytest.raises(QuestionsError, match=said):
        read_question_set(folder)


def test_a_file_is_no_prepared_dataset():
    with pytest.raises(QuestionsError, match="found no dataset_info.json"):
        read_question_set(sample_path("questions"), format="tfds")


def test_no_tensorflow_is_imported(sample):
    code = f"""
import sys
from realm.text.question_sets import read_question_set
assert len(read_question_set("tfds:{sample[0]}:test").questions) == 2
print("tensorflow" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
