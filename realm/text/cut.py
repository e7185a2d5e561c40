"""Documents into blocks: whole sentences, greedily, up to a number of wordpieces (as ORQA and REALM cut Wikipedia).

A document is encoded once and its wordpieces are dealt out to sentences, then sentences to blocks. Nothing is dropped
or encoded twice: the bodies of a document's blocks, end to end, are the wordpieces of the document. A sentence that is
longer than a whole block is cut at word ends, and each part counts as a sentence of its own.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from realm.text.sentences import sentence_spans
from realm.text.tokenizer import Encoding


def lay_sentences(text: str, encoding: Encoding, *, room: int, language: str, counts: Counter) -> np.ndarray:
    """Sentences of a document, int32 [S, 4]: token start and end, character start and end, in the document.

    `room`: wordpieces that fit into a block's body. Counts "sentences_split" (longer than `room`), "words_cut" (one
    word longer than `room`) and "sentences_without_wordpieces" (left out: only characters the tokenizer drops).
    """
    spans = sentence_spans(text, language)
    if not spans or len(encoding.id_T) == 0:
        counts["sentences_without_wordpieces"] += len(spans)
        return np.zeros((0, 4), np.int32)
    start_T = np.maximum.accumulate(encoding.start_T)
    first = np.searchsorted(start_T, [start for start, _ in spans]).tolist()
    first[0] = 0
    rows: list[list[int]] = []
    for (char_start, char_end), start, end in zip(spans, first, [*first[1:], len(start_T)], strict=True):
        if start >= end:
            counts["sentences_without_wordpieces"] += 1
        elif rows and encoding.word_T[start] == encoding.word_T[start - 1]:
            rows[-1][1], rows[-1][3] = end, char_end  # the tokenizer sees one word where a sentence was to end
        else:
            rows.append([start, end, char_start, char_end])
    parts = []
    for row in rows:
        parts += _parts(row, text, encoding, room, counts) if row[1] - row[0] > room else [row]
    return np.array(parts, np.int32).reshape(-1, 4)


def _parts(row: list[int], text: str, encoding: Encoding, room: int, counts: Counter) -> list[list[int]]:
    """One over-long sentence as parts of at most `room` wordpieces."""
    counts["sentences_split"] += 1
    start, end, char_start, char_end = row
    parts = []
    while end - start > room:
        cut = start + room
        while cut > start and encoding.word_T[cut] == encoding.word_T[cut - 1]:
            cut -= 1
        if cut == start:
            cut = start + room
            counts["words_cut"] += 1
        next_start = int(encoding.start_T[cut])
        part_end = max(char_start + len(text[char_start:next_start].rstrip()), int(encoding.end_T[cut - 1]))
        parts.append([start, cut, char_start, part_end])
        start, char_start = cut, next_start
    parts.append([start, end, char_start, char_end])
    return parts


def fill_blocks(length_S: np.ndarray, room: int) -> list[tuple[int, int]]:
    """Greedy (first, end) sentence numbers of each block, from the sentences' wordpiece counts (none above `room`)."""
    blocks, first, used = [], 0, 0
    for number, length in enumerate(length_S.tolist()):
        if used + length > room:
            blocks.append((first, number))
            first, used = number, 0
        used += length
    if len(length_S):
        blocks.append((first, len(length_S)))
    return blocks
