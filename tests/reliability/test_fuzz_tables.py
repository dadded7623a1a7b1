"""Damaged tables give valid rows, or a `LatteMixError`."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from lattemix.bulk.readers import PAIRS, START, TEXTS, RowFormat, Table, columns_named
from model_store import LatteMixError
from tests.reliability.damage import Edit, as_bytes, byte_edits, damage, json_values

FORMATS = [PAIRS, TEXTS, columns_named(["a"], ["b"]), columns_named(["sentence"], ["n", "text"])]
ROWS = [("ein Bär", 'he said "no", twice'), ("x\u2028y", "line one\nline two"), ("", "👩‍👧")]
CONTENTS = {
    ".csv": 'a,b\nein Bär,"he said ""no"", twice"\n\n"two\nlines",x\n,\n'.encode(),
    ".tsv": "\ufeffsentence1\tsentence2\tn\nein Bär\tx\u2028y\t3\na\tb\t4\n".encode(),
    ".jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode() + b'{"text": "c", "n": 1}\n',
    ".txt": "ein Bär\n\n\tzwei\r\n".encode(),
}
formats = st.sampled_from(FORMATS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def check(path: Path, row_format: RowFormat) -> None:
    """Every row up to the end or an error is valid, and can be the first one read."""
    rows, starts = [], [START]
    with suppress(LatteMixError):
        table = Table(path, row_format)
        for row in table:
            rows.append(row)
            starts.append(table.position)
    for row in rows:
        assert len(row) == row_format.width + len(row_format.kept)
        assert all(isinstance(text, str) for text in row[: row_format.width])
        assert all(value is None or isinstance(value, str) for value in row[row_format.width :])
        "".join(filter(None, row)).encode()
    for position, row in zip(starts, rows, strict=False):
        assert next(iter(Table(path, row_format, position))) == row


@pytest.mark.parametrize("kind", CONTENTS)
@given(edits=byte_edits, row_format=formats)
def test_damaged_bytes_give_valid_rows_or_an_error(
    folder: Path, kind: str, edits: list[Edit], row_format: RowFormat
) -> None:
    path = folder / f"bytes{kind}"
    path.write_bytes(damage(CONTENTS[kind], edits))
    check(path, row_format)


@given(values=st.lists(json_values, max_size=4), row_format=formats)
def test_arbitrary_json_lines_give_valid_rows_or_an_error(
    folder: Path, values: list[object], row_format: RowFormat
) -> None:
    path = folder / "values.jsonl"
    path.write_bytes(b"\n".join(map(as_bytes, values)))
    check(path, row_format)


@given(rows=st.lists(st.lists(st.text(max_size=8), min_size=2, max_size=2), max_size=4))
def test_arbitrary_texts_in_json_lines_are_read_unchanged(
    folder: Path, rows: list[list[str]]
) -> None:
    path = folder / "texts.jsonl"
    path.write_bytes(b"\n".join(map(as_bytes, rows)))
    assert list(Table(path, PAIRS)) == [tuple(row) for row in rows]


KINDS: dict[str, Callable[[], pyarrow.Array]] = {
    "text": lambda: pyarrow.array(["x", "", "é"]),
    "null": lambda: pyarrow.nulls(3),
    "some": lambda: pyarrow.array(["x", None, "y"]),
    "dictionary": lambda: pyarrow.array(["x", "y", "x"]).dictionary_encode(),
    "large": lambda: pyarrow.array(["x", "y", "z"], pyarrow.large_string()),
    "binary": lambda: pyarrow.array([b"x", b"\xff", b""]),
    "number": lambda: pyarrow.array([1.5, float("nan"), None]),
    "list": lambda: pyarrow.array([["x"], [], None]),
    "struct": lambda: pyarrow.array([{"a": "x"}, {"a": "\x00"}, None]),
    "time": lambda: pyarrow.array([2**62, 0, None], pyarrow.timestamp("ms")),
    "date": lambda: pyarrow.array([2**31 - 1, 0, None], pyarrow.date32()),
    "duration": lambda: pyarrow.array([2**62, 0, None], pyarrow.duration("s")),
    "times": lambda: pyarrow.array([[2**62], [], None], pyarrow.list_(pyarrow.timestamp("ms"))),
    "bytes": lambda: pyarrow.array([{"a": b"\xff"}, {"a": b""}, None]),
    "map": lambda: pyarrow.array(
        [[("x", 1)], [], None], pyarrow.map_(pyarrow.string(), pyarrow.int64())
    ),
}
names = st.sampled_from(["a", "b", "A", " a", "a.b", "text", "sentence", "n", "", "x"]) | st.text(
    max_size=3
)


@given(
    columns=st.lists(st.tuples(names, st.sampled_from([*KINDS])), max_size=4),
    row_format=formats,
    group=st.integers(1, 3),
)
def test_arbitrary_parquet_columns_give_valid_rows_or_an_error(
    folder: Path, columns: list[tuple[str, str]], row_format: RowFormat, group: int
) -> None:
    path = folder / "columns.parquet"
    arrays = [KINDS[kind]() for _, kind in columns]
    table = pyarrow.Table.from_arrays(arrays, names=[name for name, _ in columns])
    parquet.write_table(table, path, row_group_size=group)
    check(path, row_format)
