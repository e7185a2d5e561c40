"""Parquet, streamed: a few hundred rows in memory at a time, whatever the size of the file and its row groups.

Columns are read as bytes and decoded row by row, so that one row that is not UTF-8 costs that row and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from realm.text.corpus import CorpusError, Document
from realm.text.formats.admission import Admission
from realm.text.formats.jsonl import ROW_NUMBER
from realm.text.formats.source import name_of, open_bytes
from realm.text.spans import RawSpan

FIELDS = {"id": "id", "title": "title", "text": "text"}
BATCH_ROWS = 256
BUFFER_BYTES = 1 << 20
# No value is larger than its row group: a text has to fit into memory before it can be refused.
MAX_ROW_GROUP_BYTES = 4 << 30


def read_parquet(
    path: str | Path, admit: Admission, fields: Mapping[str, str] = FIELDS
) -> Iterator[tuple[Document, list[RawSpan]]]:
    """The documents of a Parquet file. `fields` names the columns, dots lead into structs; the id "#" is file:row.

    The column of titles may be missing, that of ids only with "#". Raises CorpusError for a file that is no Parquet,
    is damaged, lacks a column or has one of another type.
    """
    import pyarrow
    from pyarrow import parquet

    row = 0
    with open_bytes(path) as stored:
        try:
            file = parquet.ParquetFile(stored, buffer_size=BUFFER_BYTES, pre_buffer=False)
            columns = _columns(path, file.schema_arrow, fields)
            _check_sizes(path, file.metadata)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns.values())):
                values = {name: _values(batch, column) for name, column in columns.items()}
                for n in range(batch.num_rows):
                    row += 1
                    document = _document(path, row, {name: cells[n] for name, cells in values.items()}, admit)
                    if document is not None:
                        yield document, []
        except (pyarrow.ArrowException, OSError, EOFError) as problem:
            found = f"damaged Parquet after row {row} ({' '.join(str(problem).split())})"
            raise CorpusError(f"{path}: found {found}, wanted a whole Parquet file") from problem


def _columns(path: str | Path, schema, fields: Mapping[str, str]) -> dict[str, str]:
    """Which of id, title and text are there and under which name."""
    import pyarrow.types as types

    columns = {}
    for name, column in fields.items():
        if name == "id" and column == ROW_NUMBER:
            continue
        kind = _type_of(schema, column)
        if kind is None:
            if name == "title":
                continue
            found = f"no column {column!r} (columns: {', '.join(schema.names)})"
            wanted = f"its name: fields={{'{name}': ...}}" + (
                f", or '{ROW_NUMBER}' for row numbers" if name == "id" else ""
            )
            raise CorpusError(f"{path}: found {found}, wanted {wanted}")
        cell = kind.value_type if types.is_dictionary(kind) else kind
        if not _holds_text(cell) and not (name == "id" and types.is_integer(cell)):
            raise CorpusError(f"{path}: found the column {column!r} of {kind}, wanted one of strings")
        columns[name] = column
    return columns


def _holds_text(kind) -> bool:
    import pyarrow.types as types

    strings = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(kind) for test in (*strings, types.is_binary, types.is_large_binary, types.is_binary_view))


def _type_of(schema, column: str) -> Any:
    """The type of a column or of a struct's member; None when it is not there."""
    import pyarrow.types as types

    root, *inner = [column] if column in schema.names else column.split(".")
    if root not in schema.names:
        return None
    kind = schema.field(root).type
    for part in inner:
        if not types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def _check_sizes(path: str | Path, metadata) -> None:
    # Of the row group as a whole: asking pyarrow about one column of a damaged file can end the process.
    for n in range(metadata.num_row_groups):
        size = metadata.row_group(n).total_byte_size
        if size > MAX_ROW_GROUP_BYTES:
            found = f"row group {n} of {size} bytes"
            raise CorpusError(f"{path}: found {found}, wanted at most {MAX_ROW_GROUP_BYTES}: write smaller row groups")


def _values(batch, column: str) -> list[Any]:
    """The cells of a column as bytes, whole numbers or None."""
    import pyarrow
    import pyarrow.compute as compute

    inner: list[str] = []
    if column not in batch.schema.names:
        column, *inner = column.split(".")
    cells = batch.column(column)
    for part in inner:
        cells = compute.struct_field(cells, part)
    if pyarrow.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if not pyarrow.types.is_integer(cells.type):
        cells = cells.cast(pyarrow.large_binary())
    return cells.to_pylist()


def _document(path: str | Path, row: int, cells: dict[str, Any], admit: Admission) -> Document | None:
    where = f"{path}: row {row}"
    for name, cell in cells.items():
        if isinstance(cell, bytes):
            try:
                cells[name] = cell.decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"the byte 0x{cell[error.start]:02x} at {error.start + 1} of the {name}, which is not UTF-8"
                return admit.reject(where, "not UTF-8", found, "UTF-8 text")
    number = cells.get("id") if "id" in cells else f"{name_of(path)}:{row}"
    return admit(where, number, cells.get("title"), cells.get("text"))
