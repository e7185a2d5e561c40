"""Public question sets: every format is recognised by content and read whole, and a file under a wrong name shows."""

import bz2
import gzip
import json

import fsspec
import pyarrow
import pytest

from realm.text.question_sets import FORMATS, SIZES, read_question_set, training_warnings
from realm.text.question_sets.sizes import matches, size_warnings
from realm.text.question_sets.spec import open_question_set
from realm.text.questions import Question, QuestionsError


def lines(*records):
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Rome",
            "paragraphs": [
                {
                    "context": "Rome is old.",
                    "qas": [
                        {"id": "56be", "question": "What is old?", "answers": [{"text": "Rome", "answer_start": 0}] * 2}
                    ],
                }
            ],
        }
    ],
}
TRIVIA = {
    "Data": [
        {
            "QuestionId": "tc_1",
            "Question": "Who?",
            "Answer": {"Value": "Ada", "Aliases": ["Ada", "", "Ada Lovelace"], "HumanAnswers": ["ada!"]},
        }
    ],
    "Version": 1.0,
}
POPQA = 'id\tsubj\tquestion\tpossible_answers\n42\tAda\tWhat is Ada?\t"[""a poet"", ""poet""]"\n'
# format, file, what must come out of it
FILES = {
    "realm": ("realm", lines({"id": "q", "question": "Où ?", "answers": ["Zürich"], "doc": "d"}), ["q", ("Zürich",)]),
    "nq-open": ("nq-open", lines({"question": "who", "answer": ["Ada", "Ada", "A. L."]}), ["row-1", ("Ada", "A. L.")]),
    "nq-open with answers": ("nq-open", lines({"question": "who", "answers": ["Ada"]}), ["row-1", ("Ada",)]),
    "webquestions, YodaQA": (
        "webquestions",
        '[\n {"qId": "wqs0", "answers": ["Lawyer"], "qText": "what?"}\n]\n',
        ["wqs0", ("Lawyer",)],
    ),
    "webquestions": (
        "webquestions",
        json.dumps(
            [
                {
                    "utterance": "what?",
                    "targetValue": r'(list (description Lawyer) (description "A (b) \"c\"") (description 1.5))',
                }
            ]
        ),
        ["row-1", ("Lawyer", 'A (b) "c"', "1.5")],
    ),
    "trec": ("trec", "1669\tfactoid\tHow tall?\t20\\s?,320|6194\\s*m\r\n", ["1669", ("20\\s?,320|6194\\s*m",)]),
    "entityquestions": ("entityquestions", json.dumps([{"question": "Who?", "answers": ["Ada"]}]), ["row-1", ("Ada",)]),
    "popqa": ("popqa", POPQA, ["42", ("a poet", "poet")]),
    "popqa, JSON lines": (
        "popqa",
        lines({"question": "What?", "answers": ["poet"], "prop": "p", "s_wiki_title": "t", "id": 7}),
        ["7", ("poet",)],
    ),
    "triviaqa": ("triviaqa", json.dumps(TRIVIA, indent=1), ["tc_1", ("Ada", "Ada Lovelace", "ada!")]),
    "squad": ("squad", json.dumps(SQUAD), ["56be", ("Rome",)]),
    "dpr": ("dpr", 'who said ""it""?\t[\'O\'\'Hara\', "19\\s(a|b)"]\n', ["row-1", ("OHara", "19\\s(a|b)")]),
    "dpr, quoted": ("dpr", '"who said ""it""?"\t"[""Ada""]"\n', ["row-1", ("Ada",)]),
}


def written(path, text):
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["set", "set.gz"])
@pytest.mark.parametrize("case", FILES)
def test_every_format_is_recognised_and_read(tmp_path, case, name):
    format, text, (number, answers) = FILES[case]
    path = written(tmp_path / name, text)
    found = read_question_set(path)
    assert found.format == format
    assert [(question.id, question.answers) for question in found.questions] == [(number, answers)]
    assert read_question_set(path, format=format).questions == found.questions
    assert found.questions[0].kind == ("regex" if format == "trec" else "text")


