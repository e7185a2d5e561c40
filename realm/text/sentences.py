"""Where sentences begin and end, as character offsets.

The rules are those of the `sentencex` library (abbreviations of many languages, no download). Only its cut points are
taken, and the text is cut at them here: so the sentences of a text always hold everything in it that is not blank.
A cut inside a word (between two letters or digits, or before a combining accent) is passed over.
"""

from __future__ import annotations

import re
import unicodedata

from sentencex import get_sentence_boundaries

# sentencex 1.0 counts a blank as one byte in places and breaks off at "W\u00a0.Bush". Offsets are safe: one for one.
PLAIN_BLANKS = {number: " " for number in range(0x80, 0x3001) if chr(number).isspace()}
WIDE_BLANK = re.compile(f"[{''.join(map(chr, PLAIN_BLANKS))}]")  # most texts have none and need no copy


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """(start, end) of each sentence of `text`, in order, blanks at both ends left out; [] for a blank text.

    `language` is an ISO 639 code; one that sentencex does not know gets its general rules.
    """
    cuts, last, size = [0], 0, len(text)
    plain = text if text.isascii() or not WIDE_BLANK.search(text) else text.translate(PLAIN_BLANKS)
    for boundary in get_sentence_boundaries(language, plain):
        cut = boundary["start_index"]
        if last < cut < size and (text[cut - 1] == " " and text[cut].isascii() or not _inside_word(text, cut)):
            cuts.append(cut)
            last = cut
    spans = []
    for start, end in zip(cuts, [*cuts[1:], size], strict=True):
        sentence = text[start:end].rstrip()
        if sentence:
            end = start + len(sentence)
            spans.append((end - len(sentence.lstrip()), end))
    return spans


def _inside_word(text: str, cut: int) -> bool:
    after = text[cut]
    if after.isalnum() and text[cut - 1].isalnum():
        return True
    return not after.isascii() and unicodedata.category(after)[0] == "M"
