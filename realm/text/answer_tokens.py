"""The words of a text as answers are matched in it, with the characters that each comes from.

Tokens are DrQA's (Chen et al. 2017, arXiv 1704.00051): in NFD, a run of letters, digits and combining marks is one, any
other visible character is one of its own; then lower-cased. An answer is in a text where its tokens stand side by side,
so "US" is not in "USA". Offsets count characters of the text as it was given, whatever NFD made of them.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple


class AnswerTokens(NamedTuple):
    """token: in order; start, end: of each, the first character it comes from and the first one after it."""

    token: tuple[str, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


def answer_tokens(text: str) -> AnswerTokens:
    """The tokens of `text` with their characters."""
    plain = unicodedata.normalize("NFD", text)
    found = [match.span() for match in token_pattern().finditer(plain)]
    token = tuple(plain[start:end].lower() for start, end in found)
    if plain == text:
        return AnswerTokens(token, tuple(start for start, _ in found), tuple(end for _, end in found))
    # Character by character NFD may leave combining marks in another order than as a whole. Marks stay within their
    # run all the same, and a run is never cut into two tokens.
    origin = [place for place, one in enumerate(text) for _ in unicodedata.normalize("NFD", one)]
    return AnswerTokens(
        token, tuple(origin[start] for start, _ in found), tuple(origin[end - 1] + 1 for _, end in found)
    )


def joined(tokens: Iterable[str]) -> str:
    """Tokens with one space before, between and after; "" where there is none.

    No token holds a space, so one run of tokens lies in another exactly if its joined string is a substring.
    """
    tokens = tuple(tokens)
    return f" {' '.join(tokens)} " if tokens else ""


def token_runs(tokens: tuple[str, ...], run: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of every place where the tokens `run` stand side by side in `tokens`; none for an empty run."""
    if not run:
        return
    for first in range(len(tokens) - len(run) + 1):
        if tokens[first] == run[0] and tokens[first : first + len(run)] == run:
            yield first, first + len(run)


@cache
def token_pattern() -> re.Pattern[str]:
    """What one token is, in a text in NFD."""
    # Built from the categories themselves: `\w` has no combining marks in it, and has the underscore.
    word = _ranges(lambda category: category[0] in "LNM")
    blank = _ranges(lambda category: category[0] in "ZC")
    return re.compile(f"[{word}]+|[^{word}{blank}]")


def _ranges(keep: Callable[[str], bool]) -> str:
    """A regular-expression character class body of every code point whose Unicode category passes `keep`."""
    part, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and keep(unicodedata.category(chr(code)))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            part.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(part)
