"""Encoding word by word is encoding the text: the same wordpieces and offsets for any Unicode, and the same dates."""

import gzip
import json
import unicodedata

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text import build_encode
from realm.text.build_encode import WordEncoder
from realm.text.dates import find_dates
from realm.text.sample import sample_path
from realm.text.tokenizer import Tokenizer

BERT = Tokenizer.load(None)
ENCODE = WordEncoder(BERT)
PIECES = [
    "Café",
    "Cafe\u0301",
    "İstanbul",
    "ǅ",
    "\u0301",
    "\u0327\u0301",
    "😀👩\u200d🚀",
    "日本語",
    "한국어",
    "\u1112\u1161\u11ab",
    "שָׁלוֹם",
    "مرحبا\u200f",
    "हिन्दी",
    "\u200b",
    "\ufeff",
    "\u00a0",
    "\u2028",
    "\x0b",
    "\x00",
    "\ufffd",
    "\r\n",
    "R&amp;D",
    "[MASK]",
    "##x",
    "1914–1918",
    "'90s",
    "A.D. 79",
    "mid-May",
    "twenty-first",
    "in 1969,",
    "x" * 120,
    "¡Hola!",
    "…",
    "ﬁne",
    "ß",
    "ＡＢ",
    "𝔘𝔫",
]
ANY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=12).flatmap(
        lambda some: st.sampled_from(["", " "]).map(lambda s: s.join(some))
    ),
)


def check(texts: list[str], encode: WordEncoder) -> None:
    found = encode(texts)
    for d, (text, wanted) in enumerate(zip(texts, BERT.encode_batch(texts), strict=True)):
        low, high, begin = found.token_D1[d], found.token_D1[d + 1], found.character_D1[d]
        assert found.text[begin : found.character_D1[d + 1] - 1] == text
        assert np.array_equal(found.id_T[low:high], wanted.id_T)
        assert np.array_equal(found.start_T[low:high] - begin, wanted.start_T)
        assert np.array_equal(found.end_T[low:high] - begin, wanted.end_T)
        assert np.array_equal(found.word_T[low:high] - found.word_T[low:high][:1], wanted.word_T)
        places = [at - begin for at in found.date_C.tolist() if begin <= at < found.character_D1[d + 1]]
        assert find_dates(text, places) == find_dates(text)


@settings(deadline=None, max_examples=200)
@given(st.lists(ANY, max_size=4))
def test_words_put_end_to_end_are_the_wordpieces_of_any_text(texts):
    check(texts, ENCODE)


@settings(deadline=None, max_examples=100)
@given(st.lists(ANY, min_size=1, max_size=3), st.sampled_from(["NFC", "NFD", "NFKD"]))
def test_in_every_normal_form(texts, form):
    check([unicodedata.normalize(form, text) for text in texts], ENCODE)


def test_on_real_text_whether_words_are_remembered_or_not(monkeypatch):
    with gzip.open(sample_path("corpus"), "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in list(file)[::9]]
    check(texts, WordEncoder(BERT))
    monkeypatch.setattr(build_encode, "KEPT_CHARACTERS", 1000)
    forgetful = WordEncoder(BERT)
    for low in range(0, len(texts), 100):
        check(texts[low : low + 100], forgetful)


def test_nothing_is_nothing():
    check([], WordEncoder(BERT))
    check(["", "", " \n"], WordEncoder(BERT))
