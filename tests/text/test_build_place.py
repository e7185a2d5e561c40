"""Placing many spans at once against a plain reference that takes them one by one."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.build_encode import WordEncoder
from realm.text.build_place import DATE, Spans, place
from realm.text.tokenizer import Tokenizer
from tests.text.text_tables import lay_sentences

BERT = Tokenizer.load(None)
ENCODE = WordEncoder(BERT)
LABELS = [DATE, "ORG", "PERSON"]


def one_by_one(text, sentences, spans, max_tokens):
    """The usable spans of one text (label, start, end) and the reasons of the rest, by the definition."""
    encoding, skips, usable = BERT.encode(text), Counter(), []
    for start, end, label, finder in spans:
        if not 0 <= start < end <= len(text):
            skips["outside the text"] += 1
            continue
        if not text[start:end].strip():
            skips["only blanks"] += 1
            continue
        while text[start].isspace():
            start += 1
        while text[end - 1].isspace():
            end -= 1
        inside = [row for row in sentences if row[2] <= start and end <= row[3]]
        if not inside:
            skips["crosses a sentence"] += 1
            continue
        low, high = inside[0][:2]
        pieces = [t for t in range(low, high) if encoding.end_T[t] > start and encoding.start_T[t] < end]
        words = {int(encoding.word_T[t]) for t in pieces}
        if not pieces:
            skips["no wordpieces"] += 1
        elif (
            encoding.start_T[pieces[0]] < start
            or encoding.end_T[pieces[-1]] > end
            or any(t not in pieces for t in range(len(encoding.id_T)) if int(encoding.word_T[t]) in words)
        ):
            skips["cuts a word"] += 1
        elif len(pieces) > max_tokens:
            skips[f"longer than {max_tokens} wordpieces"] += 1
        elif all(encoding.id_T[t] == BERT.unk for t in pieces):
            skips["only unknown wordpieces"] += 1
        else:
            usable.append((start - end, start, finder, label, end, pieces))
    taken = []
    for size, start, finder, label, end, pieces in sorted(usable):
        rivals = [other for other in taken if set(other[5]) & set(pieces)]
        if not rivals:
            taken.append((size, start, finder, label, end, pieces))
        else:
            skips["overlaps a longer span"] += 1
    return sorted((start, end, label) for _, start, _, label, end, _ in taken), skips


WORD = st.sampled_from(
    ["Ada", "Smith", "O'Hara", "1969", "Fermatesque", "😀", "Rene\u0301", "it.", "Then", " ", "U.S.", "in"]
)
SPAN = st.tuples(st.integers(-1, 60), st.integers(0, 14), st.sampled_from(LABELS), st.booleans())


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.lists(WORD, max_size=9).map(" ".join), st.lists(SPAN, max_size=9)), min_size=1, max_size=4)
)
def test_many_at_once_are_each_by_itself(documents):
    encoded = ENCODE([text for text, _ in documents])
    sentence_D1, rows, sentences, wanted, skips, wanted_skips = [0], [], [], [], Counter(), Counter()
    for d, (text, spans) in enumerate(documents):
        sentence_S4 = lay_sentences(text, BERT.encode(text), room=12, language="en", counts=Counter())
        token, character = int(encoded.token_D1[d]), int(encoded.character_D1[d])
        sentences.append(sentence_S4 + np.array([token, token, character, character]))
        sentence_D1.append(sentence_D1[-1] + len(sentence_S4))
        spans = [(a, a + n, label, finder) for a, n, label, finder in spans]
        rows += [(d, a, b, LABELS.index(label), finder) for a, b, label, finder in spans]
        found, reasons = one_by_one(text, sentence_S4.tolist(), spans, 3)
        wanted += [(d, *one) for one in found]
        wanted_skips += reasons
    table = np.array(rows, np.int64).reshape(-1, 5)
    placed_P6 = place(
        encoded,
        np.concatenate(sentences),
        np.array(sentence_D1),
        Spans(*table.T[:4], table[:, 4].astype(bool)),
        LABELS,
        max_tokens=3,
        unk=BERT.unk,
        skips=skips,
    )
    found = []
    for sentence, _, _, start, end, label in placed_P6.tolist():
        d = int(np.searchsorted(encoded.character_D1, start, side="right")) - 1
        assert sentence_D1[d] <= sentence < sentence_D1[d + 1]
        begin = int(encoded.character_D1[d])
        found.append((d, start - begin, end - begin, LABELS[label]))
    assert found == wanted and skips == wanted_skips
