"""Wikitext to running text: what a reader would read, no markup left, links as spans that hold exactly their words."""

import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.corpus import CorpusError
from realm.text.formats import BY_DESIGN, read_documents, read_with_spans, residue
from realm.text.formats.long_lines import MAX_PARAGRAPH, PART, parts
from realm.text.formats.page_kinds import is_disambiguation
from realm.text.formats.wikitext import Namespaces, clean, parsed_line, plain_line
from tests.text.formats.format_samples import SITEINFO, dump, page

# wikitext -> running text, links in brackets
CLEANED = {
    "'''Ada''' wrote ''notes''.": "Ada wrote notes.",
    "See [[Paris]] and [[Paris (Texas)|Paris]].": "See [Paris] and [Paris].",
    "Two [[planet]]s and [[bus]]es, un[[happy]]": "Two [planets] and [buses], un[happy]",
    "[[A|one]][[B|two]] [[C|three]]four5": "[one][two] [threefour]5",
    "A[[File:x.jpg|thumb|A [[link]] in a caption]]B [[Image:y.png]] [[Datei:z.png|mini]]C": "AB C",
    "T. [[Category:Things]][[Kategorie:Dinge]]\n[[de:Ding]]": "T.",
    "In [[:Category:Things]] and [[:de:Ding|German]], a [[wikt:word|word]]": "In Category:Things and German, a word",
    "Go to [[#Life|her life]] and [[User:Me|me]].": "Go to her life and me.",
    "A<ref>B [[C]]</ref> D<ref name=x />. E<ref name='y' group=\"z\">F</ref>": "A D. E",
    "A<!-- B\n[[C]] -->D <!-- open [[E]]": "AD",
    "{{Infobox\n| a = {{b|c}}\n| d = [[E]]\n}}\nText {{citation needed|date=May 2001}}here.": "Text here.",
    'T.\n{| class="x"\n|-\n| a || [[b]]\n{|\n| inner\n|}\n|}\nU.': "T.\n\nU.",
    "{|\n| never closed\n== Next ==\nText.": "Text.",
    "{{c.|1850}}, {{convert|5|km|mi}} from {{lang|fr|Paris}}{{ndash}}{{nowrap|a b}}": "c. 1850, 5 km from Paris – a b",
    "Zeus ({{IPA|x}}; {{lang-el|Ζεύς}}; a god) and Hera ({{IPA|y}}) met.": "Zeus (Ζεύς; a god) and Hera met.",
    "== Life ==\nText.\n=== Notes ===\n* gone\n==== Deep ====\ngone\n=== Kept ===\nMore.": "Text.\n\nMore.",
    "Text.\n==References==\n{{reflist}}\n[[Gone]]\n== Legacy ==\nMore.": "Text.\n\nMore.",
    "* One [[item]]\n** Two\n: three\n# four\n----\n;five": "One [item]\nTwo\nthree\nfour\n\nfive",
    ".NET, std::x, wait ..., {{x}}, and {{y}}; end, ...": ".NET, std::x, wait ..., and; end, ...",
    "AT&amp;T &mdash; 5&nbsp;km &lt;b&gt; &#233; &#xD800; &unknown;": "AT&T — 5 km <b> é \ufffd &unknown;",
    "<nowiki>[[x]] '''y''' {{z}}</nowiki>, <code>a[1]</code> H<sub>2</sub>O<br/>x": "[[x]] '''y''' {{z}}, a[1] H2O x",
    "[http://x.org The site] and [http://y.org] or http://z.org end": "The site and or end",
    "__NOTOC__\nText. __FORCETOC__": "Text.",
    '<span style="display:none">gone</span><div class="a">kept</div>\r\nnext': "kept\n\nnext",
    "A <math>x < y</math> B <gallery>\nFile:x.jpg|y\n</gallery> C <ref>never closed": "A B C never closed",
    "{{{argument|its default}}} and {{{none}}}": "its default and",
    "{{quote|Some\n[[words]] said.}}": "Some [words] said.",
    "[[Ünïcode|日本]] [[İstanbul]]'da 😀": "[日本] [İstanbul]'da 😀",
    "\ufdd0text\ufdd1": "text",
    "": "",
    "{{stub}}": "",
}


