"""Reading JSON lines: every kind of bad line, named with file:line (strict) or dropped and counted (lenient)."""

import gzip
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.corpus import MAX_LINE_BYTES, CorpusError, Document
from realm.text.formats import read_documents
from realm.text.sentences import sentence_spans


def read_jsonl(path, **options):
    return read_documents(path, format="jsonl", **options)


GOOD = b'{"id": "a", "title": "A", "text": "First text."}\n'
LAST = b'{"id": "z", "title": "Z", "text": "Last text."}\n'
BAD_LINES = {
    "empty line": [b"\n", b"  \t\n", b"\r\n"],
    "broken JSON": [b'{"id": "b", "text": "cut off\n', b"plain words\n", b'{"id": 1' + b"[" * 100_000 + b"\n"],
    "not an object": [b'["b", "text"]\n', b"null\n", b"3\n"],
    "missing id": [b'{"text": "T."}\n', b'{"id": null, "text": "T."}\n', b'{"id": "", "text": "T."}\n'],
    "missing text": [b'{"id": "b", "title": "B"}\n'],
    "null text": [b'{"id": "b", "text": null}\n'],
    "blank text": [
        b'{"id": "b", "text": " \\n\\t "}\n',
        b'{"id": "b", "text": ""}\n',
        b'{"id": "b", "text": "\\u200b"}\n',
    ],
    "not a string": [
        b'{"id": 7.5, "text": "T."}\n',
        b'{"id": "b", "text": ["T."]}\n',
        b'{"id": "b", "title": 1, "text": "T."}\n',
    ],
    "duplicate id": [b'{"id": "a", "text": "Other."}\n'],
    "not UTF-8": [b'{"id": "b", "text": "caf\xe9"}\n', b'{"id": "b", "text": "half \\ud800 pair"}\n'],
    "line too long": [b'{"id": "b", "text": "' + b"x" * MAX_LINE_BYTES + b'"}\n'],
}
CASES = [
    pytest.param(reason, line, id=f"{reason} {n}") for reason in BAD_LINES for n, line in enumerate(BAD_LINES[reason])
]


@pytest.mark.parametrize("reason, line", CASES)
def test_a_bad_line_stops_strict_reading_with_its_place(tmp_path, reason, line):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(GOOD + line + LAST)
    with pytest.raises(CorpusError, match="found .*, wanted .*lenient") as caught:
        list(read_jsonl(path, counts=Counter()))
    assert str(caught.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize("reason, line", CASES)
def test_a_bad_line_is_dropped_and_counted_in_lenient_reading(tmp_path, reason, line):
    path, counts = tmp_path / "corpus.jsonl", Counter()
    path.write_bytes(GOOD + line + LAST)
    found = list(read_jsonl(path, lenient=True, counts=counts))
    assert found == [Document("a", "A", "First text."), Document("z", "Z", "Last text.")]
    assert counts == {reason: 1}


def test_a_line_of_one_megabyte_is_a_document(tmp_path):
    path = tmp_path / "corpus.jsonl"
    text = "word " * 200_000
    path.write_text(json.dumps({"id": "a", "title": "A", "text": text}))
    assert [len(one.text) for one in read_jsonl(path)] == [len(text)]


def test_a_missing_title_is_empty_and_counted(tmp_path):
    path, counts = tmp_path / "corpus.jsonl", Counter()
    path.write_text('{"id": "a", "text": "T."}\n{"id": "b", "title": null, "text": "T."}\n')
    assert [one.title for one in read_jsonl(path, counts=counts)] == ["", ""]
    assert counts == {"missing title": 2}


def test_byte_order_mark_gzip_and_missing_last_newline_are_read(tmp_path):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "gzipped-without-saying-so.jsonl"
    plain.write_bytes(b"\xef\xbb\xbf" + GOOD + LAST.rstrip())
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [one.id for one in read_jsonl(plain)] == [one.id for one in read_jsonl(packed)] == ["a", "z"]


def test_text_stays_as_given(tmp_path):
    path = tmp_path / "corpus.jsonl"
    text = " R&amp;D\r\ncafe\u0301 &amp;lt; İ 😀 日本\u2028 end "
    path.write_text(json.dumps({"id": "a", "title": "A&amp;B", "text": text}))
    assert list(read_jsonl(path)) == [Document("a", "A&amp;B", text)]


@pytest.mark.parametrize("lenient", [False, True])
def test_files_that_cannot_be_read_to_the_end_are_errors_always(tmp_path, lenient):
    lines = b"".join(json.dumps({"id": str(n), "text": f"Text {n * 7919}."}).encode() + b"\n" for n in range(5000))
    whole = gzip.compress(lines)
    (tmp_path / "folder").mkdir()
    (tmp_path / "short.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "broken.jsonl.gz").write_bytes(whole[:10] + b"\xff" * 64 + whole[74:])
    for name, message in [
        ("short.jsonl.gz", "ends early, after byte [1-9]"),
        ("broken.jsonl.gz", "corrupt gzip data"),
        ("missing.jsonl", "No such file"),
        ("folder", "found no file of jsonl"),
    ]:
        with pytest.raises(CorpusError, match=message):
            list(read_jsonl(tmp_path / name, lenient=lenient))


SNIPPETS = [
    "Dr. Who",
    " ",
    "\n\n",
    "\r\n",
    "end.",
    "A",
    "é",
    "e\u0301",
    "日本。",
    "😀!",
    "3.5",
    "U.S.",
    '"Hi." ',
    "?",
    "\u200b",
]


@settings(deadline=None, max_examples=50)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(SNIPPETS), max_size=12).map("".join)))
def test_sentences_hold_everything_that_is_not_blank_and_cut_no_word(text):
    spans = sentence_spans(text)
    end = 0
    for start, stop in spans:
        assert not text[end:start].strip() and text[start:stop] == text[start:stop].strip() != ""
        assert start == 0 or not (text[start - 1].isalnum() and text[start].isalnum())
        end = stop
    assert not text[end:].strip()


def test_sentence_rules_know_abbreviations_paragraphs_and_scripts():
    text = "Dr. Smith met Mr. Jones in the U.S. army.  It was 3.5 miles.\r\n\r\nNew part 日本語。はい。"
    assert [text[a:b] for a, b in sentence_spans(text)] == [
        "Dr. Smith met Mr. Jones in the U.S. army.",
        "It was 3.5 miles.",
        "New part 日本語。",
        "はい。",
    ]
    wide = "So said George W\u00a0. Bush\u2009. And J\u2009.Smith went\u2003home. Then he slept."
    assert [wide[a:b] for a, b in sentence_spans(wide)][-1] == "Then he slept."
    assert sentence_spans(" \n ") == sentence_spans("") == []
