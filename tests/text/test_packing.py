"""Packing all rows at once, compared with packing them one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realm.text.packing import NULL_BLOCK, PackingError, pack_blocks, pack_queries
from realm.text.tokenizer import Tokenizer
from tests.text.text_tables import small_table

LENGTH = 96
TOKENIZER = Tokenizer.load(None)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return small_table(tmp_path_factory.mktemp("packing"), block_length=LENGTH)


def one_by_one(table, row, length):
    """The layout in its simplest words."""
    t = table.tokenizer
    title = [] if row == NULL_BLOCK else table.title_T(row).tolist()[: length - 3]
    body = [] if row == NULL_BLOCK else table.token_T(row).tolist()[: length - 3 - len(title)]
    packed = [t.cls, *title, t.sep, *body, t.sep]
    return packed + [t.pad] * (length - len(packed)), len(packed), len(title) + 2


def check(table, rows, length):
    packed = pack_blocks(table, np.array(rows, np.int64), length)
    assert set(packed) == {"token_NT", "length_N", "body_N"}
    assert packed["token_NT"].shape == (len(rows), length)
    assert all(array.dtype == np.int32 for array in packed.values())
    for number, row in enumerate(rows):
        token_T, size, body = one_by_one(table, row, length)
        assert packed["token_NT"][number].tolist() == token_T
        assert (packed["length_N"][number], packed["body_N"][number]) == (size, body)
    return packed


@pytest.mark.parametrize("length", [3, 4, 5, 9, 40, LENGTH, LENGTH + 1, 200])
def test_every_block_at_many_lengths(table, length):
    packed = check(table, [*range(table.rows), NULL_BLOCK], length)
    if length >= LENGTH:
        np.testing.assert_array_equal(packed["length_N"][:-1], table.length_N)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_rows_in_any_order(table, data):
    rows = data.draw(st.lists(st.integers(NULL_BLOCK, table.rows - 1), max_size=20))
    check(table, rows, data.draw(st.integers(3, 120)))


def test_null_block_is_three_special_tokens(table):
    t = table.tokenizer
    packed = pack_blocks(table, np.array([NULL_BLOCK]), 5)
    assert packed["token_NT"].tolist() == [[t.cls, t.sep, t.sep, t.pad, t.pad]]
    assert (packed["length_N"].tolist(), packed["body_N"].tolist()) == ([3], [2])


def test_a_block_reads_as_title_and_text(table):
    packed = pack_blocks(table, np.array([0]), LENGTH)
    read = table.tokenizer.decode(packed["token_NT"][0, : packed["length_N"][0]])
    assert read.startswith("[CLS] ") and read.endswith(" [SEP]") and read.count("[SEP]") == 2
    title = table.tokenizer.decode(packed["token_NT"][0, 1 : packed["body_N"][0] - 1])
    assert title == table.tokenizer.decode(table.tokenizer.encode(table.title(0)).id_T)


def test_block_errors(table):
    for rows in ([table.rows], [0, -2]):
        with pytest.raises(IndexError, match=f"wanted -1 .null block. to {table.rows - 1}"):
            pack_blocks(table, np.array(rows), LENGTH)
    with pytest.raises(PackingError, match="length 2"):
        pack_blocks(table, np.array([0]), 2)
    with pytest.raises(PackingError, match="shape"):
        pack_blocks(table, np.array([[0]]), 9)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(1000, 2000), max_size=12), max_size=6), st.integers(2, 12))
def test_queries(queries, length):
    t = TOKENIZER
    token_BT, length_B = pack_queries([np.array(query, np.int32) for query in queries], length, t)
    assert token_BT.shape == (len(queries), length) and token_BT.dtype == length_B.dtype == np.int32
    for token_T, size, query in zip(token_BT.tolist(), length_B.tolist(), queries, strict=True):
        assert token_T[:size] == [t.cls, *query[: length - 2], t.sep]
        assert token_T[size:] == [t.pad] * (length - size)


def test_query_errors():
    with pytest.raises(PackingError, match="length 1"):
        pack_queries([], 1, TOKENIZER)