@pytest.mark.parametrize("source", CLEANED)
def test_wikitext_is_cleaned_as_a_reader_would_read_it(source):
    text, spans = clean(source, Namespaces.of({"datei"}, {"kategorie"}))
    for start, end, label in reversed(spans):
        assert label == "ANCHOR"
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    assert text == CLEANED[source]


BRACKETS = "{{ }} [[ ]] {| |} {{{ }}} ''' <ref> </ref> <!-- --> <nowiki> </nowiki> <div> | ]".split()
SNIPPETS = [*BRACKETS, "\n", "== a ==", "\n* ", "&amp;", "[http://x ", "File:", "Word", " ", "é", "İ", "😀", "."]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(SNIPPETS), max_size=40).map("".join))
def test_any_wikitext_gives_text_whose_spans_lie_in_it_apart_and_in_order(source):
    text, spans = clean(source)
    end = 0
    for start, stop, _ in spans:
        assert end <= start < stop <= len(text) and text[start:stop].strip()
        end = stop
    assert text == text.strip() and not {"\ufdd0", "\ufdd1"} & set(text)
    assert "<!--" not in text or "&" in source or "<nowiki>" in source


LINKS = [
    "[[A]]",
    "[[A|b c]]",
    "[[File:x.jpg|y]]",
    "[[de:Ding]]",
    "[[de:Ding|t]]",
    "[[:Category:x]]",
    "[[#a|b]]",
    "[[User:x]]",
]
LINKS += ["[[A|]]", "[[ | ]]", "[[|b]]", "[[]]", "[[//x y]]", "[[news:x y]]", "[[A#b|c:d]]", "[[Datei:x]]", "[[a:b:c]]"]
AROUND = [
    "word",
    "s",
    " ",
    ". ",
    "news:",
    "x:",
    "://",
    "http",
    "=",
    "-",
    "|",
    "]",
    "[",
    "<",
    ">",
    "&amp;",
    "{{x}}",
    "*",
    "'",
    "é",
]


@settings(deadline=None, max_examples=500)
@given(st.lists(st.sampled_from(LINKS + AROUND), max_size=8).map("".join))
def test_a_line_of_simple_links_needs_no_parser_and_reads_the_same(line):
    namespaces = Namespaces.of({"datei"}, {"kategorie"})
    plain = plain_line(line, namespaces)
    assert plain is None or plain == parsed_line(line, namespaces)
    if line in LINKS[:8]:
        assert plain is not None


TABLE = "\n{|\n|-\n! a\n| [[b]] || style='c' | d\n|}\n"
BLOCKS = ["\n\n", "\n== Head ==\n", "\n* item\n", "<!-- x -->", "<br />", TABLE]
WORDS = ["Some words.", " A name, ", "[[Link]]", "[[A|b c]]", "{{cite|x=[[y]]}}", "<ref>z</ref>", "'''bold'''"]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(WORDS + BLOCKS), max_size=30).map("".join))
def test_well_formed_wikitext_leaves_no_markup(source):
    assert not residue(clean(source)[0])


@pytest.mark.parametrize(
    "left, kind",
    [
        ("a {{cite", "braces"),
        ("a]] b", "brackets"),
        ("''a", "quotes"),
        ("a<ref name=b>", "tag"),
        ("<!-- a", "comment"),
        ("== A ==", "heading"),
        ("a&nbsp;b", "entity"),
        ("__TOC__", "switch"),
        ('a\n|- style="b"', "table"),
        ("File:a.jpg", "file"),
        ("a\n* b", "list mark"),
    ],
)
def test_the_check_for_residue_sees_each_kind(left, kind):
    assert residue(left)[kind] >= 1 and not residue("He said: 5 < 6; AT&T's (1990s) 'own' file.\nA = b | c * d.")


# Each of these, at this size, keeps a parser of whole pages busy for minutes, or for ever.
HOSTILE = ["{{a|b=\n", "{{a|[[b|", "{|\n", "<ref name=a>\n", "[http://x ", "\n:;*#", "( ;", " , ", "''a", "[[a]] "]
HOSTILE += ["[[a|", "<b>", "<ref>", "<!--", "'''", "{{", "\n==", "(", "\n", "&", "<nowiki>", "<a ", "{{a}} ", "a |"]


