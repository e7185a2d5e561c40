"""The tokenizer: offsets into the string as given, words, determinism of training, refusal of bad vocabularies."""

import pickle
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.tokenizer import EMBEDDED, SPECIALS, Tokenizer, VocabularyError

BERT = Tokenizer.load(None)
TEXTS = ["The cat sat on the mat.", "A dog sat on the log, and the cat ran.", "Dogs and cats: 12 of them!"] * 3


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("Cafe\u0301 is open", [("cafe", "Cafe"), ("is", "is"), ("open", "open")]),
        ("Café", [("cafe", "Café")]),
        ("in İstanbul now", [("in", "in"), ("istanbul", "İstanbul"), ("now", "now")]),
        ("a 😀 b", [("a", "a"), ("[UNK]", "😀"), ("b", "b")]),
        ("日本 x", [("日", "日"), ("本", "本"), ("x", "x")]),
        ("one\r\ntwo", [("one", "one"), ("two", "two")]),
        ("1914–1918", [("1914", "1914"), ("–", "–"), ("1918", "1918")]),
        ("zero\u200bwidth", [("zero", "zero"), ("##wi", "wi"), ("##dt", "dt"), ("##h", "h")]),
        ("R&amp;D", [("r", "R"), ("&", "&"), ("amp", "amp"), (";", ";"), ("d", "D")]),
    ],
)
def test_offsets_point_at_the_characters_as_given(text, pieces):
    found = BERT.encode(text)
    shown = [(BERT.piece(i), text[a:b]) for i, a, b in zip(found.id_T, found.start_T, found.end_T, strict=True)]
    assert shown == pieces


def test_pieces_of_one_word_share_its_index():
    found = BERT.encode("Fermat's 1969")
    assert [BERT.piece(i) for i in found.id_T] == ["fe", "##rma", "##t", "'", "s", "1969"]
    assert found.word_T.tolist() == [0, 0, 0, 1, 2, 3]
    assert BERT.words(found.id_T[1:]).tolist() == [0, 0, 1, 2, 3]  # cut inside a word: still counted from 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4))
def test_batch_equals_one_by_one_and_offsets_stay_inside(texts):
    for text, batched in zip(texts, BERT.encode_batch(texts), strict=True):
        single = BERT.encode(text)
        for one, other in zip(single, batched, strict=True):
            assert one.dtype == np.int32 and np.array_equal(one, other)
        assert np.array_equal(single.word_T, BERT.words(single.id_T))
        assert all(0 <= a < b <= len(text) for a, b in zip(single.start_T, single.end_T, strict=True))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(string.ascii_letters + string.digits + " \n\t", max_size=130), max_size=4))
def test_text_in_which_nothing_is_cleaned_is_encoded_faster_and_the_same(texts):
    texts += ["A" * 101, "Zebra9 x", "MASK"]
    for tokenizer in (BERT, Tokenizer([*SPECIALS, "a", "##a", "zeb", "##ra", "9", "m"])):
        for one, other in zip(tokenizer.encode_plain_batch(texts), tokenizer.encode_batch(texts), strict=True):
            assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


def test_text_cannot_make_a_special_token():
    found = BERT.encode("[CLS] hides [MASK] behind [SEP] [PAD]")
    assert not set(found.id_T.tolist()) & {BERT.pad, BERT.cls, BERT.sep, BERT.mask}


def test_the_embedded_vocabulary_is_berts():
    assert (BERT.size, BERT.pad, BERT.unk, BERT.cls, BERT.sep, BERT.mask) == (30522, 0, 100, 101, 102, 103)
    assert EMBEDDED.with_name("NOTICE").read_text().startswith(EMBEDDED.name)
    assert BERT.decode([BERT.cls, *BERT.encode("Unaffable dogs, here").id_T, BERT.mask]) == (
        "[CLS] unaffable dogs, here [MASK]"
    )
    assert BERT.encode("").id_T.shape == (0,)


def test_training_is_deterministic_and_survives_saving(tmp_path):
    first, second = Tokenizer.train(TEXTS, 90), Tokenizer.train(iter(TEXTS), 90)
    assert first.fingerprint == second.fingerprint
    assert [first.piece(i) for i in range(5)] == list(SPECIALS) and first.size <= 90
    assert first.unk not in first.encode(TEXTS[0]).id_T
    first.save(tmp_path / "vocab.txt")
    loaded, carried = Tokenizer.load(tmp_path / "vocab.txt"), pickle.loads(pickle.dumps(first))
    assert loaded.fingerprint == carried.fingerprint == first.fingerprint
    assert np.array_equal(loaded.encode(TEXTS[1]).id_T, first.encode(TEXTS[1]).id_T)


def test_a_vocabulary_smaller_than_the_alphabet_is_refused():
    with pytest.raises(VocabularyError, match="wanted a vocabulary of 10"):
        Tokenizer.train(TEXTS, 10)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"[PAD]\n[UNK]\nthe\n", r"without \['\[CLS\]'"),
        ("\n".join([*SPECIALS, "a", "b", "a"]).encode(), "'a' twice"),
        ("\n".join([*SPECIALS, "", "b"]).encode(), ":6: found an empty line"),
        (b"[PAD]\n\xff\n", "not UTF-8 at 6"),
        (None, "no readable file"),
    ],
)
def test_bad_vocabularies_are_named(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(VocabularyError, match=message) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)


def test_windows_line_ends_and_ids_outside(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*SPECIALS, "a", ""]).encode())
    small = Tokenizer.load(tmp_path / "vocab.txt")
    assert small.size == 6 and small.piece(5) == "a"
    for number in (-1, 6):
        with pytest.raises(IndexError, match="wanted 0 to 5"):
            small.piece(number)
