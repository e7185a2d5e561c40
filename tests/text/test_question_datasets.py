"""Question sets that TensorFlow Datasets has prepared: known layouts, splits, and what a name needs first."""

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from realm.text.corpus import CorpusError
from realm.text.formats import read_documents
from realm.text.formats.tfds import tensorflow_datasets
from realm.text.formats.tfds_builder import prepare
from realm.text.question_sets import read_question_set
from realm.text.questions import QuestionsError
from realm.text.sample import sample_path
from tests.text.formats.format_samples import write_tfds

TFDS = tensorflow_datasets()
TEXT, SEVERAL = TFDS.features.Text, TFDS.features.Sequence
TEXTS = {"question": TEXT(), "answer": TEXT()}
SHORT = {"start_token": 3, "end_token": 4, "start_byte": 30, "end_byte": 40}
LONG = {"start_token": 0, "end_token": 9, "start_byte": 0, "end_byte": 99}


def judged(number: str, *answers: str, yes_no: int = -1) -> dict:
    """What one annotator of Natural Questions said."""
    texts = [{**SHORT, "text": text} for text in answers]
    return {"id": number, "long_answer": LONG, "short_answers": texts, "yes_no_answer": yes_no}


def page(question: str, number: str, *annotations: dict) -> dict:
    """An example of natural_questions."""
    tokens = [{"token": "<P>", "is_html": True}, {"token": "Ada", "is_html": False}]
    return {
        "id": number,
        "document": {"title": "Ada", "url": "u", "html": "<P>Ada", "tokens": tokens},
        "question": {"text": question, "tokens": question.split()},
        "annotations": list(annotations),
    }


def read_comprehension(*answers: str, question: str) -> dict:
    """An example of natural_questions/longt5."""
    first = next((one for one in answers if one != "NULL"), "NULL")
    record = {"id": "7", "title": "Ada", "context": "Ada .", "question": question}
    return record | {"answer": first, "all_answers": list(answers)}


def trivia(value: str, *aliases: str) -> dict:
    """An example of trivia_qa without its context."""
    answer = {
        "aliases": list(aliases),
        "normalized_aliases": ["ada"],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "normalized_value": "ada",
        "type": "WikipediaEntity",
        "value": value,
    }
    empty = {"entity_pages": [], "search_results": []}
    return {"question": "who?", "question_id": "tc", "question_source": "s", "answer": answer, **empty}


def reading(**more) -> dict:
    """An example of squad."""
    answers = {"text": ["Rome", "Rome"], "answer_start": [0, 0]}
    return {"id": "56be", "title": "Rome", "context": "Rome.", "question": "what?", "answers": answers, **more}


# A known name -> (examples, the questions that come of them, the set it is).
KNOWN = {
    "web_questions": (
        [{"url": "u", "question": "who?", "answers": ["Ada", "Ada", "A. L."]}],
        [("row-1", "who?", ("Ada", "A. L."))],
        "webquestions",
    ),
    "natural_questions_open": (
        [{"question": "où", "answer": ["Zürich"]}],
        [("row-1", "où", ("Zürich",))],
        "nq-open",
    ),
    "squad/v1.1": ([reading()], [("56be", "what?", ("Rome",))], "squad"),
    "trivia_qa/unfiltered.nocontext": (
        [trivia("Ada", "Ada", "A. L.")],
        [("tc", "who?", ("Ada", "A. L."))],
        "triviaqa",
    ),
    "natural_questions/default": (
        [
            page("who is it", "-12", judged("1", "Ada", "A. L."), judged("2"), judged("3", "Ada"), judged("4", " ")),
            page("is it", "13", judged("1", yes_no=1), judged("2")),
            page("why", "14"),
            page("who else", "15", judged("1", "Bo")),
        ],
        [("-12", "who is it", ("Ada", "A. L.")), ("15", "who else", ("Bo",))],
        None,
    ),
    "natural_questions/longt5": (
        [read_comprehension("NULL", "Ada", "Ada L .", question="who ?")],
        [("7", "who ?", ("Ada", "Ada L ."))],
        None,
    ),
}


def prepared(name: str, rows: list[dict], home: Path, split: str = "test") -> str:
    """Examples of a known name with the features of its own builder, under `home` as tfds would put them."""
    importlib.import_module("tensorflow_datasets.question_answering.web_questions")  # a name of its own in no list
    features = TFDS.builder(name, data_dir=str(home / "nowhere")).info.features
    folder = Path(write_tfds(home / "made", {split: rows}, dict(features.items()), name=name.partition("/")[0]))
    place = home / name / folder.name
    place.parent.mkdir(parents=True, exist_ok=True)
    return str(folder.rename(place))


