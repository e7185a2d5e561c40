"""Which set a question file holds: told by its ids, its name and its size, said by its user, never guessed."""

import json

import pytest

from realm.text.question_sets import read_question_set, training_warnings
from realm.text.question_sets.signs import by_ids, by_name
from realm.text.question_sets.spec import name_of, open_question_set, same_questions
from realm.text.questions import QuestionsError

HEX = "56be4db0acb8001400a502e{:x}"
IDS = {
    "squad": [*(HEX.format(n) for n in range(9)), "squad-009-001-q01"],
    "entityquestions": ["eq-dev-P106-00000", "P17.test-row-2", "entityquestions-3"],
    "webquestions": ["wqs000000", "wqr000020"],
    "triviaqa": ["qw_2021", "bt_1256", "sfq_7"],
    "qed": ["qed-1", "qed-2"],
    None: ["qw_1", "qw_2"],  # of one quiz: anybody's
}
NAMES = {
    "NQ-open.dev.jsonl.gz": {"nq-open"},
    "natural_questions_open.jsonl": {"nq-open"},
    "CuratedTrec-test.jsonl": {"curatedtrec"},
    "WebQuestions/test.jsonl": {"webquestions"},
    "squad/questions-dev.jsonl": {"squad"},
    "memory://squad/questions-dev.jsonl": {"squad"},
    "squad/qed.jsonl": {"qed"},  # the file's name goes before its folder's
    "qed-and-squad.jsonl": {"qed", "squad"},
    "squad_v2.jsonl": set(),
    "WebQuestionsSP.jsonl": set(),
    "shaqed.jsonl": set(),
    "tfds:questions:test": set(),
}


def own_file(path, rows, number="{}"):
    """A file in the project's own format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    records = ({"id": number.format(n), "question": f"q{n}", "answers": ["x"]} for n in range(rows))
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", IDS, ids=str)
def test_ids_tell_the_set(name):
    assert by_ids(IDS[name]) == name
    assert by_ids([*IDS[name], "1"]) is None


@pytest.mark.parametrize("path", NAMES)
def test_names_of_files_and_folders_tell_the_set(path):
    assert by_name(path) == NAMES[path]


def test_a_relative_path_is_in_its_folder_too(tmp_path, monkeypatch):
    monkeypatch.chdir(own_file(tmp_path / "squad" / "some.jsonl", 2).parent)
    assert by_name("some.jsonl") == {"squad"}


@pytest.mark.parametrize(
    "name, rows, number, dataset, split",
    [
        ("questions.jsonl", 22_075, "eq-test-P106-{}", "entityquestions", "test"),
        ("entityquestions/dev.jsonl", 22_068, "{}", "entityquestions", "dev"),
        ("squad/questions.jsonl", 10_570, "{}", "squad", "dev/orqa-test"),
        ("qed/questions.jsonl", 1_355, "-{}", "qed", "dev"),
        ("triviaqa.jsonl", 11_313, "{}", "triviaqa", "unfiltered-dev/orqa-test"),
    ],
)
def test_a_published_set_in_the_own_format_is_recognised(tmp_path, name, rows, number, dataset, split):
    found = read_question_set(own_file(tmp_path / name, rows, number))
    assert (found.format, found.dataset, found.split, found.warnings) == ("realm", dataset, split, ())


def test_another_size_than_the_published_ones_is_a_doubt_in_the_own_format_too(tmp_path):
    found = read_question_set(own_file(tmp_path / "a.jsonl", 17, "squad-{}"))
    assert (found.dataset, found.split) == ("squad", None)
    assert found.warnings[0].startswith("17 questions is no published size of squad (train 87,599, dev 10,570")


def test_a_number_of_questions_alone_tells_with_a_doubt(tmp_path):
    """Of one's own questions there may be as many as of a published set."""
    found = read_question_set(own_file(tmp_path / "a.jsonl", 1_800))
    assert (found.dataset, found.split) == ("nq-open", "efficientqa-dev")
    assert found.warnings == ("taken for nq-open by its number of questions alone: PATH#SET names another",)
    assert read_question_set(own_file(tmp_path / "a.jsonl", 1_801)).warnings == ()


