"""Wikitext to plain text: what a reader of the page would read as running text, with its links as spans.

`markup.flatten` first takes away, in time linear in the page, what has no running text or nests without bound:
comments, references, formulas, tables, tags, many-line templates, back matter. mwparserfromhell then reads each
paragraph by itself: its time grows with the square of an input made to hurt it, so a long one goes in parts
(`long_lines`). Links stay as their text, between two noncharacters, until the last rule has moved the text about.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from realm.text.corpus import CorpusError
from realm.text.formats.long_lines import MAX_PARAGRAPH, parts
from realm.text.formats.markup import KEPT_TEMPLATES, flatten
from realm.text.spans import RawSpan

ANCHOR = "ANCHOR"
BEGIN, FINISH = "\ufdd0", "\ufdd1"
# Where a language code or another wiki's name stands before the colon: [[de:Seite]], [[wikt:word|word]].
INTERWIKI = re.compile(r"[a-z]{2,3}(-[a-z-]+)?$|(simple|wikt|wiktionary|wikipedia|commons|species|wikisource)$")
# A link without anything in it; what may stand beside such links in a line that needs no parser; and what is an address
# without slashes.
PLAIN_LINK = re.compile(r"\[\[(?!//)([^\[\]{}|&<>]+)(?:\|([^\[\]{}|&<>]*))?\]\]")
NO_MARK = re.compile(r"[^\[\]{}&<]*")
SCHEMES = ("bitcoin", "geo", "magnet", "mailto", "news", "sip", "sips", "sms", "tel", "urn", "xmpp")
# Signs that only glue has been left of a bracket whose templates went: "( ; , born 1950)".
TIDY = (
    (re.compile(r"[^\S\n]+"), " "),
    (re.compile(r"([(\[])[\s;,:–—]+"), r"\1"),
    (re.compile(r"(?<![\s;,:])[\s;,:]+([)\]])"), r"\1"),
    (re.compile(r" ?(\(\s*\)|\[\s*\])"), ""),
    (re.compile(r" +([,.;:!?](?:[\s\ufdd0\ufdd1]|$))"), r"\1"),
    (re.compile(r"[,;:] +(?=[,;:.])(?!\.\.)|,(?=,)"), ""),
    (re.compile(r" ?\n ?"), "\n"),
    (re.compile(r"^[,;:.]+ (?=[\w\ufdd0])", re.MULTILINE), ""),
    (re.compile(r"^(?:[^\w\n]|_)+$", re.MULTILINE), ""),
    (re.compile(r"\n{3,}"), "\n\n"),
)
RESIDUE = {
    "braces": re.compile(r"\{\{|\}\}|\{\||\|\}"),
    "brackets": re.compile(r"\[\[|\]\]|\[https?:"),
    "quotes": re.compile(r"''"),
    "tag": re.compile(
        r"</?(ref|br|div|span|small|sup|sub|nowiki|math|gallery|table|tr|td|center|font|big|blockquote)\b"
    ),
    "comment": re.compile(r"<!--|-->"),
    "heading": re.compile(r"^=+[^=\n]+=+\s*$", re.MULTILINE),
    "entity": re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,6});"),
    "switch": re.compile(r"__[A-Z]{3,}__"),
    "table": re.compile(
        r"^\s*\|[-+}]|\b(?:colspan|rowspan|cellpadding|bgcolor|style|class|align)\s*=\s*[\"'\w]", re.MULTILINE
    ),
    "file": re.compile(r"\b(?:File|Image|Category|Datei|Fichier):\S|\|thumb\b|\bthumb\|"),
    "list mark": re.compile(r"^[*#:;]+ ?\S", re.MULTILINE),
}


class Namespaces(NamedTuple):
    """Prefixes of links, in small letters: to files, to categories, to the wiki's other namespaces."""

    file: frozenset[str]
    category: frozenset[str]
    other: frozenset[str]

    @classmethod
    def of(cls, file: Iterable[str] = (), category: Iterable[str] = (), other: Iterable[str] = ()) -> Namespaces:
        """The wiki's own names beside the English ones, which every wiki understands."""
        english = {"user", "wikipedia", "template", "help", "portal", "talk", "special", "mediawiki", "draft", "module"}
        return cls(frozenset({"file", "image", "media", *file}), frozenset({"category", *category}), english | {*other})


def clean(
    source: str, namespaces: Namespaces | None = None, too_long: Callable[[int], Any] = lambda size: None
) -> tuple[str, list[RawSpan]]:
    """(running text, [(start, end, "ANCHOR"), ...] of its links to articles), offsets in characters of that text.

    Kept: sentences, list items, the text of links, a few templates whose words belong to the sentence (units, foreign
    words, dashes). Gone: headings, files, categories, tables, other templates, references, and sections of references
    and links. A link takes in the letters that follow it ([[planet]]s). `too_long` is told the characters of each piece
    of a long paragraph that cannot be parsed (`long_lines`).
    """
    namespaces = namespaces or Namespaces.of()
    lines = []
    for line in flatten(source.replace(BEGIN, "").replace(FINISH, "")):
        if not any(mark in line for mark in ("[", "{", "&", "://")):
            lines.append(line)
            continue
        plain = plain_line(line, namespaces)
        if plain is None:
            before = "." if len(line) > MAX_PARAGRAPH else ""  # a part does not begin a line: its ":" is a colon
            pieces = (
                parsed_line(before + part, namespaces)[len(before) :] if sound else too_long(len(part)) or ""
                for part, sound in parts(line)
            )
            plain = "".join(pieces)
        lines.append(plain)
    text = "\n".join(lines)
    for pattern, replacement in TIDY:
        text = pattern.sub(replacement, text)
    return _anchors(text.strip())