def test_every_format_has_a_case():
    assert {format for format, *_ in FILES.values()} | {"tfds"} == set(FORMATS)  # test_question_datasets has its cases


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_question(tmp_path):
    text = "\ufeff" + lines({"question": "who", "answer": ["Ada"]}, {"question": "what", "answer": ["x"]})
    found = read_question_set(written(tmp_path / "set", text.replace("\n", "\r\n")))
    assert [question.question for question in found.questions] == ["who", "what"]


NQ = '{"question": "who", "answer": ["Ada"]}\n'
REALM = '{"id": "q1", "question": "who", "answers": ["Ada"]}\n'
BAD = [
    ("nq-open", NQ + '{"question": "who", "answer": "Ada"}', ":2: found the answer 'Ada', wanted"),
    ("nq-open", NQ + '{"question": "who", "answer": []}', r":2: found the answer \[\]"),
    ("nq-open", NQ + '{"question": "who", "answer": [""]}', r":2: found the answer \[''\]"),
    ("nq-open", NQ + '{"question": "who", "answer": ["a", 1]}', r":2: found the answer \['a', 1\]"),
    ("nq-open", NQ + '{"question": null, "answer": ["a"]}', ":2: found the question None"),
    ("nq-open", NQ + '{"question": "\\ud800", "answer": ["a"]}', ":2: found the question"),
    ("nq-open", NQ + '{"question": "who", "answer": ["\\ud800"]}', r":2: found the answer"),
    ("nq-open", NQ + '{"question": "who", "answer": ["a", "\\ud800"]}', r":2: found half a surrogate pair"),
    ("nq-open", NQ + "\n" + NQ, ":2: found an empty line"),
    ("nq-open", NQ + "{", ":2: found broken JSON"),
    ("nq-open", NQ + "[1]", ":2: found a JSON list"),
    ("nq-open", NQ + "[" * 100_000, ":2: found broken JSON"),
    ("nq-open", NQ.encode() + b"\xff", ":2: found the byte 0xff, which is not UTF-8"),
    ("realm", REALM + REALM, ":2: found the id 'q1', which .*:1 has already"),
    ("realm", '{"question": "who", "answers": ["Ada"]}', ":1: found no id"),
    ("realm", REALM[:-2] + ', "doc": 7}', ":1: found the doc 7"),
    ("webquestions", '[{"qText": "?", "answers": ["a"]}\n {}]', r":1 \(item 1\): found '\{\}\]' after the item"),
    ("webquestions", '[{"qText": "?", "answers": ["a"]},\n]', r":2 \(item 2\): found broken JSON"),
    ("webquestions", '[\n\n{"qText": "?"}]', r":3 \(item 1\): found the answers None"),
    ("webquestions", '[{"qText": "?", "answers": ["a"]}', r":1 \(item 1\): found '' after the item"),
    ("webquestions", '[{"qText": "?", "answers": ["a"]}] x', "found 'x' after the JSON array"),
    ("webquestions", "[7]", r":1 \(item 1\): found a JSON int"),
    ("webquestions", "[]", "found no questions"),
    ("webquestions", '[{"utterance": "?", "targetValue": "(list)"}]', "found the targetValue"),
    ("webquestions", '[{"utterance": "?", "targetValue": "(list (description a b))"}]', "found the targetValue"),
    ("entityquestions", '{"question": "who"}', ":1: found .*, wanted a JSON array"),
    ("trec", "1\tfactoid\tHow?\n", ":1: found 3 columns, wanted four"),
    ("trec", "1\tfactoid\tHow?\t \n", ":1: found the answer"),
    ("dpr", "who\t['a']\nwho\n", ":2: found 1 columns"),
    ("dpr", "who\tAda\n", ":1: found the answers 'Ada'"),
    ("dpr", "who\t__import__('os')\n", ":1: found the answers"),
    ("dpr", "who\t" + "(" * 5000 + "\n", ":1: found the answers"),
    ("dpr", "who\t['a']\n\n", ":2: found an empty line"),
    ("dpr", "who\t" + "a" * 200_000, ":1: found a broken row"),
    ("popqa", "id\tquestion\n1\twho\n", ":1: found the columns"),
    ("popqa", POPQA + "1\t2\n", ":3: found 2 columns, wanted the header's 4"),
    ("popqa", POPQA + "1\ts\twho\t['a']\n", ":3: found the possible_answers"),
    ("squad", '{"data": 7}', "set: found the data 7"),
    ("squad", '{"data": [{"paragraphs": [{"qas": [{"question": "?"}]}]}]}', r"qas\[0\]: found the answers None"),
    (
        "squad",
        '{"data": [{"paragraphs": [{"qas": [{"is_impossible": true}]}]}]}',
        r"set:data\[0\].paragraphs\[0\].qas\[0\]: found a question without an answer \(SQuAD 2.0\)",
    ),
    ("triviaqa", '{"Data": [{"QuestionId": "q", "Question": "?"}]}', r"set:Data\[0\]: found the Answer None"),
    ("triviaqa", '{"Data": [1]}', r"set:Data\[0\]: found a JSON int"),
    (None, "hello\n", ":1: found 'hello', which begins no known format, wanted one of realm, "),
    (None, "", ":1: found ''"),
    (None, '{"title": "x"}\n', "begins no known format"),
    ("nosuch", NQ, "found the format 'nosuch', wanted one of"),
]