def test_where_two_sets_fit_none_is_taken(tmp_path):
    found = read_question_set(own_file(tmp_path / "nq-open.jsonl", 2_032))
    said = "the name says nq-open, 2,032 questions is the size of webquestions"
    assert (found.dataset, found.warnings) == (
        None,
        (f"nothing tells the set for certain ({said}): PATH#SET names it",),
    )
    found = read_question_set(own_file(tmp_path / "qed-squad.jsonl", 17))
    assert found.dataset is None and "the name says qed or squad" in found.warnings[0]


def test_ids_go_before_a_name_that_says_otherwise(tmp_path):
    found = read_question_set(own_file(tmp_path / "squad" / "a.jsonl", 22_075, "eq-test-P106-{}"))
    assert (found.dataset, found.warnings) == ("entityquestions", ("the name says squad, the ids entityquestions",))
    said = read_question_set(tmp_path / "squad" / "a.jsonl", dataset="squad").warnings
    assert said[0] == "asked for squad, but the ids are those of entityquestions"


def test_a_set_that_is_not_known_may_be_another(tmp_path):
    own, squad = (read_question_set(own_file(tmp_path / name, 2)) for name in ("a.jsonl", "squad.jsonl"))
    unknown = "questions of no known set"
    for tuned, asked, said in ((None, squad, (unknown, "squad")), ("squad", own, ("squad", unknown))):
        (warning,) = training_warnings(tuned, asked)
        assert warning.startswith(
            f"the model was tuned on {said[0]} and is asked {said[1]}: perhaps a score on another"
        )
    assert training_warnings(None, own) and not training_warnings("squad", squad)


def test_a_path_says_set_split_and_kind(tmp_path):
    path = own_file(tmp_path / "a.jsonl", 3)
    said = {
        "squad": ("squad", None, "text"),
        "SQuAD:dev": ("squad", "dev", "text"),
        "curatedtrec": ("curatedtrec", None, "regex"),
        "curatedtrec:test,text": ("curatedtrec", "test", "text"),
        "regex": (None, None, "regex"),
        "regex,mine:test": ("mine", "test", "regex"),
    }
    for words, wanted in said.items():
        for spec in (f"{path}#{words}", f"realm:{path}#{words}"):
            found = open_question_set(spec)
            assert (found.dataset, found.split, found.questions[0].kind) == wanted
            assert same_questions(spec, str(path)) and name_of(spec) == "a.jsonl"
    assert open_question_set(f"{path}#squad").warnings[0].startswith("3 questions is no published size of squad")
    assert "only for nq-open, webquestions" in open_question_set(f"{path}#sqaud").warnings[0]
    assert name_of(f"{path}#squad", "squad") == "squad"


def test_patterns_stay_patterns_whatever_set_they_are_said_to_be_of(tmp_path):
    path = tmp_path / "patterns.tsv"
    path.write_text("1\tfactoid\tWhen?\t19(60|70)\n")
    found = open_question_set(f"{path}#mine")
    assert (found.dataset, found.questions[0].kind) == ("mine", "regex")


@pytest.mark.parametrize("said", ["squad,qed", "regex,text", "web questions", "b.jsonl", ""])
def test_other_words_behind_a_path_are_an_error(tmp_path, said):
    path = own_file(tmp_path / "a.jsonl", 1)
    with pytest.raises(
        QuestionsError, match=f"a.jsonl#{said}: found no such file, and '{said}' behind its #, wanted SET"
    ):
        open_question_set(f"{path}#{said}")


def test_a_file_whose_name_says_a_set_is_that_file(tmp_path):
    path = own_file(tmp_path / "a#squad", 2)
    own_file(tmp_path / "a", 1)
    assert len(open_question_set(path).questions) == 2 and name_of(str(path)) == "a#squad"


def test_the_sample_is_of_squad_by_its_own_name():
    for spec in ("sample:questions", "sample:questions-dev"):
        found = open_question_set(spec)
        assert (found.dataset, found.warnings, name_of(spec, found.dataset)) == ("squad", (), spec)
