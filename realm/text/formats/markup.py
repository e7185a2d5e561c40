"""The first, linear pass over wikitext: takes away what holds no running text, and leaves paragraphs, one a line.

Every rule goes over the page once. That matters more than it seems: a page of a few hundred kilobytes of unclosed tags
keeps a general parser busy for hours, and a dump has pages that vandals made.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

# Templates whose words are part of the sentence: the number of the parameter that is shown, or a form for several.
KEPT_TEMPLATES: dict[str, int | str] = {
    **dict.fromkeys(("lang", "transl", "transliteration", "tooltip"), -1),
    **dict.fromkeys(("nowrap", "nobr", "nobold", "small", "smaller", "big", "abbr", "ill", "interlanguage link"), 0),
    **dict.fromkeys(("quote", "blockquote", "cquote", "quotation", "sup", "sub", "em", "strong", "math", "mvar"), 0),
    **dict.fromkeys(("convert", "cvt"), "{0} {1}"),
    **dict.fromkeys(("ndash", "endash", "snd", "spnd", "spaced ndash", "mdash", "emdash", "spaced en dash"), " – "),
    **dict.fromkeys(("circa", "c.", "ca."), "c. {0}"),
    **dict.fromkeys(("frac", "fraction", "sfrac"), "{0}/{1}"),
    **dict.fromkeys(("nbsp", "space", "spaces", "·", "dot", "middot"), " "),
    **dict.fromkeys(("'", "`"), "'"),
    "'s": "'s",
    "as of": "As of {0}",
    "us$": "US${0}",
    "inr": "₹{0}",
    "currency": "{0}",
    "formatnum": "{0}",
}
BACK_MATTER = {
    *("references", "external links", "see also", "further reading", "notes", "footnotes", "bibliography", "sources"),
    *("notes and references", "references and notes", "citations", "works cited", "gallery", "external sources"),
}
# Elements whose content is no running text.
DROPPED = {
    *("ref", "references", "math", "gallery", "timeline", "score", "syntaxhighlight", "source", "imagemap", "graph"),
    *(
        "hiero",
        "chem",
        "ce",
        "mapframe",
        "maplink",
        "table",
        "style",
        "script",
        "templatedata",
        "noinclude",
        "del",
        "s",
    ),
    *("strike", "inputbox", "categorytree", "section", "templatestyles", "indicator"),
}
BREAKING = {
    "p",
    "div",
    "blockquote",
    "center",
    "li",
    "ul",
    "ol",
    "dl",
    "dt",
    "dd",
    "hr",
    "poem",
    "h2",
    "h3",
    "h4",
    "pre",
}
TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:[\s/\"'][^<>]*)?)>")
LITERAL = re.compile(r"<(/?)(nowiki|pre)\b[^<>]*?(/?)>", re.IGNORECASE)
MARKUP = str.maketrans({mark: f"&#{ord(mark)};" for mark in "[]{}'<>=*#:;|&_"})
HIDDEN = re.compile(r"display\s*:\s*none")
TABLE_OPEN, TABLE_CLOSE = re.compile(r"[\s:*#]*\{\|"), re.compile(r"^\s*\|\}(?!\})")
PAIR = re.compile(r"\{\{|\}\}|\[\[|\]\]")
NAME = re.compile(r"\{\{\s*([^|{}\n]*)")
SWITCH = re.compile(r"__[A-Z]{3,}__")
STYLE = re.compile(r"'{2,}")
LIST_MARK = re.compile(r"^[*#:;]+\s*")
RULE = re.compile(r"^-{4,}")


def flatten(source: str) -> Iterator[str]:
    """The lines of a page that hold running text: links, one-line templates and entities still in them."""
    text = _without_comments(source.replace("\r\n", "\n").replace("\r", "\n"))
    text = _without_tags(_literal(text))
    text = "\n".join(_without_tables(text.split("\n")))
    text = SWITCH.sub("", _without_blocks(text))
    level = 0
    for line in _paragraphs(text):
        if depth := _heading(line):
            if not level or depth <= level:
                level = depth if line.strip("='[]: \t").lower() in BACK_MATTER else 0
            yield ""
        elif not level:
            yield STYLE.sub("", LIST_MARK.sub("", RULE.sub("", line.lstrip())))


def _heading(line: str) -> int:
    """The level of a heading, == like this ==; 0 for any other line."""
    line = line.rstrip()
    inner = line.strip("=")
    return min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")), 6) if inner.strip() else 0


def _without_comments(text: str) -> str:
    """An unclosed comment takes the rest, as MediaWiki has it."""
    pieces, end = [], 0
    while (start := text.find("<!--", end)) >= 0:
        pieces.append(text[end:start])
        close = text.find("-->", start)
        if close < 0:
            return "".join(pieces)
        end = close + 3
    return "".join((*pieces, text[end:]))


def _literal(text: str) -> str:
    """The insides of nowiki and pre as entities, so that no later rule takes them for markup."""
    pieces, end, opened = [], 0, None
    for tag in LITERAL.finditer(text):
        closing, name, single = tag.groups()
        if opened is None:
            pieces.append(text[end : tag.start()])
            opened = None if closing or single else name.lower()
            end = tag.end()
        elif closing and name.lower() == opened:
            pieces.append(html.unescape(text[end : tag.start()]).translate(MARKUP))
            opened, end = None, tag.end()
    return "".join((*pieces, text[end:]))


def _without_tags(text: str) -> str:
    """Text with no tags, dropped elements gone with all they hold. An element never closed is only its tag."""
    tags = [tag for tag in TAG.finditer(text)]
    last_close = {tag[2].lower(): n for n, tag in enumerate(tags) if tag[1]}
    pieces, end, inside = [], 0, None
    for n, tag in enumerate(tags):
        closing, name, attributes = tag[1], tag[2].lower(), tag[3]
        if inside is not None:
            if closing and name == inside:
                inside, end = None, tag.end()
            continue
        pieces.append(text[end : tag.start()])
        end = tag.end()
        drop = name in DROPPED or (HIDDEN.search(attributes) is not None)
        if drop and not closing and not attributes.endswith("/") and last_close.get(name, -1) > n:
            inside = name
        elif name in BREAKING:
            pieces.append("\n")
        elif name == "br":
            pieces.append(" ")
    return "".join((*pieces, text[end:]))


def _without_tables(lines: list[str]) -> Iterator[str]:
    """Lines outside {| ... |}; a table never closed ends at the next heading."""
    depth = 0
    for line in lines:
        if TABLE_OPEN.match(line):
            depth += 1
        elif depth and TABLE_CLOSE.match(line):
            depth -= 1
            if not depth:
                yield TABLE_CLOSE.sub("", line)
        elif depth and _heading(line):
            depth = 0
            yield line
        elif not depth:
            yield line


def pairs(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of the outermost {{...}} and [[...]]; what has no partner is passed over."""
    open_at: list[tuple[str, int]] = []
    waiting = {"{{": 0, "[[": 0}
    found: list[tuple[int, int]] = []
    for sign in PAIR.finditer(text):
        mark = sign[0]
        if mark in waiting:
            open_at.append((mark, sign.start()))
            waiting[mark] += 1
            continue
        partner = "{{" if mark == "}}" else "[["
        if not waiting[partner]:
            continue
        while True:
            opened, start = open_at.pop()
            waiting[opened] -= 1
            if opened == partner:
                break
        while found and found[-1][0] >= start:
            found.pop()
        found.append((start, sign.end()))
    yield from found


def _without_blocks(text: str) -> str:
    """Text without templates of several lines (infoboxes, navigation), but for those that hold running text."""
    pieces, end = [], 0
    for start, stop in pairs(text):
        if not text.startswith("{{", start) or "\n" not in text[start:stop]:
            continue
        name = NAME.match(text, start)[1].strip().lower()
        pieces.append(text[end:start])
        if name in KEPT_TEMPLATES:
            pieces.append(text[start:stop].replace("\n", " "))
        end = stop
    return "".join((*pieces, text[end:]))


def _paragraphs(text: str) -> Iterator[str]:
    """The lines of a text; a link or template over several of them makes one."""
    line_start = 0
    found = pairs(text)
    pair = next(found, None)
    start = 0
    while (end := text.find("\n", line_start)) >= 0:
        while pair is not None and pair[1] <= end:
            pair = next(found, None)
        line_start = end + 1
        if pair is not None and pair[0] < end:
            continue
        yield text[start:end].replace("\n", " ")
        start = line_start
    yield text[start:].replace("\n", " ")