def residue(text: str) -> Counter[str]:
    """What looks like markup in a text, by kind: braces, brackets, quotes, tag, comment, heading, entity, switch,
    table, file, list mark. Empty for running text; some articles show markup on purpose, so a corpus is clean near 0.
    """
    return +Counter({kind: len(pattern.findall(text)) for kind, pattern in RESIDUE.items()})


def plain_line(line: str, namespaces: Namespaces) -> str | None:
    """`parsed_line` of a line that has simple links and no other markup, in a tenth of the time; None for any other."""
    if "://" in line or line[:1] in tuple("=-*#:;") or not NO_MARK.fullmatch(PLAIN_LINK.sub("", line)):
        return None
    if any(before.lower().endswith(SCHEMES) for before in line.split(":")[:-1]):
        return None
    return PLAIN_LINK.sub(lambda link: _linked(link[1], link[2], namespaces), line)


def parsed_line(line: str, namespaces: Namespaces) -> str:
    """The running text of a line, its links between BEGIN and FINISH."""
    return "".join(_text(parser().parse(line, skip_style_tags=True).nodes, namespaces))


def parser() -> ModuleType:
    """mwparserfromhell. Raises CorpusError, which says what to install, where it is not."""
    try:
        import mwparserfromhell
    except ImportError as problem:
        wanted = "mwparserfromhell for MediaWiki dumps: pip install 'realm-pretraining[wiki]'"
        raise CorpusError(f"found {problem}, wanted {wanted}") from problem
    return mwparserfromhell


def _text(nodes: Iterable, namespaces: Namespaces) -> Iterator[str]:
    """The pieces of running text of parsed nodes, links between BEGIN and FINISH."""
    for node in nodes:
        match type(node).__name__:
            case "Text":
                yield node.value
            case "HTMLEntity":
                yield html.unescape(str(node)).replace("\xa0", " ")
            case "Wikilink":
                yield _link(node, namespaces)
            case "ExternalLink":
                if node.brackets and node.title is not None:
                    yield from _text(node.title.nodes, namespaces)
            case "Argument":
                if node.default is not None:
                    yield from _text(node.default.nodes, namespaces)
            case "Template":
                yield from _template(node, namespaces)
            case "Tag":  # flatten has left none but what brackets of links hid from it
                if node.contents is not None:
                    yield from _text(node.contents.nodes, namespaces)


def _link(node, namespaces: Namespaces) -> str:
    said = None if node.text is None else "".join(_text(node.text.nodes, namespaces))
    return _linked(html.unescape(str(node.title)), said, namespaces)


def _linked(title: str, said: str | None, namespaces: Namespaces) -> str:
    title = title.strip()
    shown = title.removeprefix(":") if said is None else said
    prefix, colon, _ = title.partition(":")
    prefix = prefix.strip().lower()
    if colon and prefix in namespaces.file | namespaces.category:
        return ""
    if colon and not prefix:  # [[:Category:Name]] is shown as it stands
        return shown
    if colon and INTERWIKI.match(prefix) and prefix not in namespaces.other:
        return "" if said is None else shown
    if not shown.strip() or BEGIN in shown or title.startswith("#") or (colon and prefix in namespaces.other):
        return shown
    return BEGIN + shown + FINISH


def _template(node, namespaces: Namespaces) -> Iterator[str]:
    """The words of a template that stands for words; nothing for any other."""
    name = str(node.name).strip().lower().replace("_", " ")
    kind = KEPT_TEMPLATES.get("lang" if re.match(r"lang-[a-z]{2}", name) else name)
    if kind is None:
        return
    positional = [one.value for one in node.params if not one.showkey]
    said = ["".join(_text(value.nodes, namespaces)).strip() for value in positional]
    if isinstance(kind, str):
        try:
            yield kind.format(*said)
        except IndexError:  # fewer parameters than its form has places
            yield " ".join(said)
    elif said:
        yield said[kind] if -len(said) <= kind < len(said) else said[-1]


def _anchors(marked: str) -> tuple[str, list[RawSpan]]:
    """The text without its two marks, and where they were."""
    pieces, spans, end, start = [], [], 0, None
    for piece in re.split(f"([{BEGIN}{FINISH}])", marked):
        if piece == BEGIN:
            start = end
        elif piece == FINISH:
            if start is not None and start < end:
                spans.append((start, end))
            start = None
        else:
            pieces.append(piece)
            end += len(piece)
    text = "".join(pieces)
    stops = [start for start, _ in spans] + [len(text)]
    return text, [(start, _trail(text, end, stops[n + 1]), ANCHOR) for n, (start, end) in enumerate(spans)]


def _trail(text: str, end: int, stop: int) -> int:
    while end < stop and text[end - 1].isalpha() and text[end].isalpha():
        end += 1
    return end
