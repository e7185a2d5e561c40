"""Sentences of many documents at once against a plain reference that lays them one after the other."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.build_encode import WordEncoder
from realm.text.cut import fill_blocks, lay_all
from realm.text.sentences import sentence_spans
from realm.text.tokenizer import Tokenizer
from tests.text.text_tables import lay_sentences

BERT = Tokenizer.load(None)
ENCODE = WordEncoder(BERT)
WORDS = [
    "Dr. Who",
    "cat.",
    "Then!",
    "été",
    "e\u0301t\u0301.",
    "日本。",
    "😀",
    "\u200b",
    "\u200b. ",
    ".",
    "\n\n",
    "\r\n",
]
WORDS += ["(12)", "antidisestablishmentarianism", "x" * 130, "U.S.", "“Go.”", " ", "Tokyo\u3000Bay. "]
TEXT = st.lists(st.sampled_from(WORDS), max_size=20).flatmap(
    lambda some: st.sampled_from([" ", ""]).map(lambda glue: glue.join(some))
)


def one_by_one(text: str, counts: Counter) -> list[list[int]]:
    """Rows of one document that no room limits: by the definition."""
    encoding, spans, rows = BERT.encode(text), sentence_spans(text), []
    starts = [int(np.searchsorted(np.maximum.accumulate(encoding.start_T), start)) for start, _ in spans]
    starts[:1] = [0] if spans else []
    for n, (begin, end) in enumerate(spans):
        first, last = starts[n], starts[n + 1] if n + 1 < len(starts) else len(encoding.id_T)
        if first >= last:
            counts["sentences_without_wordpieces"] += 1
        elif rows and encoding.word_T[first] == encoding.word_T[first - 1]:
            rows[-1][1], rows[-1][3] = last, end
        else:
            rows.append([first, last, begin, end])
    return rows


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXT, max_size=4))
def test_many_at_once_are_each_by_itself(texts):
    encoded, counts, wanted_counts = ENCODE(texts), Counter(), Counter()
    row_S4, sentence_D1 = lay_all(texts, encoded, room_D=np.full(len(texts), 10**6), language="en", counts=counts)
    assert len(sentence_D1) == len(texts) + 1 and sentence_D1[-1] == len(row_S4)
    for d, text in enumerate(texts):
        token, character = encoded.token_D1[d], encoded.character_D1[d]
        own = row_S4[sentence_D1[d] : sentence_D1[d + 1]] - np.array([token, token, character, character])
        assert own.tolist() == one_by_one(text, wanted_counts)
    assert +counts == wanted_counts


@settings(deadline=None, max_examples=200)
@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(st.integers(1, 12), min_size=4, max_size=4))
def test_over_long_sentences_are_cut_into_parts_that_follow_each_other(texts, rooms):
    encoded, counts, alone = ENCODE(texts), Counter(), Counter()
    room_D = np.array(rooms[: len(texts)])
    row_S4, sentence_D1 = lay_all(texts, encoded, room_D=room_D, language="en", counts=counts)
    whole_S4, whole_D1 = lay_all(texts, encoded, room_D=room_D * 0 + 10**6, language="en", counts=Counter())
    for d, text in enumerate(texts):
        own, whole = row_S4[sentence_D1[d] : sentence_D1[d + 1]], whole_S4[whole_D1[d] : whole_D1[d + 1]]
        assert (own[:, 1] - own[:, 0] <= rooms[d]).all() and (own[:, 0] < own[:, 1]).all()
        assert own[1:, 0].tolist() == own[:-1, 1].tolist()  # nothing is lost between two
        assert set(whole[:, 0].tolist()) <= set(own[:, 0].tolist())
        found = lay_sentences(text, BERT.encode(text), room=rooms[d], language="en", counts=alone)
        begin = np.array([encoded.token_D1[d]] * 2 + [encoded.character_D1[d]] * 2)
        assert found.tolist() == (own - begin).tolist()
    assert +counts == +alone


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), max_size=20), st.integers(9, 20))
def test_blocks_are_filled_as_far_as_they_go(lengths, room):
    blocks = fill_blocks(lengths, room)
    assert [n for first, end in blocks for n in range(first, end)] == list(range(len(lengths)))
    used = [sum(lengths[first:end]) for first, end in blocks]
    assert all(size <= room for size in used)
    assert all(size + lengths[end] > room for size, (_, end) in zip(used[:-1], blocks[:-1], strict=True))
