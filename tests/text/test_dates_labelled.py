"""The date finder on sentences labelled by hand (data/README.md says how), and on text cut into tokens.

`labelled` holds 200 sentences which the finder was mended on, `unseen` 120 which it was not.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from realm.text.dates import find_dates

RECORDS = {
    name: [
        json.loads(line)
        for line in (Path(__file__).parent / "data" / f"dates-{name}.jsonl").read_text("utf-8").splitlines()
    ]
    for name in ("labelled", "unseen")
}


def measured(records):
    """(precision, recall) of whole spans; what is beyond the definition counts neither way."""
    found = right = wanted = 0
    for record in records:
        dates = {tuple(span) for span in record["dates"]}
        spans = set(find_dates(record["text"])) - {tuple(span) for span in record["beyond"]}
        found, right, wanted = found + len(spans), right + len(spans & dates), wanted + len(dates)
    return right / found, right / wanted


@pytest.mark.parametrize(
    ("name", "source", "precision", "recall"),
    [
        ("labelled", "vital", 0.97, 0.98),
        ("labelled", "qed", 0.98, 0.98),
        ("labelled", "wikigold", 0.97, 0.97),
        ("labelled", None, 0.98, 0.98),
        ("unseen", "vital", 0.98, 0.96),
        ("unseen", "qed", 0.96, 0.96),
        ("unseen", "wikigold", 0.96, 0.93),
        ("unseen", None, 0.98, 0.96),
    ],
)
def test_precision_and_recall_do_not_fall(name, source, precision, recall):
    found = measured([record for record in RECORDS[name] if source in (None, record["source"])])
    assert found[0] >= precision and found[1] >= recall, found


@pytest.mark.parametrize(
    ("name", "sources", "dates"),
    [
        ("labelled", {"vital": 120, "qed": 40, "wikigold": 40}, 213),
        ("unseen", {"vital": 60, "qed": 30, "wikigold": 30}, 126),
    ],
)
def test_the_labels_are_sound(name, sources, dates):
    records = RECORDS[name]
    assert Counter(record["source"] for record in records) == sources
    assert len({record["text"] for record in records}) == len(records)
    assert sum(len(record["dates"]) for record in records) == dates
    for record in records:
        text, end = record["text"], 0
        for left, right in record["dates"]:
            assert end <= left < right <= len(text) and text[left:right] == text[left:right].strip(), text
            assert not text[left - 1 : left].isalnum() and not text[right : right + 1].isalnum(), text
            end = right


def test_the_two_files_share_no_sentence():
    labelled, unseen = ({record["text"] for record in RECORDS[name]} for name in ("labelled", "unseen"))
    assert not labelled & unseen


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("released on May 3 , 2005 , by", ["May 3 , 2005"]),
        ("in March , 2008 .", ["March , 2008"]),
        ("from Friday , March 17 to Sunday , April 2 , 2017", ["Friday , March 17", "Sunday , April 2 , 2017"]),
        ("( July 11 , 1767 -- February 23 , 1848 )", ["July 11 , 1767 -- February 23 , 1848"]),
        ("F-94 Starfire , 1952 -- 1954 ;", ["1952 -- 1954"]),
        ("a 17th - century house", ["17th - century"]),
        ("died on 4 December AD 749", ["4 December AD 749"]),
        ("509 -- 27 BC", ["509 -- 27 BC"]),
        ("in 1950 , 1955 , 1956", ["1950", "1955", "1956"]),
        ("June 9 , 1200 people came", ["June 9"]),
        ("won 5 -- 3 and 1000 -- 1500 metres", []),
    ],
)
def test_dates_of_text_cut_into_tokens(text, dates):
    assert [text[start:end] for start, end in find_dates(text)] == dates
