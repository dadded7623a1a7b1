"""Results, written as a stream: JSON lines, JSON, CSV, TSV, Parquet, npy."""

import csv
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.lib import format as npy_format

from model_store import LatteMixError

Format = Literal["dense", "flat", "sparse"]

# What these files can hold, what they hold unless told first; the others can hold anything.
_FORMATS: dict[str, tuple[Format, ...]] = {
    ".csv": ("flat",),
    ".tsv": ("flat",),
    ".parquet": ("flat",),
    ".npy": ("dense", "flat"),
}
_MOST_ROWS, _MOST_NUMBERS = 16_384, 4_000_000  # in a row group of Parquet


class Column(NamedTuple):
    """What a column holds: text, whole numbers, or numbers, one or an array of them."""

    kind: Literal["text", "int64", "float32"]
    shape: tuple[int, ...] = ()


TEXT, INTEGER, NUMBER = Column("text"), Column("int64"), Column("float32")

Columns = Mapping[str, Column]
Row = Mapping[str, Any]  # by column; a missing value is None, or not there
Write = Callable[[Row], object]


def check(out: Path | None, but: str = "") -> None:
    """Raise if results cannot be written to a file of this kind."""
    kinds = [kind for kind in _WRITERS if kind != but]
    if out is None:
        return
    if out.suffix.lower() not in kinds:
        raise LatteMixError(f"{out}: these results are written to {', '.join(kinds)}.")
    if not out.parent.is_dir():  # better found before the work than after
        raise LatteMixError(f"{out}: there is no directory {out.parent}.")


def format_for(out: Path | None, asked: Format | None) -> Format:
    """The format asked for, or else what suits the file; raise if that cannot hold it."""
    kind = out.suffix.lower() if out else ".jsonl"
    possible = _FORMATS.get(kind, get_args(Format))
    if asked is not None and asked not in possible:
        raise LatteMixError(f"--format {asked}: {kind} holds {' or '.join(possible)}.")
    return asked or possible[0]


@contextmanager
def writing(out: Path | None, columns: Columns) -> Iterator[Write]:
    """Take rows, and write them to a file of the kind its name says, or else to standard output.

    The file gets its name when it is complete: what is there is never half of the results.
    """
    if out is None:
        with _jsonl(sys.stdout.buffer, columns) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file, _WRITERS[out.suffix.lower()](file, columns) as write:
            yield write
        part.replace(out)
    except OSError as error:
        error.filename = error.filename or str(out)  # a full disk does not say whose
        raise
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _jsonl(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    yield lambda row: file.write(_json(row) + b"\n")


@contextmanager
def _json_list(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    before = b"[\n"

    def write(row: Row) -> None:
        nonlocal before
        file.write(before + _json(row))
        before = b",\n"

    yield write
    file.write(b"\n]\n" if before == b",\n" else b"[]\n")


def _json(row: Row) -> bytes:
    import orjson  # it writes float32 in as few digits as that has

    present = {name: value for name, value in row.items() if value is not None}
    return orjson.dumps(present, option=orjson.OPT_SERIALIZE_NUMPY)


@contextmanager
def _separated(file: IO[bytes], columns: Columns, tabs: bool = False) -> Iterator[Write]:
    """An array takes a column for each of its numbers."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # TSV has no way to write a tab or a new line: they become spaces.
    spaces = str.maketrans("\t\r\n", "   ") if tabs else {}
    dialect: dict[str, Any] = (
        {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if tabs else {}
    )
    # A terminator of "\r\n" makes Python 3.11 quote either character; the lines end in "\n".
    lines = SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines, lineterminator="\r\n", **dialect)

    def cells(name: str, value: Any) -> list[Any]:
        column = columns[name]
        if column.shape:
            empty = [""] * column.shape[0]
            return empty if value is None else [f"{number:.9g}" for number in value.tolist()]
        return [value.translate(spaces) if isinstance(value, str) else value]

    def write(row: Row) -> None:
        writer.writerow([cell for name in columns for cell in cells(name, row.get(name))])

    header = (
        [f"{name}_{i}" for i in range(column.shape[0])] if column.shape else [name]
        for name, column in columns.items()
    )
    writer.writerow([name for names in header for name in names])
    yield write
    text.detach()  # having flushed


@contextmanager
def _parquet(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    import pyarrow
    from pyarrow import parquet

    def arrow(column: Column) -> Any:
        if column.kind == "text":
            return pyarrow.string()
        number = pyarrow.from_numpy_dtype(np.dtype(column.kind))
        return pyarrow.list_(number) if column.shape else number

    schema = pyarrow.schema([(name, arrow(column)) for name, column in columns.items()])
    numbers = sum(int(np.prod(column.shape)) for column in columns.values())
    most = max(1, min(_MOST_ROWS, _MOST_NUMBERS // numbers))
    rows: list[Row] = []
    with parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema))
            rows.clear()

        def write(row: Row) -> None:
            rows.append(row)
            if len(rows) == most:
                flush()

        yield write
        if rows:
            flush()


@contextmanager
def _npy(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    """The numbers alone, in one array: [rows, columns], or [rows, *shape] if one column is arrays.

    Rows without them are NaN.
    """
    numbers = [name for name, column in columns.items() if column.kind == "float32"]
    shape = columns[numbers[0]].shape or (len(numbers),)
    count = 0

    def header() -> None:
        about = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
        npy_format.write_array_header_1_0(file, about)

    def write(row: Row) -> None:
        nonlocal count
        values = np.array([row.get(name) for name in numbers if row.get(name) is not None], "<f4")
        file.write((values if values.size else np.full(shape, np.nan, "<f4")).tobytes())
        count += 1

    header()
    yield write
    file.seek(0)
    header()  # of the same length: numpy leaves room for the number of rows to grow


_WRITERS: dict[str, Callable[[IO[bytes], Columns], AbstractContextManager[Write]]] = {
    ".csv": _separated,
    ".tsv": partial(_separated, tabs=True),
    ".json": _json_list,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".npy": _npy,
}
