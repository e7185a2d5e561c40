"""The date grammar: what is a date, what is not, and where it begins and ends."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.dates import find_dates


def found(text):
    return [text[start:end] for start, end in find_dates(text)]


# One case a line: a text with each date that must be found in ⟦brackets⟧, and nothing else found.
MARKED = """
Apollo 11 landed in ⟦July 1969⟧.
It was signed on ⟦4 July 1776⟧ in Philadelphia.
On ⟦July 4, 1776⟧, Congress met.
Born the ⟦4th of July, 1776⟧.
The ⟦4th of July⟧ is a holiday.
Built in ⟦1969⟧.
⟦1969⟧: a landing
during the ⟦1960s⟧ and the ⟦1970s⟧
the ⟦1960's⟧ and the ⟦'70s⟧
the late ⟦1990s⟧, the ⟦mid-1990s⟧
launched (⟦1969-07-20⟧) by NASA
written 1969-07-20T20:17 by a machine
from ⟦2 May 2001–3 June 2004⟧ he served
The war (⟦1914–1918⟧) ended.
The war of ⟦1914-18⟧ ended.
the ⟦2008/09⟧ season
the ⟦2016 -- 17⟧ season, ⟦2016--17⟧ and ⟦1998 – 99⟧; ⟦1998⟧ -- 12 of them, ⟦1998⟧ -- 99 km away, ⟦1910 -- 28 July 1946⟧
on ⟦21 february 2005⟧ and ⟦1 MAY 1999⟧, in february and may
the ⟦1986⟧ People Power Revolution, 1986 people in power; 2000 Km
since ⟦500 B.C⟧, the ⟦7th century B.C⟧ and ⟦79 A.D⟧ ; a B.Complex
from ⟦1914⟧ to ⟦1918⟧
between ⟦1914⟧ and ⟦1918⟧
⟦May–June 1940⟧ and ⟦12–14 May 2008⟧ and ⟦May 12–14⟧
the attacks of ⟦Sept. 11⟧.
On ⟦May 12⟧ it shook.
⟦Sunday, July 4⟧ was warm
in the ⟦summer of 1969⟧
Caesar died in ⟦44 BC⟧; Vesuvius in ⟦AD 79⟧ or ⟦79 A.D.⟧
⟦509–27 BC⟧, ⟦10,000 BC⟧ and ⟦753 BCE⟧
the ⟦19th century⟧, ⟦nineteenth-century⟧ art
the ⟦18th and 19th centuries⟧ and the ⟦2nd century BC⟧
You May go, it may be.
The May be or not be, May have been.
In ⟦March⟧, they march; they March on.
It rained until ⟦May⟧ and in ⟦June⟧.
The ⟦July⟧ heat; the July Monarchy; in ⟦July⟧ Louis fled.
April Jones, June Carter and August Wilson met.
March of the Penguins
⟦March of 1974⟧ and ⟦Dec. 1941⟧
1,969 people died, 1969 people fled.
In ⟦1969⟧ people voted; over 1000 voted.
He paid $1969, £1500 and 1969 dollars.
1969% of it, 1969.5 and 1,969.5 and 31969 and 19690
Route 1969, Flight 1812, No. 1500, page 1066, pp. 1066, § 1015
call 555-1969, +49 1969 5551234 or 1-800-1969
2000 km, 1500m, 1500 metres, 1000–1500 metres, between 1000 and 1500 km
a 1500-metre race, a 1000-year-old tree, 2000 °C, 1080 x 1920 px
1920×1080 and 1920 × 1080
in ⟦2003⟧ and 5.7% in ⟦2006⟧
more than 1000 died, at least 1200
On ⟦12 May⟧ 1200 people met, in ⟦May⟧ 12 people left.
model F-1969 is post-⟦1969⟧
⟦1812⟧, ⟦1813⟧ and ⟦1814⟧
20th Century Fox
today, last year, three years, on Monday, the 20-year war, aged 19, at 18:12
⟦20/07/1969⟧ or ⟦20.07.1969⟧; 99/99/1969 and 192.168.1.1969
“⟦1969⟧” ‘⟦1984⟧’ (⟦1492⟧) [⟦1066⟧] ⟦1945⟧'s ⟦1989⟧!
"""


@pytest.mark.parametrize("marked", [line for line in MARKED.splitlines() if line])
def test_grammar(marked):
    text = marked.replace("⟦", "").replace("⟧", "")
    wanted = [part.split("⟧")[0] for part in marked.split("⟦")[1:]]
    assert found(text) == wanted


@pytest.mark.parametrize(
    "before",
    ["", "é ", "Café über ", "e\u0301 ", "😀👩‍👩‍👧 ", "İstanbul ", "東京で ", "👍🏽", "ﬁ ", "a\nb\t", "\u200b ", "«"],
)
def test_offsets_are_characters(before):
    text = f"{before}4 July 1776, 1969."
    assert find_dates(text) == [
        (len(before), len(before) + 11),
        (len(before) + 13, len(before) + 17),
    ]


def test_empty_and_plain_text():
    assert find_dates("") == []
    assert find_dates("no date here at all") == []


def test_blanks_inside_a_date():
    assert found("on 4\u00a0July\u00a01776 and July\n1969") == ["4\u00a0July\u00a01776", "July\n1969"]


PIECES = st.sampled_from(
    "1969 2 12 31 44 July May March Sept . , - – — ' ’ $ % é 😀 of the in to and BC AD 19th first century s mid- mid "
    "people km 1,000 1914-18 1960s / : ( ) \n \u0301 a A Ω Sunday summer".split(" ")
    + [" "] * 12
)


@settings(deadline=None, max_examples=50)
@given(st.lists(PIECES, max_size=60).map("".join))
def test_dates_are_whole_words_in_order(text):
    end_before = 0
    for start, end in find_dates(text):
        assert end_before <= start < end <= len(text)
        assert text[start].isalnum() or text[start] in "'’"
        assert not (start and text[start - 1].isalnum() and text[start].isalnum())
        assert not (end < len(text) and text[end - 1].isalnum() and text[end].isalnum())
        end_before = end


@settings(deadline=None, max_examples=50)
@given(st.lists(PIECES, max_size=30).map("".join), st.lists(PIECES, max_size=30).map("".join))
def test_dates_do_not_depend_on_far_text(left, right):
    wall = " xyz" * 12 + " ; "
    shift = len(left) + len(wall)
    apart = find_dates(left) + [(start + shift, end + shift) for start, end in find_dates(right)]
    # what begins a text may be judged with the words before it, which a wall of plain words does not change
    assert find_dates(left + wall + right) == apart


@pytest.mark.parametrize("unit", ["1", "1-", "1914 ", "July ", "19th, ", " ", "1914–1918–", "1900 to 1500 peopl "])
def test_hostile_megabyte(unit):
    """Bounded parts only: a megabyte of almost-dates takes seconds at worst, where nesting would take hours."""
    text = (unit * (10**6 // len(unit) + 1))[: 10**6] + " x 4 July 1776"
    assert text[slice(*find_dates(text)[-1])] == "4 July 1776"