LONG = [f"{before}{run * 100_000}b" for run in (" ", "\n", "a ", ";", "=") for before in ("=a", "{{", "[[a", "(", "{|")]


@pytest.mark.parametrize("hostile", [piece * 40_000 for piece in HOSTILE] + LONG, ids=range(len(HOSTILE + LONG)))
def test_a_page_made_to_take_for_ever_does_not(hostile):
    text, _ = clean(f"Begin.\n\n{hostile}\n\nEnd.")
    assert not is_disambiguation("Name", hostile)
    assert text.startswith("Begin.")


SENTENCE = "In [[Paris|the city]] {{circa|1850}} a man&nbsp;wrote [http://x.org/a_b to her] : of * 日本語 = so. "


def test_a_long_paragraph_reads_as_its_sentences_do():
    one, lost = clean(SENTENCE)[0], []
    count = 2 * MAX_PARAGRAPH // len(SENTENCE)
    text, spans = clean(SENTENCE * count, too_long=lost.append)
    assert text == " ".join([one] * count) and not lost
    assert [text[start:end] for start, end, _ in spans] == ["the city"] * count
    assert clean("[[x]]" * MAX_PARAGRAPH)[0] == "x" * MAX_PARAGRAPH  # of simple links alone, no parser at all
    assert clean("日本語[[東京]]{{nowrap|9}}" * PART)[0] == "日本語東京9" * PART  # a script without blanks
    assert clean(f"a {{{{chart|{'1,' * MAX_PARAGRAPH}}}}} b", too_long=lost.append)[0] == "a b" and not lost


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from([*SNIPPETS, "{{circa|9}} ", "[http://x y z] "]), max_size=12).map("".join))
def test_the_parts_of_a_line_are_the_line(source):
    line = "A [[link]]. " + source.replace("\n", " ") + " [[word]] {{x}}" * 3000
    assert "".join(part for part, _ in parts(line)) == line and len(list(parts(line))) > len(line) / PART / 2


UNREADABLE = {
    "left open": "b {{c|d= " * (MAX_PARAGRAPH // 8),
    "one link": f"[[a|b {'{{c}} ' * MAX_PARAGRAPH}]] ",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_text_of_a_paragraph_that_cannot_be_parsed_is_missed_aloud(tmp_path, what):
    path, counts = tmp_path / "dump.xml", Counter()
    readable = "Some [[words]] &amp;c. " * PART
    path.write_bytes(dump(page("1", "B", f"Begin.\n\n{readable}{UNREADABLE[what]}\n\nEnd.")))
    said = r"page 2 at byte \d+ \('B'\): found \d+ characters of markup.*, wanted links and templates"
    with pytest.raises(CorpusError, match=said):
        list(read_documents(path))
    [_, document, _] = read_documents(path, lenient=True, counts=counts)
    assert document.text.startswith("Begin.") and document.text.endswith("End.")
    assert set(counts) == {"paragraph too long"} and "paragraph too long" not in BY_DESIGN
    assert document.text.count("Some words &c.") >= PART - 200  # only what cannot be parsed is missing


def test_a_dump_without_siteinfo_and_the_last_of_many_revisions(tmp_path):
    old = b"<revision><id>0</id><model>wikitext</model><text>Old.</text></revision>"
    both = page("1", "B", "New [[word]].").replace(b"<revision>", old + b"<revision>", 1)
    for header in (SITEINFO, "<mediawiki>\n"):
        (tmp_path / "dump").write_bytes(dump(both, header=header))
        found = {one.id: (one.text, spans) for one, spans in read_with_spans(tmp_path / "dump")}
        assert found["1"] == ("New word.", [(4, 8, "ANCHOR")])


def test_without_the_parser_a_dump_is_an_error_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    (tmp_path / "dump.xml").write_bytes(dump(page("1", "B", "A [[link]].")))
    with pytest.raises(CorpusError, match=r"wanted mwparserfromhell .*: pip install 'realm-pretraining\[wiki\]'"):
        list(read_documents(tmp_path / "dump.xml"))
