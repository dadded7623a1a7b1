"""Write results row by row: JSON lines, JSON, CSV, TSV, Parquet, npy."""

import csv
import io
import json
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

# Formats of mixtures that a file type supports, the default first; other types support all.
_FORMATS: dict[str, tuple[Format, ...]] = {
    ".csv": ("flat",),
    ".tsv": ("flat",),
    ".parquet": ("flat",),
    ".npy": ("dense", "flat"),
}
_GROUP_ROWS, _GROUP_NUMBERS = 16_384, 4_000_000  # maxima of a Parquet row group


class Column(NamedTuple):
    """The type of a column: scalars, or arrays of a shape."""

    kind: Literal["text", "int64", "float32"]
    shape: tuple[int, ...] = ()


class Origin(NamedTuple):
    """The model that computed a file."""

    model: str
    fingerprint: str


TEXT, INTEGER, NUMBER = Column("text"), Column("int64"), Column("float32")

Columns = Mapping[str, Column]
Row = Mapping[str, Any]  # by column; a missing value is None or absent
Write = Callable[[Row], object]


def check_output(out: Path | None, exclude: str = "") -> None:
    """Raise `LatteMixError` if results cannot be written to this file."""
    suffixes = [suffix for suffix in _WRITERS if suffix != exclude]
    if out is None:
        return
    if out.suffix.lower() not in suffixes:
        raise LatteMixError(f"{out}: these results are written to {', '.join(suffixes)}.")
    if not out.parent.is_dir():  # better found before the work than after
        raise LatteMixError(f"{out}: there is no directory {out.parent}.")


def format_for(out: Path | None, requested: Format | None) -> Format:
    """Return the requested format of mixtures, or the file type's default; raise if unsupported."""
    suffix = out.suffix.lower() if out else ".jsonl"
    supported = _FORMATS.get(suffix, get_args(Format))
    if requested is not None and requested not in supported:
        raise LatteMixError(f"--format {requested}: {suffix} holds {' or '.join(supported)}.")
    return requested or supported[0]


@contextmanager
def open_writer(out: Path | None, columns: Columns, origin: Origin) -> Iterator[Write]:
    """Yield a function that writes a row to a file, by its suffix, or to standard output.

    The file is written under another name and renamed when complete. Every row ends with the
    columns model and fingerprint; an .npy file has a .npy.json file with both beside it.
    """
    columns = {**columns, **dict.fromkeys(origin._fields, TEXT)}
    numbers = [name for name, column in columns.items() if column == NUMBER]

    def completed(row: Row) -> Row:
        # The model computes in float32: more digits would only look like more precision.
        floats = {n: np.float32(row[n]) for n in numbers if row.get(n) is not None}
        return {**row, **floats, **origin._asdict()}

    if out is None:
        with _jsonl(sys.stdout.buffer, columns) as write:
            yield lambda row: write(completed(row))
        sys.stdout.buffer.flush()
        return
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file, _WRITERS[out.suffix.lower()](file, columns) as write:
            yield lambda row: write(completed(row))
        if out.suffix.lower() == ".npy":
            sidecar(out).unlink(missing_ok=True)  # first: it must never describe another array
            part.replace(out)
            sidecar(out).write_text(json.dumps(origin._asdict()) + "\n", encoding="utf-8")
        else:
            part.replace(out)
    except OSError as error:
        error.filename = error.filename or str(out)  # a full disk's error names no file
        raise
    finally:
        part.unlink(missing_ok=True)


def sidecar(path: Path) -> Path:
    """Path of the file that says which model computed an .npy file."""
    return path.with_name(f"{path.name}.json")


@contextmanager
def _jsonl(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    yield lambda row: file.write(_json(row) + b"\n")


@contextmanager
def _json_list(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    separator = b"[\n"

    def write(row: Row) -> None:
        nonlocal separator
        file.write(separator + _json(row))
        separator = b",\n"

    yield write
    file.write(b"\n]\n" if separator == b",\n" else b"[]\n")


def _json(row: Row) -> bytes:
    import orjson  # writes float32 with the fewest digits

    present = {name: value for name, value in row.items() if value is not None}
    return orjson.dumps(present, option=orjson.OPT_SERIALIZE_NUMPY)


@contextmanager
def _separated(file: IO[bytes], columns: Columns, tabs: bool = False) -> Iterator[Write]:
    """Write CSV, or TSV; an array becomes a column per number."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # TSV cannot represent tabs and line breaks: they become spaces.
    spaces = str.maketrans("\t\r\n", "   ") if tabs else {}
    dialect: dict[str, Any] = (
        {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None} if tabs else {}
    )
    # With the terminator "\r\n", Python 3.11 quotes both characters; lines are written with "\n".
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
    text.detach()  # flushes


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
    group_rows = max(1, min(_GROUP_ROWS, _GROUP_NUMBERS // numbers))
    rows: list[Row] = []
    with parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema))
            rows.clear()

        def write(row: Row) -> None:
            rows.append(row)
            if len(rows) == group_rows:
                flush()

        yield write
        if rows:
            flush()


@contextmanager
def _npy(file: IO[bytes], columns: Columns) -> Iterator[Write]:
    """Write the numbers as one array: [rows, columns], or [rows, *shape] of an array column.

    Rows without numbers are NaN.
    """
    numbers = [name for name, column in columns.items() if column.kind == "float32"]
    shape = columns[numbers[0]].shape or (len(numbers),)
    count = 0

    def header() -> None:
        description = {"descr": "<f4", "fortran_order": False, "shape": (count, *shape)}
        npy_format.write_array_header_1_0(file, description)

    def write(row: Row) -> None:
        nonlocal count
        values = np.array([row.get(name) for name in numbers if row.get(name) is not None], "<f4")
        file.write((values if values.size else np.full(shape, np.nan, "<f4")).tobytes())
        count += 1

    header()
    yield write
    file.seek(0)
    header()  # has the same length: numpy pads it for a growing number of rows


_WRITERS: dict[str, Callable[[IO[bytes], Columns], AbstractContextManager[Write]]] = {
    ".csv": _separated,
    ".tsv": partial(_separated, tabs=True),
    ".json": _json_list,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".npy": _npy,
}