@pytest.mark.parametrize(("format", "text", "message"), BAD)
def test_bad_files_name_the_place(tmp_path, format, text, message):
    with pytest.raises(QuestionsError, match=message):
        read_question_set(written(tmp_path / "set", text), format=format)


PACK = {"bz2": bz2.compress, "gz": gzip.compress, "zst": lambda raw: pyarrow.compress(raw, codec="zstd", asbytes=True)}


@pytest.mark.parametrize("packing", PACK)
def test_urls_and_every_packing_are_read_as_plain_files_are(tmp_path, packing):
    wanted = read_question_set(written(tmp_path / "set", NQ)).questions
    for url in (f"memory://questions/set.{packing}", f"file://{tmp_path}/set.{packing}"):
        with fsspec.open(url, "wb") as file:
            file.write(PACK[packing](NQ.encode()))
        assert read_question_set(url).questions == open_question_set(f"nq-open:{url}").questions == wanted


def test_a_folder_by_url_is_one_set():
    system = fsspec.filesystem("memory")
    rows = json.dumps([{"question": "Who?", "answers": ["x"]}]).encode()
    system.pipe({"/relations/P17.test.json": rows, "/relations/P9.test.json.gz": gzip.compress(rows)})
    found = read_question_set("memory://relations", dataset="entityquestions")
    assert [question.id for question in found.questions] == ["P17.test-row-1", "P9.test-row-1"]


@pytest.mark.parametrize("url", ["memory://questions/nowhere", "nowhere://questions"])
def test_a_url_that_cannot_be_read_is_an_error_of_questions(url):
    with pytest.raises(QuestionsError, match=f"{url}: found no .*, wanted"):
        read_question_set(url)


def test_unreadable_files(tmp_path):
    with pytest.raises(QuestionsError, match="nowhere: found no readable file"):
        read_question_set(tmp_path / "nowhere")
    cut = written(tmp_path / "cut.gz", NQ * 50)
    cut.write_bytes(cut.read_bytes()[:-12])
    with pytest.raises(QuestionsError, match="ends early"):
        read_question_set(cut)
    cut.write_bytes(gzip.compress(b"x" * 500)[:10] + b"\xff" * 40)
    with pytest.raises(QuestionsError, match="corrupt gzip"):
        read_question_set(cut)


def test_a_file_that_unpacks_without_end_is_stopped(tmp_path):
    from realm.text.question_sets.source import Source

    path = written(tmp_path / "big.gz", b"\n" * 100_000)
    with pytest.raises(QuestionsError, match="more than 1000 bytes unpacked"):
        Source(path, limit=1000)


def test_a_folder_of_relations(tmp_path):
    for name in ("P17.test.json", "P106.test.json.gz"):
        written(tmp_path / name, json.dumps([{"question": f"{name}?", "answers": ["x"]}] * 2))
    written(tmp_path / "README.md", "not read")
    found = read_question_set(tmp_path, dataset="entityquestions")
    assert [question.id for question in found.questions] == [
        *("P106.test-row-1", "P106.test-row-2", "P17.test-row-1", "P17.test-row-2"),
    ]
    written(tmp_path / "P9.json", '[{"qText": "?", "answers": ["x"]}]')
    with pytest.raises(QuestionsError, match="formats entityquestions, webquestions"):
        read_question_set(tmp_path)
    with pytest.raises(QuestionsError, match="without .json files"):
        read_question_set(tmp_path.joinpath("empty").mkdir() or tmp_path / "empty")


