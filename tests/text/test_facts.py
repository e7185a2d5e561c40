"""The facts corpus: every block says what the table says, splits leak nothing, and words alone do not settle it."""

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from realm.text.blocks import CorpusConfig, build_corpus
from realm.text.fact_templates import RELATIONS
from realm.text.facts import CLOZES, FILES, OBJECT, SPLITS, FactsConfig, FactsError, read_clozes, write_facts
from realm.text.geonames import GeonamesError, Place, nearest_large, places
from realm.text.masks import SalientSpan
from realm.text.units import BlockUnits, SentenceUnits

CONFIG = FactsConfig(blocks=400)


def lines(folder, name):
    with gzip.open(folder / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("facts")
    write_facts(CONFIG, folder)
    return folder


@pytest.fixture(scope="module")
def table(folder):
    files = {name: str(folder / file) for name, file in FILES.items()}
    config = CorpusConfig(
        only_retrieved=files["documents"], only_masked=files["statements"], spans=files["spans"], block_length=48
    )
    return build_corpus(config, folder / "table")


def test_the_same_settings_give_the_same_bytes_and_another_seed_others(folder, tmp_path):
    for number, (config, same) in enumerate([(CONFIG, True), (replace(CONFIG, seed=1), False)]):
        write_facts(config, tmp_path / str(number))
        equal = [
            (folder / name).read_bytes() == (tmp_path / str(number) / name).read_bytes()
            for name in (*FILES.values(), CLOZES)
        ]
        assert all(equal) if same else not any(equal)


def test_spans_are_the_objects_and_both_sides_tell_the_same_fact(folder):
    spans = {line["id"]: line["spans"] for line in lines(folder, FILES["spans"])}
    documents = {line["id"]: line for line in lines(folder, FILES["documents"])}
    statements = {line["id"]: line for line in lines(folder, FILES["statements"])}
    assert spans.keys() == documents.keys() | statements.keys()
    said = defaultdict(set)
    for number, line in documents.items():
        said[number.rpartition("-")[0]] |= {line["text"][a:b] for a, b, label in spans[number] if label == OBJECT}
    for number, line in statements.items():
        objects = {line["text"][a:b] for a, b, _ in spans[number]}
        assert len(objects) == 1 and objects <= said[number.rpartition("-")[0]]


def test_objects_are_those_of_the_place_table(tmp_path):
    write_facts(replace(CONFIG, heldout_facts=0.9, facts_per_place=9), tmp_path)
    by_id = {place.id: place for place in places()}
    checked = Counter()
    for cloze in read_clozes(tmp_path):
        place = by_id[cloze.subject]
        wanted = {
            "country": place.country,
            "state": place.state,
            "name": place.other,
            "timezone": place.timezone.split("/")[-1].replace("_", " "),
            "latitude": str(round(abs(place.latitude))),
            "longitude": str(round(abs(place.longitude))),
            "population": str(round(place.population / 1000)),
        }
        if cloze.relation in wanted:
            assert cloze.object == wanted[cloze.relation]
            checked[cloze.relation] += 1
    assert len(checked) >= 6


def test_what_is_held_out_is_never_trained_on(folder, table):
    clozes = read_clozes(folder)
    heldout = {cloze.document for cloze in clozes}
    statements = lines(folder, FILES["statements"])
    trained = {line["id"] for line in statements if not line["heldout"]}
    assert {line["id"] for line in statements} - trained == heldout
    assert {cloze.split for cloze in clozes} == set(SPLITS)
    by_split = {split: [cloze for cloze in clozes if cloze.split == split] for split in SPLITS}
    assert all(cloze.relation == "longitude" for cloze in by_split["relations"])
    assert not any(number.endswith("-longitude") for number in trained)
    places_held_out = {cloze.subject for cloze in by_split["subjects"]}
    assert not places_held_out & {number.partition("-")[0] for number in trained}
    units = SentenceUnits(table, SalientSpan(), max_tokens=64)
    masked = {table.document_id(units[i].row) for i in range(len(units))}
    assert masked <= trained and len(masked) > 0.9 * len(trained)


def test_blocks_are_retrieved_and_statements_are_masked(folder, table):
    documents = {line["id"] for line in lines(folder, FILES["documents"])}
    assert {table.document_id(row) for row in range(table.indexed)} == documents
    assert all(table.document_id(row) not in documents for row in range(table.indexed, table.rows))
    indexed = BlockUnits(table, indexed=True)
    assert len(indexed) and all(indexed[i].row < table.indexed for i in range(len(indexed)))
    # an object is supported by the block that holds its fact, although that is not masked itself
    supported = table.support_P[table.span_offset_N1[table.indexed] :]
    assert (supported > 0).mean() > 0.95


def test_a_place_has_several_blocks_and_shares_its_name(folder):
    documents = lines(folder, FILES["documents"])
    blocks = Counter(line["id"].rpartition("-")[0] for line in documents)
    assert np.mean(list(blocks.values())) > 1.5
    places_of = defaultdict(set)
    for line in documents:
        places_of[line["title"]].add(line["id"].rpartition("-")[0])
    assert sum(len(ids) > 1 for ids in places_of.values()) > 10


def test_the_two_sides_have_templates_of_their_own():
    for name, relation in RELATIONS.items():
        assert not set(relation.knowledge) & set(relation.query), name
        assert all("{x}" in text and text.count("{y}") == 1 for text in (*relation.knowledge, *relation.query)), name


def test_the_nearest_large_place_by_hand():
    def place(number, north, east, people):
        return Place(number, number, "", "", north, east, people, "", "", "")

    among = [place("a", 0, 0, 200_000), place("b", 0, 10, 300_000), place("c", 0, 1, 50), place("d", 80, 179, 100_000)]
    number, km = nearest_large([among[0], among[2], place("e", 80, -179, 5)], among)
    assert number.tolist() == [1, 0, 3]
    # a degree of the equator is 111.19 km; across the date line two degrees at 80 north are 38.6 km
    np.testing.assert_allclose(km, [1111.9, 111.19, 38.6], rtol=1e-3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("blocks", 0),
        ("blocks", 300_001),
        ("facts_per_place", 0),
        ("facts_per_block", 0),
        ("heldout_facts", 1.0),
        ("heldout_subjects", -0.1),
        ("spellings", 1.5),
        ("heldout_relations", ("founder",)),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(FactsError, match=f"{field}.*wanted"):
        FactsConfig(**{field: value})


def test_damaged_data_are_named(folder, tmp_path, monkeypatch):
    with pytest.raises(FactsError, match="clozes.jsonl.gz"):
        read_clozes(tmp_path)
    (tmp_path / CLOZES).write_bytes(gzip.compress(b'{"document": "a"}\n'))
    with pytest.raises(FactsError, match="clozes.jsonl.gz"):
        read_clozes(tmp_path)
    monkeypatch.setattr("realm.text.geonames.FOLDER", tmp_path)
    with pytest.raises(GeonamesError, match="wanted the package's data"):
        places()
