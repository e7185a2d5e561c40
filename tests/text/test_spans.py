"""Salient spans from characters to wordpieces: the right characters in every script, every loss counted by reason."""

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text import spans as spans_module
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_encode import WordEncoder
from realm.text.build_place import Spans
from realm.text.build_place import place as place_all
from realm.text.dates import find_dates
from realm.text.spans import SpanFile, SpansError, read_spans
from realm.text.tokenizer import Tokenizer
from tests.text.text_tables import lay_sentences

BERT = Tokenizer.load(None)
ENCODE = WordEncoder(BERT)


def placed(text, spans, dates=(), max_tokens=10, room=200):
    """(the usable spans as rows, skips, sentences)."""
    skips = Counter()
    sentence_S4 = lay_sentences(text, BERT.encode(text), room=room, language="en", counts=Counter())
    rows = [(0, *span, False) for span in spans] + [(0, *date, "DATE", True) for date in dates]
    labels = sorted({row[3] for row in rows})
    columns = [[*(row[:3]), labels.index(row[3]), row[4]] for row in rows]
    table = np.array(columns, np.int64).reshape(-1, 5)
    found = place_all(
        ENCODE([text]),
        sentence_S4.astype(np.int64),
        np.array([0, len(sentence_S4)]),
        Spans(*table.T[:4], table[:, 4].astype(bool)),
        labels,
        max_tokens=max_tokens,
        unk=BERT.unk,
        skips=skips,
    )
    return found, labels, skips, sentence_S4


def place(text, spans, dates=(), max_tokens=10, room=200):
    """(character slices of the usable spans with their labels, skips)."""
    found, labels, skips, sentence_S4 = placed(text, spans, dates, max_tokens, room)
    encoding = BERT.encode(text)
    for sentence, first, last, start, _, _ in found.tolist():
        low, high = sentence_S4[sentence, :2]
        assert low <= first < last <= high
        assert encoding.start_T[first] == start
    return [(text[start:end], labels[label]) for *_, start, end, label in found.tolist()], dict(skips)


def at(text, part, label="X"):
    return (text.index(part), text.index(part) + len(part), label)


LINE = "Pierre de Fermat wrote it in Toulouse. Nobody believed him until 1995."


def test_a_span_of_many_pieces_is_taken_whole():
    found, *_ = placed(LINE, [at(LINE, "Fermat", "PERSON")])
    (_, first, last, *_) = found[0].tolist()
    assert [BERT.piece(i) for i in BERT.encode(LINE).id_T[first:last]] == ["fe", "##rma", "##t"]


@pytest.mark.parametrize(
    "spans, max_tokens, kept, reason",
    [
        ([at(LINE, "Ferma")], 10, [], "cuts a word"),
        ([at(LINE, "ermat")], 10, [], "cuts a word"),
        ([at(LINE, "Toulouse. Nobody")], 10, [], "crosses a sentence"),
        ([at(LINE, "Fermat")], 2, [], "longer than 2 wordpieces"),
        ([(5, 999, "X")], 10, [], "outside the text"),
        ([(-1, 4, "X")], 10, [], "outside the text"),
        ([(4, 4, "X")], 10, [], "outside the text"),
        ([(6, 7, "X")], 10, [], "only blanks"),
        ([at(LINE, "Pierre"), at(LINE, "Pierre de Fermat")], 10, ["Pierre de Fermat"], "overlaps a longer span"),
        ([at(LINE, "de Fermat"), at(LINE, "Pierre de")], 10, ["Pierre de"], "overlaps a longer span"),
        ([at(LINE, "Pierre"), at(LINE, "Pierre de Fermat")], 4, ["Pierre"], "longer than 4 wordpieces"),
    ],
)
def test_each_unusable_span_has_its_reason(spans, max_tokens, kept, reason):
    found, skips = place(LINE, spans, max_tokens=max_tokens)
    assert ([text for text, _ in found], skips) == (kept, {reason: 1})


