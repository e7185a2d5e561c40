"""Building a corpus: nothing lost on the way to blocks, the same bytes every time, clear refusals."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.corpus import CorpusError
from realm.text.spans import SpansError
from realm.text.tokenizer import Tokenizer, VocabularyError

BERT = Tokenizer.load(None)
TALE = (
    "The old lighthouse stood on the northern cliff. It was built in 1869 by Ada Smith. Nobody had lived there since "
    "the storm! Did the keeper leave? The villagers of Brenn still tell the story to their children every winter."
)


def write(path: Path, records: list[dict]) -> str:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(path)


def documents(texts: list[str], title: str = "A title") -> list[dict]:
    return [{"id": f"d{n}", "title": title, "text": text} for n, text in enumerate(texts)]


def build(tmp_path: Path, records: list[dict], **settings_):
    return build_corpus(CorpusConfig(write(tmp_path / "corpus.jsonl", records), **settings_), tmp_path / "out")


WORDS = [
    "Dr. Who",
    "cat",
    "été",
    "e\u0301t\u0301",
    "İstanbul",
    "日本。",
    "😀",
    "한국",
    ".",
    "!",
    "\r\n",
    "\n\n",
    "antidisestablish",
]
ANY_TEXT = st.one_of(
    # No combining marks at random: their order is a matter of the Unicode version.
    st.text(st.characters(exclude_categories=["Cs", "M"]), max_size=80),
    st.lists(st.sampled_from([*WORDS, "x" * 40, "\u200b", "(12)"]), max_size=60).map(" ".join),
)


@settings(deadline=None, max_examples=30)
@given(st.lists(ANY_TEXT, min_size=1, max_size=3), st.integers(8, 40), ANY_TEXT)
def test_the_bodies_of_a_document_end_to_end_are_its_wordpieces(tmp_path_factory, texts, block_length, title):
    table = build(
        tmp_path_factory.mktemp("any"),
        documents([*texts, "One that is never empty."], title),
        block_length=block_length,
        lenient=True,
    )
    lost = sum(count for reason, count in table.manifest["skips"].items() if reason.startswith("document: "))
    assert table.manifest["counts"]["documents"] + lost == len(texts) + 1
    for number in np.unique(table.document_N):
        rows = np.flatnonzero(table.document_N == number).tolist()
        assert rows == table.rows_of_document(table.document_id(rows[0]))
        text = [*texts, "One that is never empty."][int(table.document_id(rows[0])[1:])]
        body = np.concatenate([table.token_T(row) for row in rows])
        assert np.array_equal(body, BERT.encode(text).id_T)
        position = 0
        for row in rows:
            assert table.length_N[row] == 3 + len(table.title_T(row)) + len(table.token_T(row)) <= block_length
            check_sentences(table, row)
            # Apart from words that are longer than a block, blocks are disjoint slices of the text, in order.
            if not table.manifest["counts"]["words_cut"]:
                assert np.array_equal(BERT.encode(table.text(row)).id_T, table.token_T(row))
                position = text.index(table.text(row), position) + len(table.text(row))


def check_sentences(table, row):
    """Sentences tile the wordpieces of a block and lie in its text without touching blanks."""
    sentence_S4, text = table.sentences(row), table.text(row)
    assert sentence_S4[0, 0] == sentence_S4[0, 2] == 0
    assert sentence_S4[-1, 1] == len(table.token_T(row)) and sentence_S4[-1, 3] == len(text)
    assert np.array_equal(sentence_S4[1:, 0], sentence_S4[:-1, 1])
    for _, _, start, end in sentence_S4.tolist():
        assert 0 <= start < end <= len(text) and text[start:end] == text[start:end].strip()


def test_blocks_are_whole_sentences_filled_greedily(tmp_path):
    table = build(tmp_path, documents([TALE]), block_length=35)
    assert [table.text(row) for row in range(table.rows)] == [
        "The old lighthouse stood on the northern cliff. It was built in 1869 by Ada Smith. "
        "Nobody had lived there since the storm!",
        "Did the keeper leave? The villagers of Brenn still tell the story to their children every winter.",
    ]
    assert [len(table.sentences(row)) for row in range(table.rows)] == [3, 2]
    assert table.title(1) == "A title" and BERT.decode(table.title_T(1)) == "a title"
    assert table.manifest["counts"]["sentences"] == 5 and table.manifest["counts"]["sentences_split"] == 0


def test_a_sentence_longer_than_a_block_is_split_at_word_ends_and_counted(tmp_path):
    sentence = " ".join(f"unaffable{n}" for n in range(30)) + "."
    table = build(tmp_path, documents([f"Short one. {sentence} Last one."]), block_length=24)
    counts = table.manifest["counts"]
    assert counts["sentences_split"] == 1 and counts["words_cut"] == 0 and counts["sentences"] > 3
    assert " ".join(table.text(row) for row in range(table.rows)) == f"Short one. {sentence} Last one."
    assert all(not BERT.continues_V[table.token_T(row)[0]] for row in range(table.rows))
    assert table.text(table.rows - 1).endswith("Last one.")  # the rest of a split sentence shares its block


def test_long_titles_are_cut_and_counted_short_sentences_counted(tmp_path):
    table = build(tmp_path, documents([TALE + " So. Yes."], title="word " * 50), block_length=40, min_sentence_tokens=3)
    assert table.title(0) == "word " * 50 and len(table.title_T(0)) == 10
    assert table.manifest["counts"]["titles_cut"] == 1
    assert table.manifest["counts"]["sentences_too_short"] == 2 and table.min_sentence_tokens == 3


def test_a_document_without_wordpieces_is_counted_and_rows_stay_aligned(tmp_path):
    records = documents(["First.", "\ufffd", "Third."])
    table = build(tmp_path, records)
    assert [(table.document_id(row), table.text(row)) for row in range(2)] == [("d0", "First."), ("d2", "Third.")]
    assert table.manifest["skips"] == {"document: no wordpieces": 1}
    assert table.manifest["warnings"] and "1 of 3 documents" in table.manifest["warnings"][0]


def test_lenient_building_drops_bad_lines_and_keeps_rows_with_their_texts(tmp_path):
    path = tmp_path / "corpus.jsonl"
    good = [json.dumps({"id": f"g{n}", "title": f"T{n}", "text": f"Text number {n}."}) for n in range(4)]
    path.write_text("\n".join([good[0], "", good[1], '{"id": "x"}', "{", good[2], good[0], good[3]]) + "\n")
    with pytest.raises(CorpusError, match=re.escape(f"{path}:2: found an empty line")):
        build_corpus(CorpusConfig(str(path)), tmp_path / "out")
    assert [one.name for one in tmp_path.iterdir()] == ["corpus.jsonl"]  # no trace of what was given up
    table = build_corpus(CorpusConfig(str(path), lenient=True), tmp_path / "out")
    assert table.manifest["skips"] == {
        "document: broken JSON": 1,
        "document: duplicate id": 1,
        "document: empty line": 1,
        "document: missing text": 1,
    }
    for row in range(4):
        assert (table.document_id(row), table.title(row)) == (f"g{row}", f"T{row}")
        assert table.text(row) == f"Text number {row}."
        assert np.array_equal(table.token_T(row), BERT.encode(f"Text number {row}.").id_T)


def test_no_documents_at_all_is_an_error(tmp_path):
    for name, content in (("empty", ""), ("bad", '{"id": 1}\n'), ("tokenless", '{"id": "a", "text": "\\ufffd"}\n')):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(content)
        with pytest.raises(CorpusError, match=f"{name}.jsonl: found no usable document"):
            build_corpus(CorpusConfig(str(path), lenient=True), tmp_path / "out")


def test_two_builds_have_the_same_bytes(tmp_path):
    source = write(tmp_path / "corpus.jsonl", documents([TALE, TALE + " More.", TALE]))
    spans = write(tmp_path / "spans.jsonl", [{"id": "d0", "spans": [[75, 84, "PERSON"]]}])
    config = CorpusConfig(source, spans=spans, holdout=0.5, block_length=40)
    first, second = (build_corpus(config, tmp_path / name) for name in ("one", "two"))
    names = sorted(path.name for path in first.path.iterdir())
    assert names == sorted(path.name for path in second.path.iterdir()) and "manifest.json" in names
    assert all((first.path / name).read_bytes() == (second.path / name).read_bytes() for name in names)


def test_held_out_follows_the_document_id_alone(tmp_path):
    records = documents([f"Text number {n}. {TALE}" for n in range(200)])
    chosen = []
    for name, some, share in (("all", records, 0.3), ("reversed", records[::-1], 0.3), ("few", records[50:60], 0.3)):
        config = CorpusConfig(write(tmp_path / f"{name}.jsonl", some), holdout=share, block_length=40)
        table = build_corpus(config, tmp_path / name)
        chosen.append({table.document_id(row): bool(table.heldout_N[row]) for row in range(table.rows)})
        assert table.manifest["counts"]["heldout_blocks"] == table.heldout_N.sum()
        for row in range(table.rows):
            assert table.heldout_N[row] == chosen[-1][table.document_id(row)]
    assert chosen[0] == chosen[1] and chosen[2].items() <= chosen[0].items()
    assert 40 <= sum(chosen[0].values()) <= 80


def test_a_holdout_that_takes_nothing_warns(tmp_path):
    assert (
        "holds out 0 of 2 documents" in build(tmp_path, documents([TALE, TALE]), holdout=1e-9).manifest["warnings"][0]
    )


@pytest.mark.parametrize(
    "settings_, message",
    [
        ({"block_length": 7}, "block_length=7, wanted at least 8"),
        ({"holdout": 1.0}, "holdout=1.0"),
        ({"holdout": -0.1}, "holdout=-0.1"),
        ({"max_span_tokens": 0}, "max_span_tokens=0"),
        ({"min_sentence_tokens": 0}, "min_sentence_tokens=0"),
    ],
)
def test_impossible_settings_are_refused(settings_, message):
    with pytest.raises(CorpusError, match=message):
        CorpusConfig("corpus.jsonl", **settings_)


def test_missing_input_files_are_named(tmp_path):
    source = write(tmp_path / "corpus.jsonl", documents([TALE]))
    with pytest.raises(CorpusError, match="none.jsonl: found no readable file .*wanted documents"):
        build_corpus(CorpusConfig(str(tmp_path / "none.jsonl")), tmp_path / "out")
    with pytest.raises(SpansError, match="none.jsonl: found no readable file .*wanted spans"):
        build_corpus(CorpusConfig(source, spans=str(tmp_path / "none.jsonl")), tmp_path / "out")


def test_a_vocabulary_trained_on_the_corpus_is_the_folders_own_and_reused(tmp_path):
    source = write(tmp_path / "corpus.jsonl", documents([TALE, "zyxomma zyxomma zyxomma. " * 5]))
    config = CorpusConfig(source, vocabulary="train:120")
    first = build_corpus(config, tmp_path / "out")
    assert first.tokenizer.size <= 120 and first.tokenizer.fingerprint != Tokenizer.load().fingerprint
    assert first.tokenizer.unk not in first.token_flat
    assert build_corpus(config, tmp_path / "out").fingerprint == first.fingerprint
    assert build_corpus(config, tmp_path / "again").fingerprint == first.fingerprint
    with pytest.raises(CorpusError, match="vocabulary: found 'train:120', wanted 'train:90'"):
        build_corpus(CorpusConfig(source, vocabulary="train:90"), tmp_path / "out")
    with pytest.raises(VocabularyError, match="train:many"):
        build_corpus(CorpusConfig(source, vocabulary="train:many"), tmp_path / "other")
