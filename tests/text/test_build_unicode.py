"""Any Unicode text through the whole build: spans are whole words and exactly their characters, nothing is lost."""

import json
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.assemble import assemble
from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.build_encode import WordEncoder
from realm.text.corpus import Document
from realm.text.tokenizer import Tokenizer

BERT = Tokenizer.load(None)
ENCODE = WordEncoder(BERT)
ENTITIES = [
    "Ada Smith",
    "Café Zoë",
    "Cafe\u0301 Zoe\u0308",
    "İstanbul",
    "İ",
    "😀 Inc.",
    "👩\u200d🚀 Ada",
    "北京",
    "東京タワー",
    "서울",
    "תל אביב",
    "القاهرة",
    "R&amp;D",
    "O\u2019Hara",
    "\u200bZero\u200b",
    "naïve\u00a0Bo",
    "A\r\nB",
    "U.S.",
    "x" * 105,
    "ΑΘΗΝΑΣ",
    "straße",
]
BETWEEN = [
    " met ",
    ". Then ",
    "\r\n",
    "\n\n",
    " \u200f",
    "\ufeff",
    "。",
    "! ",
    ", in 1969, ",
    " &lt;b&gt; ",
    "\u2028",
    "\t",
    "—",
]


@st.composite
def marked(draw) -> tuple[str, list[tuple[int, int, str]]]:
    """A text and the places of its entities."""
    text, spans = draw(st.sampled_from(["", "\ufeff", "Once, "])), []
    for _ in range(draw(st.integers(1, 6))):
        entity = draw(
            st.one_of(st.sampled_from(ENTITIES), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
        )
        spans.append((len(text), len(text) + len(entity), "X"))
        text += entity + draw(st.one_of(st.sampled_from(BETWEEN), st.just(" ")))
    return text, spans


@settings(deadline=None, max_examples=150)
@given(st.lists(marked(), min_size=1, max_size=3), st.integers(8, 60), st.sampled_from([None, "NFC", "NFD"]))
def test_spans_are_whole_words_and_blocks_give_back_the_document(pairs, block_length, form):
    if form is not None:
        pairs = [(unicodedata.normalize(form, text), spans) for text, spans in pairs]
    config = CorpusConfig("nowhere", block_length=block_length)
    documents = [(Document(str(n), "A title", text), spans) for n, (text, spans) in enumerate(pairs)]
    part = assemble(documents, config, ENCODE)
    arrays, skips = part.arrays, sum(part.span_skips.values())
    ends = {name: np.cumsum(arrays[f"{name}_count"]).tolist() for name in ("token", "text", "span")}
    texts, bodies, start = [], [], dict.fromkeys(ends, 0)
    for row in range(len(arrays["length"])):
        values = {name: arrays[name][start[name] : ends[name][row]] for name in ends}
        start = {name: ends[name][row] for name in ends}
        text, token_T = values["text"].tobytes().decode(), values["token"]
        texts.append(text)
        bodies.append(token_T)
        encoding = BERT.encode(text)
        for _, first, last, begin, end, _ in values["span"].tolist():
            inside = text[begin:end]
            assert inside == inside.strip() != ""
            assert BERT.encode(inside).id_T.tolist() == token_T[first:last].tolist()  # exactly its characters
            word_T = BERT.words(token_T)
            assert first == 0 or word_T[first - 1] != word_T[first]  # whole words
            assert last == len(token_T) or word_T[last - 1] != word_T[last]
            if not part.counts["words_cut"]:
                assert encoding.start_T[first] >= begin and encoding.end_T[last - 1] <= end
    owner = arrays["document"].tolist()
    kept = [n for n, (document, _) in enumerate(documents) if len(BERT.encode(document.text).id_T)]
    assert sorted(set(owner)) == list(range(len(kept))) and part.empty == len(documents) - len(kept)
    for ordinal, n in enumerate(kept):
        rows = [row for row, d in enumerate(owner) if d == ordinal]
        text = documents[n][0].text
        assert np.concatenate([bodies[row] for row in rows]).tolist() == BERT.encode(text).id_T.tolist()
        place = 0
        for row in rows:  # each block is a slice of its document, in order
            if not part.counts["words_cut"]:
                place = text.index(texts[row], place) + len(texts[row])
    given_spans = sum(len(spans) for _, spans in pairs)
    assert len(arrays["span"]) + skips >= given_spans
    assert (arrays["length"] <= block_length).all()


def build(tmp_path, records, **settings_):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"".join(json.dumps(one).encode() + b"\r\n" for one in records))
    return build_corpus(CorpusConfig(str(path), **settings_), tmp_path / "out")