def test_blanks_around_a_span_do_not_count():
    assert place(LINE, [(6, 17, "X")]) == ([("de Fermat", "X")], {})


def test_unknown_wordpieces_are_no_span_alone_but_may_be_part_of_one():
    assert place("A 😀 here.", [(2, 3, "X")]) == ([], {"only unknown wordpieces": 1})
    assert place("A 😀 here.", [(2, 8, "X")]) == ([("😀 here", "X")], {})
    assert place("Zero \u200b here.", [(5, 6, "X")]) == ([], {"no wordpieces": 1})


def test_a_split_sentence_ends_the_spans_that_cross_its_parts():
    found, skips = place("one two three four five six seven eight", [(4, 13, "A"), (14, 27, "B")], room=5)
    assert (found, skips) == ([("two three", "A")], {"crosses a sentence": 1})


def test_the_longer_of_a_files_span_and_a_date_wins_and_of_equals_the_files():
    text = "From May 1914 to 1918 in the Paris 1919 office."
    dates = [(5, 13), (17, 21), (35, 39)]
    assert place(text, [(29, 39, "ORG"), (17, 21, "WAR")], dates) == (
        [("May 1914", "DATE"), ("1918", "WAR"), ("Paris 1919", "ORG")],
        {"overlaps a longer span": 2},
    )


HARD = [
    ("Party 😀👩\u200d🚀 with Ada in 1969!", ["Ada", "1969"]),
    ("北京 is where 王力 met Ada in 1969.", ["北京", "王力", "Ada", "1969"]),
    ("İstanbul was Ada's home until 1969.", ["İstanbul", "Ada", "1969"]),
    ("Beyonce\u0301 and Rene\u0301 Descartes met in 1969.", ["Beyonce\u0301", "Rene\u0301 Descartes", "1969"]),
    ("Beyoncé and R&amp;D &lt;b&gt; of Ada in 1969.", ["Beyoncé", "R&amp;D", "Ada", "1969"]),
    ("First\r\nline of Ada\r\nin 1969.", ["Ada", "1969"]),
    ("서울 met Ada in 1969.", ["서울", "Ada", "1969"]),
]


@pytest.mark.parametrize("text, parts", HARD, ids=["emoji", "cjk", "capital i", "nfd", "entities", "crlf", "hangul"])
def test_spans_land_on_the_right_characters_in_every_text(tmp_path, text, parts):
    spans = [list(at(text, part, "X")) for part in parts if part != "1969"]
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "a", "title": "", "text": text}))
    (tmp_path / "s.jsonl").write_text(json.dumps({"id": "a", "spans": spans}))
    table = build_corpus(CorpusConfig(str(tmp_path / "c.jsonl"), str(tmp_path / "s.jsonl")), tmp_path / "out")
    assert table.text(0) == text
    assert [text[a:b] for a, b in table.spans(0)[:, 3:5]] == parts
    for _, first, last, start, end, _ in table.spans(0).tolist():
        assert np.array_equal(table.token_T(0)[first:last], BERT.encode(text[start:end]).id_T)
    assert table.kinds == ["X", "DATE"] and table.manifest["skips"] == {}


ENTITY = st.sampled_from(
    ["Ada", "İstanbul", "Rene\u0301", "北京", "U.S.", "O'Hara", "😀", "in 1969", "x.", "\r\n", "Fermatesque"]
)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(ENTITY, max_size=15).map(" ".join),
    st.lists(st.tuples(st.integers(-2, 99), st.integers(0, 99)), max_size=9),
)
def test_usable_and_skipped_add_up_and_nothing_overlaps(text, offsets):
    word_T = BERT.encode(text).word_T
    dates = find_dates(text)
    spans = [(start, start + size, "X") for start, size in offsets]
    found, _, skips, _ = placed(text, spans, dates, max_tokens=5, room=12)
    assert len(found) + skips.total() == len(spans) + len(dates)
    end = 0
    for _, first, last, *_ in found.tolist():
        assert end <= first < last <= first + 5
        end = last
        assert first == 0 or word_T[first - 1] != word_T[first]
        assert end == len(word_T) or word_T[end - 1] != word_T[end]


