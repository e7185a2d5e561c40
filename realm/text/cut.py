"""Documents into blocks: whole sentences, greedily, up to a number of wordpieces (as ORQA and REALM cut Wikipedia).

A document is encoded once and its wordpieces are dealt out to sentences, then sentences to blocks. Nothing is dropped
or encoded twice: the bodies of a document's blocks, end to end, are the wordpieces of the document. A sentence that is
longer than a whole block is cut at word ends, and each part counts as a sentence of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from realm.text.build_encode import Encoded
from realm.text.sentences import sentence_spans


def lay_all(
    texts: Sequence[str], encoded: Encoded, *, room_D: np.ndarray, language: str, counts: Counter
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences of D documents, int64 [S, 4]: token start and end, character start and end, in the row `encoded` of
    all of them; and sentence_D1, where each document's sentences begin.

    room_D: wordpieces that fit into a block's body. Counts "sentences_split" (longer than that), "words_cut" (one word
    longer than that) and "sentences_without_wordpieces" (left out: only characters the tokenizer drops).
    """
    spans = [sentence_spans(text, language) for text in texts]
    number_D = np.array([len(one) for one in spans], np.int64)
    owner_S = np.repeat(np.arange(len(texts)), number_D)
    flat = [end for one in spans for pair in one for end in pair]
    char_S2 = np.array(flat, np.int64).reshape(-1, 2) + encoded.character_D1[owner_S, None]
    # A token belongs to the last sentence that begins before it, the first ones of a document to its first sentence.
    start_S = np.searchsorted(np.maximum.accumulate(encoded.start_T), char_S2[:, 0])
    start_S[(np.cumsum(number_D) - number_D)[number_D > 0]] = encoded.token_D1[:-1][number_D > 0]
    last_S = np.append(owner_S[1:] != owner_S[:-1], True)[: len(owner_S)]
    end_S = np.where(last_S, encoded.token_D1[owner_S + 1], np.append(start_S[1:], 0)[: len(owner_S)])
    some_S = start_S < end_S
    counts["sentences_without_wordpieces"] += int((~some_S).sum())
    owner_S, start_S, end_S, char_S2 = owner_S[some_S], start_S[some_S], end_S[some_S], char_S2[some_S]
    # Where the tokenizer sees one word the sentence goes on.
    new_S = np.append(True, owner_S[1:] != owner_S[:-1])[: len(owner_S)]
    new_S |= encoded.word_T[start_S] != encoded.word_T[start_S - 1]
    first = np.flatnonzero(new_S)
    last = np.append(first[1:], len(new_S))[: len(first)] - 1
    row_S4 = np.stack([start_S[first], end_S[last], char_S2[first, 0], char_S2[last, 1]], axis=1)
    owner_S = owner_S[first]
    row_S4, owner_S = _split(row_S4, owner_S, encoded, room_D, counts)
    return row_S4, np.append(0, np.cumsum(np.bincount(owner_S, minlength=len(texts))))


def _split(
    row_S4: np.ndarray, owner_S: np.ndarray, encoded: Encoded, room_D: np.ndarray, counts: Counter
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their documents, with over-long rows in parts."""
    long = np.flatnonzero(row_S4[:, 1] - row_S4[:, 0] > room_D[owner_S]).tolist()
    if not long:
        return row_S4, owner_S
    pieces, owners, done = [], [], 0
    for s in long:
        d = int(owner_S[s])
        parts = np.array(_parts(row_S4[s].tolist(), encoded, int(room_D[d]), counts), np.int64)
        pieces += [row_S4[done:s], parts]
        owners += [owner_S[done:s], np.full(len(parts), d)]
        done = s + 1
    return np.concatenate([*pieces, row_S4[done:]]), np.concatenate([*owners, owner_S[done:]])


def _parts(row: list[int], encoded: Encoded, room: int, counts: Counter) -> list[list[int]]:
    """One over-long sentence as parts of at most `room` wordpieces."""
    counts["sentences_split"] += 1
    start, end, char_start, char_end = row
    parts = []
    while end - start > room:
        cut = start + room
        while cut > start and encoded.word_T[cut] == encoded.word_T[cut - 1]:
            cut -= 1
        if cut == start:
            cut = start + room
            counts["words_cut"] += 1
        next_start = int(encoded.start_T[cut])
        part_end = max(char_start + len(encoded.text[char_start:next_start].rstrip()), int(encoded.end_T[cut - 1]))
        parts.append([start, cut, char_start, part_end])
        start, char_start = cut, next_start
    parts.append([start, end, char_start, char_end])
    return parts


def fill_blocks(length_S: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Greedy (first, end) sentence numbers of each block, from the sentences' wordpiece counts (none above `room`)."""
    blocks, first, used = [], 0, 0
    for number, length in enumerate(length_S):
        if used + length > room:
            blocks.append((first, number))
            first, used = number, 0
        used += length
    if len(length_S):
        blocks.append((first, len(length_S)))
    return blocks