def test_overlong_titles_and_sentences_of_every_script_fill_no_block_too_far(tmp_path):
    records = [
        {"id": "latin", "title": "very long title " * 30, "text": " ".join(f"word{n}" for n in range(300))},
        {"id": "cjk", "title": "題" * 50, "text": "北京" * 300},
        {"id": "emoji", "title": "😀 " * 50, "text": "😀 " * 300},
        {"id": "one word", "title": "", "text": "ab" * 49 + "-" + "antidisestablishmentarianism" * 3},
        {"id": "rtl", "title": "כותרת " * 20, "text": "שלום עולם " * 100},
    ]
    table = build(tmp_path, records, block_length=40)
    assert table.length_N.max() <= 40 and table.manifest["counts"]["titles_cut"] == 4
    assert table.manifest["counts"]["sentences_split"] == 5
    for record in records:
        rows = table.rows_of_document(record["id"])
        body = np.concatenate([table.token_T(row) for row in rows])
        assert np.array_equal(body, BERT.encode(record["text"]).id_T)
        assert table.title(rows[0]) == record["title"] and len(table.title_T(rows[0])) <= 10


def test_documents_that_are_empty_or_twice_keep_rows_and_texts_together(tmp_path):
    text = "Ada Smith met Bo in 1969."
    records = [
        {"id": "a", "title": "T", "text": text},
        {"id": "empty", "title": "T", "text": ""},
        {"id": "unseen", "title": "T", "text": "\u200b\ufeff \r\n"},
        {"id": "b", "title": "T", "text": text},
        {"id": "a", "title": "T", "text": "Another text under an id that was there."},
        {"id": "c", "title": "T", "text": "\ufffd"},
        {"id": "d", "title": "U", "text": unicodedata.normalize("NFD", text + " é")},
    ]
    table = build(tmp_path, records, lenient=True)
    assert [(table.document_id(row), table.text(row)) for row in range(table.rows)] == [
        ("a", text),
        ("b", text),
        ("d", records[-1]["text"]),
    ]
    assert table.duplicate_N.tolist() == [0, 0, 2]
    assert table.manifest["skips"] == {
        "document: blank text": 2,
        "document: duplicate id": 1,
        "document: no wordpieces": 1,
    }


MEGABYTES = {"words": "ab " * 350_000, "one word": "x" * 10**6, "dots": "." * 10**6, "lines": "a\n" * 500_000}


@pytest.mark.parametrize("name", MEGABYTES)
def test_a_line_of_a_megabyte_is_a_document_like_any_other(tmp_path, name):
    texts = {"a": "First.", "b": MEGABYTES[name], "c": "Last."}
    table = build(tmp_path, [{"id": number, "title": "T", "text": text} for number, text in texts.items()])
    assert (table.text(0), table.text(table.rows - 1)) == ("First.", "Last.")
    rows = table.rows_of_document("b")
    assert rows == list(range(1, table.rows - 1)) and table.length_N.max() <= 288
    assert "".join("".join(table.text(row) for row in rows).split()) == "".join(texts["b"].split())


@pytest.mark.parametrize("offset", [1 << 70, -(1 << 70), 1 << 62])
def test_offsets_that_no_number_holds_are_outside_the_text(offset):
    document = Document("a", "", "Ada was here.")
    part = assemble([(document, [(0, offset, "X"), (0, 3, "X")])], CorpusConfig("nowhere"), ENCODE)
    assert part.span_skips == {"outside the text": 1} and part.arrays["span"][:, 3:5].tolist() == [[0, 3]]
