"""CoNLL files: every scheme by one rule, errors with file and line, and words in wordpieces without loss."""

import bz2
import gzip
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realm.text.conll import ConllError, bio, label_spans, read_conll, types_of
from realm.text.tag_units import NOWHERE, TagUnits, chosen_sentences, label_names
from realm.text.tokenizer import Tokenizer

IN_EVERY_SCHEME = {
    "IO": "I-PER I-PER O I-LOC I-ORG",
    "IOB1": "I-PER I-PER O I-LOC I-ORG",
    "IOB2": "B-PER I-PER O B-LOC B-ORG",
    "BIOES": "B-PER E-PER O S-LOC S-ORG",
    "BILOU": "B-PER L-PER O U-LOC U-ORG",
}


EMBEDDED = Tokenizer.load()


@pytest.fixture(scope="module")
def tokenizer():
    return EMBEDDED


@pytest.mark.parametrize("scheme", IN_EVERY_SCHEME)
def test_every_scheme_marks_the_same_entities(scheme):
    assert label_spans(IN_EVERY_SCHEME[scheme].split()) == [(0, 2, "PER"), (3, 4, "LOC"), (4, 5, "ORG")]


@pytest.mark.parametrize(
    "labels, spans",
    [
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),  # neighbours of one type: what IO cannot say
        ("I-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER I-PER", [(0, 2, "PER")]),
        ("B-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),  # another type begins an entity, as conlleval has it
        ("O I-PER", [(1, 2, "PER")]),
        ("E-PER I-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("B-PER E-PER E-PER", [(0, 2, "PER"), (2, 3, "PER")]),
        ("", []),
        ("O O", []),
    ],
)
def test_where_entities_begin_and_end(labels, spans):
    assert label_spans(labels.split()) == spans


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB"))))
def test_spans_come_back_from_their_labels(parts):
    spans, at = [], 0
    for gap, size, kind in parts:
        spans.append((at + gap, at + gap + size, kind))
        at += gap + size
    labels = bio(spans, at + 1)
    assert label_spans(labels) == spans and len(labels) == at + 1


TEXT = "-DOCSTART- -X- O O\n\nAda NNP B-NP B-PER\nSmith NNP I-NP I-PER\n\n\nin\tO\n"


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
def test_sentences_of_plain_and_packed_files(tmp_path, pack):
    path = tmp_path / "a.conll"
    path.write_bytes(pack(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()))
    first, second = read_conll(path)
    assert (first.words, first.labels, first.where) == (("Ada", "Smith"), ("B-PER", "I-PER"), f"{path}:3")
    assert (second.words, second.labels) == (("in",), ("O",))
    assert types_of([first, second]) == ("PER",)


BAD = {
    "columns": [b"alone\n", b"\tO\n"],
    "label": [b"Ada\tPER\n", b"Ada B-\n", b"Ada\t\n", b"Ada X-PER\n"],
    "not UTF-8": [b"A\xffa\tO\n"],
    "line too long": [b"a" * (1 << 17) + b"\tO\n"],
}


@pytest.mark.parametrize("reason, line", [(reason, line) for reason in BAD for line in BAD[reason]])
def test_a_bad_line_is_named_or_costs_its_sentence(tmp_path, reason, line):
    path = tmp_path / "a.conll"
    path.write_bytes(b"one\tO\n\ntwo\tO\n" + line + b"three\tO\n\nfour\tB-PER\n")
    with pytest.raises(ConllError, match="a.conll:4: found .*, wanted "):
        list(read_conll(path))
    counts = Counter()
    assert [one.words for one in read_conll(path, lenient=True, counts=counts)] == [("one",), ("four",)]
    assert counts == {reason: 1}


def test_a_file_that_is_none_or_cut_short_is_an_error(tmp_path):
    (tmp_path / "empty").write_text("\n\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"Ada\tO\n" * 999)[:-20])
    for name, said in (("empty", "found no sentence"), ("cut.gz", "ends early"), ("none", "found no readable file")):
        with pytest.raises(ConllError, match=said):
            list(read_conll(tmp_path / name))


def test_units_hold_every_word_and_the_place_of_its_first_piece(tokenizer):
    sentences = [["Ada", "unbelievabilities", "\u200b", "of", "U.S.", "1969"], ["Bo"]]
    units = TagUnits(sentences, tokenizer, max_tokens=128)
    assert len(units) == 2 and units.counts["words without wordpieces"] == 1
    unit = units[0]
    for word, first in zip(sentences[0], unit.first_W.tolist(), strict=True):
        if first == NOWHERE:
            assert word == "\u200b"
            continue
        pieces = tokenizer.encode(word).id_T
        np.testing.assert_array_equal(unit.token_T[first : first + len(pieces)], pieces)
    assert units.length_N.tolist() == [len(unit.token_T) + 2, 3]


@given(st.lists(st.sampled_from(["a", "unbelievabilities", "U.S.A.", "\u200b", "1,000,000"]), max_size=30))
def test_a_long_sentence_is_cut_between_words_and_nothing_is_lost(sentence):
    tokenizer = EMBEDDED
    units = TagUnits([sentence], tokenizer, max_tokens=10, labels=[list(range(len(sentence)))])
    parts = [units[number] for number in range(len(units))]
    assert [label for part in parts for label in part.label_W.tolist()] == list(range(len(sentence)))
    assert all(len(part.token_T) <= 8 for part in parts)
    assert [part.word for part in parts] == np.cumsum([0, *(len(part.label_W) for part in parts)])[:-1].tolist()


def test_held_out_sentences_are_the_last_of_each_file(tmp_path, tokenizer):
    paths = []
    for name in "ab":
        paths.append(tmp_path / name)
        paths[-1].write_text("".join(f"{name}{n}\tB-X\n\n" for n in range(10)))
    kept, heldout, both = (
        [one.words[0] for path in paths for one in chosen_sentences(path, 0.2, which)] for which in (False, True, None)
    )
    assert heldout == ["a8", "a9", "b8", "b9"] and sorted(kept + heldout) == sorted(both)
    units = TagUnits.read(paths, tokenizer, ("X",), max_tokens=16, holdout=0.2, heldout=True)
    assert len(units) == 4 and units.name(0) == f"{paths[0]}:17"
    assert label_names(("X",))[units[0].label_W[0]] == "B-X"
    with pytest.raises(ConllError, match=r"a:1: found an entity of \['X'\], wanted one of \['Y'\]"):
        TagUnits.read(paths, tokenizer, ("Y",), max_tokens=16)