@pytest.mark.parametrize("name", KNOWN)
def test_known_names_are_read_by_folder_and_by_name(tmp_path, monkeypatch, name):
    rows, wanted, dataset = KNOWN[name]
    folder = prepared(name, rows, tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for path in (folder, f"tfds:{folder}", f"tfds:{folder}:test", f"tfds:{name}", f"tfds:{name}:test"):
        found = read_question_set(path)
        assert found.format == "tfds" and found.dataset == dataset
        assert [tuple(one[:3]) for one in found.questions] == wanted
        assert all(one.document is None for one in found.questions)  # a page is the id of no document


def test_questions_that_no_annotator_answered_are_counted(tmp_path):
    folder = prepared("natural_questions/default", KNOWN["natural_questions/default"][0], tmp_path)
    assert "2 questions without a short answer were left out" in read_question_set(folder).warnings
    folder = prepared("natural_questions/longt5", [read_comprehension("NULL", question="why ?")], tmp_path)
    with pytest.raises(QuestionsError, match="found no questions"):
        read_question_set(folder)


@pytest.mark.parametrize(
    "name, row, said",
    [
        ("trivia_qa/unfiltered.nocontext", trivia("<unk>"), "a question without an answer .the value <unk>"),
        (
            "squad/v2.0",
            reading(is_impossible=True, plausible_answers={"text": [], "answer_start": []}),
            "a question without an answer .SQuAD 2.0",
        ),
    ],
)
def test_sets_whose_answers_are_not_given_out_are_an_error(tmp_path, name, row, said):
    with pytest.raises(QuestionsError, match=f"row 0 of test: found {said}.*, wanted"):
        read_question_set(prepared(name, [row], tmp_path))


@pytest.mark.parametrize("kind", ["tfrecord", "riegeli", "parquet"])
@pytest.mark.parametrize("name", KNOWN)
def test_a_known_name_prepared_as_another_kind_of_file_says_what_to_type(tmp_path, monkeypatch, name, kind):
    folder = prepared(name, KNOWN[name][0], tmp_path)
    info = Path(folder) / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', f'"{kind}"'))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    said = f"found a dataset prepared as {kind}, wanted array_record.*tfds convert_format"
    for path in (folder, f"tfds:{name}"):
        with pytest.raises(QuestionsError, match=said):
            read_question_set(path)
    with pytest.raises(CorpusError, match=said):
        list(read_documents(name, format="tfds"))


def test_the_sizes_of_a_known_name_are_checked(tmp_path):
    folder = prepared("web_questions", [{"url": "", "question": "who?", "answers": ["Ada"]}] * 3, tmp_path, "test")
    (warning,) = read_question_set(f"tfds:{folder}:test").warnings
    assert warning.startswith("3 questions is no published size of webquestions test (test 2,032)")
    said = read_question_set(folder, dataset="nq-open").warnings
    assert said[0] == "asked for nq-open, but what was prepared is webquestions"


def test_published_sizes_pass_whatever_the_split_is_called(tmp_path):
    rows = [{"question": f"q{n}", "answer": ["Ada"]} for n in range(3610)]
    folder = prepared("natural_questions_open", rows, tmp_path, "validation")
    found = read_question_set(f"tfds:{folder}:validation")
    assert (found.dataset, found.split, found.warnings) == ("nq-open", "dev", ())
    assert read_question_set(folder).split == "dev/orqa-test"


def test_of_several_versions_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    folder = Path(prepared("web_questions", KNOWN["web_questions"][0], tmp_path))
    shutil.copytree(folder, folder.with_name("2.0.0"))
    with pytest.raises(QuestionsError, match="web_questions: found 1.0.0, 2.0.0 in .*, wanted one of them"):
        read_question_set("tfds:web_questions")
    assert read_question_set("tfds:web_questions/2.0.0").dataset == "webquestions"


def test_an_answer_may_be_one_text(tmp_path):
    folder = write_tfds(tmp_path, {"test": [{"question": "when?", "answer": "1969"}]}, TEXTS)
    assert [tuple(one[:3]) for one in read_question_set(folder).questions] == [("row-1", "when?", ("1969",))]


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