def nq_file(path, rows):
    return written(path, lines(*({"question": f"q{n}", "answer": ["x"]} for n in range(rows))))


def test_sizes_tell_the_set(tmp_path):
    found = read_question_set(nq_file(tmp_path / "a", 3610))
    assert (found.dataset, found.split, found.warnings) == ("nq-open", "dev/orqa-test", ())
    found = read_question_set(nq_file(tmp_path / "a", 2032))
    assert (found.dataset, found.split, found.warnings) == ("webquestions", "test", ())
    found = read_question_set(nq_file(tmp_path / "a", 17))
    assert (found.dataset, found.split) == (None, None)
    assert found.warnings == ("17 questions is the size of no published set",)
    assert read_question_set(nq_file(tmp_path / "a", 3610), dataset="nq-open", split="test").warnings == ()


def test_the_webquestions_file_given_as_nq(tmp_path):
    """What once halved a reported score: two warnings, one from each side."""
    path = nq_file(tmp_path / "a", 2032)
    (warning,) = read_question_set(path, dataset="nq-open", split="test").warnings
    assert "2,032 questions is no published size of nq-open test (orqa-test 3,610" in warning
    assert warning.endswith("it is that of webquestions test")
    found = read_question_set(path)
    assert training_warnings("nq-open", found) == [
        "the model was tuned on nq-open and is asked webquestions: a score on another set than its own"
    ]
    assert training_warnings("webquestions", found) == []
    assert found.header() == f"webquestions test · 2,032 questions · fingerprint {found.fingerprint[:12]}"


def test_a_format_that_belongs_to_another_set(tmp_path):
    path = written(tmp_path / "a", FILES["squad"][1])
    said = read_question_set(path, dataset="triviaqa").warnings
    assert said[0] == "asked for triviaqa, but the file is in the format of squad" and len(said) == 2


def test_size_warnings_name_what_is_known():
    assert size_warnings(3610, "nq-open") == size_warnings(10_570, "squad", "dev") == []
    assert "no published sizes are known for 'mine'" in size_warnings(5, "mine")[0]
    assert "has no split 'blind': wanted one of train, dev" in size_warnings(3610, "nq-open", "blind")[0]
    assert set(matches(11_313)) == {("triviaqa", "unfiltered-dev"), ("triviaqa", "orqa-test")}
    assert all(size > 0 for splits in SIZES.values() for size in splits.values())


def test_regular_expressions_are_known_by_set_or_asked_for(tmp_path):
    text = lines({"question": "when", "answer": ["19(60|70)", "("]})
    path, named = written(tmp_path / "test.jsonl", text), written(tmp_path / "CuratedTrec-test.jsonl", text)
    plain = read_question_set(path)
    assert plain.questions[0].kind == "text"
    other = read_question_set(named, dataset="webquestions")
    assert other.questions[0].kind == "text" and "regular expressions; they were read as text" in other.warnings[-1]
    asked = (read_question_set(path, dataset="curatedtrec"), read_question_set(path, kind="regex"))
    for found in (read_question_set(named), *asked):
        assert found.questions[0].kind == "regex"
        assert "1 regular expressions do not compile and will match nothing (first: question 'row-1')" in found.warnings
    assert found.fingerprint != plain.fingerprint


def test_blank_answers_beside_others_are_left_out_and_counted(tmp_path):
    found = read_question_set(written(tmp_path / "a", FILES["triviaqa"][1]))
    assert "1 blank answers beside others were left out" in found.warnings


def test_the_fingerprint_is_of_what_is_asked(tmp_path):
    records = [{"question": "who", "answer": ["Ada"]}, {"question": "what", "answer": ["x"]}]
    one = read_question_set(written(tmp_path / "a.gz", lines(*records)))
    same = read_question_set(
        written(
            tmp_path / "b",
            lines(*({"id": r["question"], "question": r["question"], "answers": r["answer"]} for r in records)),
        )
    )
    other = read_question_set(written(tmp_path / "c", lines(*reversed(records))))
    assert one.fingerprint == same.fingerprint != other.fingerprint and len(one.fingerprint) == 64


def test_a_question_is_text_unless_told():
    assert Question("q", "?", ("a",), None).kind == "text"