BAD_LINES = {
    "missing id": ['{"spans": []}', '{"id": 3, "spans": []}'],
    "missing spans": ['{"id": "b"}', '{"id": "b", "spans": {"a": 1}}'],
    "duplicate id": ['{"id": "a", "spans": []}'],
    "broken JSON": ["{"],
    "empty line": [""],
    "malformed span": [
        '{"id": "b", "spans": [[1, 2]]}',
        '{"id": "b", "spans": [[1.5, 2, "X"]]}',
        '{"id": "b", "spans": [[true, 2, "X"]]}',
        '{"id": "b", "spans": [[1, 2, ""]]}',
        '{"id": "b", "spans": ["1-2"]}',
    ],
}


@pytest.mark.parametrize("reason, line", [(reason, line) for reason in BAD_LINES for line in BAD_LINES[reason]])
def test_bad_lines_of_a_spans_file(tmp_path, reason, line):
    path, counts = tmp_path / "spans.jsonl", Counter()
    path.write_text(f'{{"id": "a", "spans": [[0, 3, "X"]]}}\n{line}\n{{"id": "z", "spans": [[4, 9, "Y"]]}}\n')
    with pytest.raises(SpansError, match="spans.jsonl:2: found .*, wanted .*"):
        list(read_spans(path))
    found = dict(read_spans(path, lenient=True, counts=counts))
    assert found.pop("b", []) == [] and found == {"a": [(0, 3, "X")], "z": [(4, 9, "Y")]}
    assert counts == {reason: 1}


@pytest.mark.parametrize("waiting", [1 << 18, 3, 0], ids=["in memory", "some on disk", "all on disk"])
def test_spans_are_found_in_any_order_and_the_rest_is_known(tmp_path, monkeypatch, waiting):
    monkeypatch.setattr(spans_module, "WAITING", waiting)
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(json.dumps({"id": one, "spans": [[0, 1, one]]}) + "\n" for one in "cabdegf"))
    spans = SpanFile([path], aside=tmp_path)
    assert [spans.take(one) for one in "acxb"] == [[(0, 1, "a")], [(0, 1, "c")], [], [(0, 1, "b")]]
    assert spans.take("f") == [(0, 1, "f")] and spans.take("f") == []
    assert dict(spans.left()) == {one: [(0, 1, one)] for one in "deg"}
    spans.close()
    assert SpanFile([]).take("a") == [] and dict(SpanFile([]).left()) == {}


def test_two_files_about_one_document_are_joined(tmp_path):
    for name, ids in (("ner", "abc"), ("mine", "cba")):
        lines = "".join(json.dumps({"id": one, "spans": [[0, 1, name]]}) + "\n" for one in ids)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    spans = SpanFile([tmp_path / "ner.jsonl", tmp_path / "mine.jsonl"])
    assert [spans.take(one) for one in "abc"] == [[(0, 1, "ner"), (0, 1, "mine")]] * 3
    assert list(spans.left()) == []


def test_spans_of_another_corpus_warn(tmp_path):
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "a", "text": "Ada was here."}))
    lines = [{"id": "a", "spans": [[0, 3, "X"], [50, 60, "X"]]}, {"id": "b", "spans": [[0, 1, "X"]] * 3}]
    (tmp_path / "s.jsonl").write_text("\n".join(json.dumps(one) for one in lines))
    table = build_corpus(CorpusConfig(str(tmp_path / "c.jsonl"), str(tmp_path / "s.jsonl")), tmp_path / "out")
    assert table.manifest["skips"] == {"span: of no document": 3, "span: outside the text": 1}
    assert table.manifest["warnings"][0].startswith("4 of 5 salient spans")
