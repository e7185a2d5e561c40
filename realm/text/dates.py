"""Finds written dates, which REALM masks beside named entities (arXiv 2002.08909, section 3.4).

A date is a point or period on the calendar that the text itself names. One regular expression of bounded parts plus
two looks at the words before finds them in linear time; whole words always, offsets in characters. The grammar:

    a day            4 July 1776 · July 4, 1776 · 4th of July, 1776 · Sunday, July 4 · Sept. 11 · 12–14 May 2008 ·
                     21 february 2005
    in numbers       1969-07-20 · 20/07/1969 · 20.07.1969
    month and year   July 1969 · March of 1974 · Dec. 1941 · summer of 1969
    a year           1969: four digits, 1000 to 2099, that no word beside them marks as an amount or a label
    a decade         1960s · 1960's · '60s · mid-1990s: the words "the", "early" and "late" stay outside
    a century        19th century · nineteenth-century · 18th and 19th centuries · 2nd millennium BC
    an era           44 BC · AD 79 · 79 A.D. · 500 B.C · 10,000 BCE · 509–27 BC
    a range          1914–1918 · 1914-18 · 2008/09 · 2 May 2001–3 June 2004 · May–June 1940: one date
                     where a dash or slash joins the ends, two where words do ("from 1914 to 1918")
    cut into tokens  May 3 , 2005 · 1952 -- 1954 · 2016 -- 17 · 17th - century: blanks as NQ and CoNLL set them
    a month alone    July · "in May" · mid-May. April, May, June, August and March are names and words too, so they
                     count only after a word such as in, since, until, by, of; and unless "in" stands before it
                     no month counts right before a capitalised word ("July Monarchy")

Outside it on purpose: relative expressions (today, last year), durations (three years, 20-year), ages, weekdays and
seasons alone, times of day, abbreviated or lower-case months alone, decades in words (the eighties), a Century before a
capitalised word (it is a name more often: 20th Century Fox); and numbers that count or label something:
1,969 people · 1969 people · $1969 · 1969% · 1969.5 · Route 1969 · 555-1969 · 2000 km · 1000–1500 metres.
"In 1969 people voted" is a year: "in" and "since" before the number outweigh a count noun after it, never a unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_S = r"[ \t\n\u00a0]{1,2}"
_DASH = r"[-–—−]"
_JOIN = r"(?:--|[-–—−])"  # two hyphens are how typewriters and tokenised corpora write a dash between two ends
_COMMA = r" ?,"  # corpora cut into tokens (NQ, CoNLL) have a blank before it
_MONTH = (
    r"(?:January|February|March|April|May(?![ ](?:be|have|not|also)\b)|June|July|August|September|October|November"
    r"|December)\b"
)
_SHORT = rf"(?:{_MONTH}|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
_WEEKDAY = rf"(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day(?:{_COMMA})?{_S})?"
_SEASON = r"(?:[Ss]pring|[Ss]ummer|[Aa]utumn|[Ff]all|[Ww]inter)"
_ORDINAL = (
    r"(?:\d{1,2}(?:st|nd|rd|th)|(?:twenty-)?[Ff]irst|[Ss]econd|[Tt]hird|[Ff]ourth|[Ff]ifth|[Ss]ixth|[Ss]eventh|[Ee]ighth"
    r"|[Nn]inth|[Tt]enth|[Ee]leventh|[Tt]welfth|(?:[Tt]hir|[Ff]our|[Ff]if|[Ss]ix|[Ss]even|[Ee]igh|[Nn]ine)teenth"
    r"|[Tt]wentieth)"
)
_ERA = r"(?:BCE?|CE|AD|B\. ?C(?:\.(?:E\.)?|(?!\w))|A\. ?D(?:\.|(?!\w))|C\. ?E\.)"

# Nouns that make the number before them an amount. A unit always does; a count noun does unless "in" or "since"
# stands before the number.
_UNIT = (
    r"(?:k?m²?|km[²2]|[cm]m|kg|[kmg]?hz|mi|ft|ha|nm|sq|[kmg]w|[kmg]b|rpm|psi|kpa|hpa|mph|tons?|tonnes?"
    r"|(?:kilo|centi|milli)?met(?:re|er)s?|kilogram(?:me)?s?|miles?|f(?:oo|ee)t|yards?|acres?|hectares?|square|cubic"
    r"|pounds?|dollars?|euros?|cents|francs?|marks|rupees|yen|percent|per cent|volts?|watts?|degrees?|bytes?|bits?|dpi"
    r"|px|hours|hrs|minutes|seconds|days?|weeks?|months?|years?|million|billion|thousand|hundred|utc|gmt|[°º][cfk]?|%)(?!\w)"
)
_COUNT = (
    r"(?:people|persons|men|women|children|boys|girls|soldiers|troops|sailors|officers|workers|employees|students|pupils"
    r"|teachers|members|citizens|residents|inhabitants|settlers|slaves|prisoners|refugees|victims|casualties|deaths|dead"
    r"|wounded|killed|families|households|homes|houses|rooms|seats|votes|copies|units|species|genes|pages|words|languages"
    r"|horses|cattle|sheep|ships|boats|tanks|guns|aircraft|planes|cars|vehicles|villages|islands|schools|churches|shops"
    r"|stores|items|books|songs|times|points|goals|runs|others|characters|enemy|guests|spectators"
    r"|delegates|athletes|patients|civilians|personnel|police|injuries|males|females)\b"
)
_TO_NUMBER = rf"(?:(?: ?{_JOIN} ?| to | or | and )\d{{1,2}},?\d{{3}})?"
_UNIT_AHEAD = rf"(?!(?i:{_TO_NUMBER}[ \u00a0-]?{_UNIT}))"
# A count noun with a capital belongs to a name: the 1986 People Power Revolution.
_AMOUNT_AHEAD = rf"(?!{_TO_NUMBER}[ \u00a0-]{_COUNT}){_UNIT_AHEAD}"

_NUMBER = r"(?:3[01]|[12]\d|0?[1-9])"
_DAY = rf"{_NUMBER}(?:st|nd|rd|th)?(?![\w%]|[.,:]\d)"
_DIGITS = rf"(?:1\d|20)\d\d(?![\w%]|[.,:]\d|{_DASH}{_DASH}?\d{{3}}(?!\d))"
_YEAR = rf"(?:(?:(?<=\b[Ii]n )|(?<=\b[Ss]ince )){_DIGITS}{_UNIT_AHEAD}|{_DIGITS}{_AMOUNT_AHEAD})"
_THEN_YEAR = rf"(?:(?:{_COMMA})?{_S}|{_S}of{_S}|,){_YEAR}"
_ERA_YEAR = r"(?:\d{1,3},\d{3}|\d{1,4})"
_ANNO = r"(?:AD|A\. ?D\.)"
_OLD_YEAR = (
    rf"(?:{_THEN_YEAR}|{_S}{_ANNO}{_S}\d{{1,4}}|{_S}{_ERA_YEAR}{_S}{_ERA}|{_S}\d{{3}}(?=[),;\]–—]| [–—])(?!,\d))"
)
_LIST = rf"(?:, ?|{_S}(?:and|or|to){_S}| ?{_DASH} ?)(?:the{_S})?"
_CENTURIES = r"(?:centur(?:y|ies)|millenni(?:um|a)|Century(?![ -][A-Z]))\b"


def _point(year: str, month: str) -> str:
    """One calendar point; `year` and `month` are how a bare year and a month alone are written (named or not)."""
    return "|".join(
        (
            r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?!\d)",
            rf"(?:{_NUMBER}/{_NUMBER}/|{_NUMBER}\.{_NUMBER}\.|{_NUMBER}-{_NUMBER}-)(?:1\d|20)\d\d(?!\d)",
            rf"{_WEEKDAY}{_DAY}(?:/{_DAY}| ?{_DASH} ?{_DAY})?(?:{_S}of)?{_S}{_SHORT}{_OLD_YEAR}?",
            rf"{_WEEKDAY}{_SHORT}{_S}(?:the{_S})?{_DAY}(?: ?{_DASH} ?{_DAY}(?!{_S}{_SHORT}))?{_AMOUNT_AHEAD}"
            rf"(?:{_THEN_YEAR})?",
            rf"{_DAY}{_S}(?i:{_MONTH}){_S}{_YEAR}",
            rf"{_SHORT}{_THEN_YEAR}",
            rf"(?:{_ERA_YEAR} ?{_JOIN} ?)?{_ERA_YEAR}[ \u00a0-]?{_ERA}",
            rf"{_ANNO}{_S}\d{{1,4}}",
            rf"{_ORDINAL}(?:-?{_LIST}{_ORDINAL}){{0,3}}(?:{_S}| ?- ?){_CENTURIES}(?:{_S}{_ERA})?",
            r"(?:1\d|20)\d0(?:s|['’]s)",
            r"['’‘]\d0s",
            rf"{_SEASON}(?:{_S}of)?{_S}{_YEAR}",
            rf"{_SHORT} ?{_DASH} ?{_SHORT}{_THEN_YEAR}?",
            year,
            month,
        )
    )


_FIRST = _point(year=rf"(?P<year>{_YEAR})", month=rf"(?P<month>{_MONTH})")
_LAST = _point(year=_YEAR, month=_MONTH)
_DATE = re.compile(
    r"(?=[\d'’‘ADEFJMNOSTWaefnstw])"  # what a date can begin with: most characters are passed over quickly
    r"(?<![\w$£€¥₹#§+×*=/^@&])(?<!\d[-–—−.,:'’])"
    rf"(?:{_FIRST})(?:(?:{_S})?{_JOIN}(?:{_S})?(?:{_LAST})|(?<=\d{{4}})(?:[-–/]\d\d?|/{_YEAR})(?!\w)"
    rf"|(?<=\d{{4}})(?P<to> ?{_JOIN} ?\d\d)(?![\w%]|[.,:]\d| ?{_JOIN}){_AMOUNT_AHEAD}|(?<=\d0s)[-–]\d0s)?"
    rf"(?![\w%×°]|[.,:/]\d|{_DASH}\d| ?[×=+%]| [*x] )"
)

# Looked for in the few characters before a match: what makes a bare year a label or an amount, and what makes
# an ambiguous month a date.
_LOOK_BACK = 24
_NOT_A_YEAR = re.compile(
    r"(?:\b(?i:route|highway|hwy|interstate|flight|room|pages?|pp?\.|nos?\.|v\.|number|section|resolution|article"
    r"|chapter|model|version|unit|channel|suite|box|windows|office|fortune|iso|over|nearly|almost|exactly|approximately"
    r"|some|only|per|close to|as many as|up to|at (?:least|most)|(?:more|less|fewer|greater|higher|lower) than) ?"
    r"|[$£€¥₹+×*=§] ?|\bx |\d{3} |\+\d{1,3} |[A-Z\d]-)\Z"
)
_IN_MONTH = re.compile(r"\b[Ii]n (?:early |late |mid-)?\Z")
_NAMELIKE = {"March", "April", "May", "June", "August"}
_BEFORE_MONTH = re.compile(
    r"(?:\b(?i:in|since|until|till|by|of|during|from|before|after|through|between|early|late|mid|last|next|this|each"
    rf"|every|following|previous)|\b{_MONTH}(?:,|,? (?:and|or|to)))[\s-]\Z"
)


# What a date can begin with, whole words but for numbers, so that most words can be passed over by looking them up.
# Words are cut at punctuation here: of "A.D." there is only the A, of "twenty-first" the twenty.
_FRONT = re.compile(
    r"(?<!\w)(?:\d|['’‘]|(?:AD?|Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
    rf"|{_SEASON}|{_ORDINAL}|twenty)(?!\w))"
)


def may_begin(word: str) -> list[int]:
    """Where in a word, taken by itself, a date might begin. A date of a text begins at such a place or nowhere."""
    return [match.start() for match in _FRONT.finditer(word)]


def find_dates(text: str, starts: Iterable[int] | None = None) -> list[tuple[int, int]]:
    """The dates of a text, leftmost and longest first, never overlapping.

    starts: the only places to look at, ascending, for who knows them already (`may_begin` of every word); quicker, and
    the same dates. Returns: (start, end) offsets in characters of `text`, end exclusive, in order. Linear in the
    text's length.
    """
    found = []
    for match in _matches(text) if starts is None else _matches_at(text, starts):
        start, end = match.span()
        before = text[max(0, start - _LOOK_BACK) : start]
        if match["to"] is not None and match["to"][-2:] <= text[match.start("to") - 2 : match.start("to")]:
            end = match.start("to")  # "1998 -- 12" is no range of years
        if _is_date(match, before, text[end : end + 2]):
            if before[-4:].lower() == "mid-" and not before[-5:-4].isalnum():
                start -= 4
            found.append((start, end))
    return found


def _matches(text: str) -> Iterator[re.Match[str]]:
    position = 0
    while match := _DATE.search(text, position):
        yield match
        position = match.end()


def _matches_at(text: str, starts: Iterable[int]) -> Iterator[re.Match[str]]:
    position = 0
    for start in starts:
        if start >= position and (match := _DATE.match(text, start)):
            yield match
            position = match.end()


def _is_date(match: re.Match[str], before: str, after: str) -> bool:
    """Whether the words around a bare year or a month alone leave it a date; all other forms are sure."""
    if match["year"] is not None:
        return not _NOT_A_YEAR.search(before)
    if match["month"] is not None and match["month"] == match[0]:
        if _IN_MONTH.search(before):
            return True
        if after[:1] in (" ", "-") and after[1:].isupper():
            return False
        return match[0] not in _NAMELIKE or bool(_BEFORE_MONTH.search(before))
    return True
