"""Read files of sentences or pairs, row by row, from any position."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from model_store import LatteMixError

STDIN = Path("-")

PARQUET_ROWS = 4096  # per read: texts may be long

DIALECTS: dict[str, dict[str, Any]] = {
    ".csv": {"delimiter": ",", "strict": True},
    # Most TSV files do not quote: quotes are text.
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}

Values = tuple[Any, ...]  # of a row: texts, then the values of kept columns, strings or None


@dataclass(frozen=True)
class RowFormat:
    """The columns of a row: one or two of text, and others to keep."""

    content: str  # in error messages: "pairs" or "sentences"
    names: tuple[tuple[str, ...], ...]  # alternative names of the text columns
    exact: bool = False  # else names ignore case, and a file without other columns needs none
    kept: tuple[str, ...] = ()

    @property
    def needs_header(self) -> bool:
        """Whether the columns must be named."""
        return self.exact or bool(self.kept)

    @property
    def width(self) -> int:
        """Number of text columns."""
        return len(self.names[0])

    @property
    def expected(self) -> str:
        """The column names, for error messages."""
        return " or ".join(", ".join(names + self.kept) for names in self.names)

    def indices(self, header: Sequence[str]) -> list[int] | None:
        """Indices of the columns in a header; None if it does not name them."""
        kept = self.kept
        if not self.exact:
            header = [name.strip().lower() for name in header]
            kept = tuple(name.lower() for name in kept)
        for names in self.names:
            if all(header.count(name) == 1 for name in names + kept):
                return [header.index(name) for name in names + kept]
        return None

    def from_json(self, value: Any) -> Values | None:
        """Return the row that a JSON value holds; None if it holds no such row."""
        if isinstance(value, dict):
            keys = [*value]
            value = [value[keys[index]] for index in self.indices(keys) or ()]
        elif self.exact:
            return None
        elif isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or len(value) != self.width + len(self.kept):
            return None
        if not all(isinstance(text, str) for text in value[: self.width]):
            return None
        return (*value[: self.width], *map(_as_text, value[self.width :]))


PAIRS = RowFormat("pairs", (("a", "b"), ("sentence1", "sentence2")))
TEXTS = RowFormat("sentences", (("text",), ("sentence",)))


def columns_named(names: Sequence[str], kept: Sequence[str] = ()) -> RowFormat:
    """Return the format of rows with exactly these columns: one of sentences, or two of pairs."""
    content = "sentences" if len(names) == 1 else "pairs"
    return RowFormat(content, (tuple(names),), exact=True, kept=tuple(kept))


def _as_text(value: object) -> str | None:
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=str)
    return None if value is None else str(value)


class Position(NamedTuple):
    """Where a row begins: the number of rows, bytes and lines before it."""

    rows: int = 0
    bytes: int = 0  # text files only: Parquet is read by row number
    lines: int = 0


START = Position()


class Table:
    """The rows of a CSV, TSV, JSON lines, Parquet or text file, from a position on.

    `position` is where the next row begins, and `header` where the first one does, once it has been
    read. `-` is standard input: text, columns separated by tabs.
    """

    def __init__(self, path: Path, row_format: RowFormat, start: Position = START) -> None:
        self.path = path
        self.format = row_format
        self.start = self.position = start
        self.header = START
        self._parse = self._parser()

    def __iter__(self) -> Iterator[Values]:
        """Yield rows; raise `LatteMixError`, naming file and line, for an invalid one."""
        for values in self._parse(self):
            self.position = self.position._replace(rows=self.position.rows + 1)
            yield values

    def _parser(self) -> "Callable[[Table], Iterator[Values]]":
        if self.path == STDIN:
            return _text
        parsers = _PARSERS
        if self.format.width > 1 or self.format.needs_header:  # text has no columns
            parsers = {suffix: parser for suffix, parser in _PARSERS.items() if suffix != ".txt"}
        parser = parsers.get(self.path.suffix.lower())
        if parser is None:
            kinds = ", ".join(parsers)
            kinds += "" if self.format.needs_header else ", or - for standard input"
            if self.path.suffix.lower() == ".txt":
                kinds += "; text has no columns"
            raise LatteMixError(f"{self.path}: {self.format.content} are read from {kinds}.")
        return parser

    def lines(self, position: Position) -> Iterator[str]:
        """Yield lines of text from a position on."""
        self.position = position
        if self.path == STDIN:
            yield from self._decoded(sys.stdin.buffer)
            return
        with self.path.open("rb") as file:
            file.seek(position.bytes)
            yield from self._decoded(file)

    def _decoded(self, file: Iterable[bytes]) -> Iterator[str]:
        # Decoded line by line, so that the error can name the line.
        for line in file:
            rows, offset, number = self.position
            self.position = Position(rows, offset + len(line), number + 1)
            try:
                yield line.decode("utf-8" if number else "utf-8-sig")
            except UnicodeDecodeError:
                raise self.error("this is not UTF-8 text") from None

    def unnamed_columns(self, header: Sequence[str]) -> list[int]:
        """Indices of the text columns in a file that has no others; raise if it does."""
        width = self.format.width
        if self.format.needs_header or len(header) != width:
            count = "one column" if width == 1 else f"{width} columns"
            alternative = "" if self.format.needs_header else f", or {count} in all"
            raise LatteMixError(
                f"{self.path}: expected columns named {self.format.expected}{alternative}; "
                f"found {', '.join(header)[:200]}."
            )
        return [*range(width)]

    def error(self, problem: str) -> LatteMixError:
        """Return an error about the line read last."""
        name = "Standard input" if self.path == STDIN else str(self.path)
        return LatteMixError(f"{name}, line {self.position.lines:,}: {problem}.")


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a file."""
    return ((a, b) for a, b in Table(path, PAIRS))


def read_texts(path: Path) -> Iterator[str]:
    """Yield the sentences of a file."""
    return (text for (text,) in Table(path, TEXTS))


def _text(table: Table) -> Iterator[Values]:
    """One row per line, its texts separated by tabs."""
    width = table.format.width
    for line in table.lines(table.start):
        line = line.removesuffix("\n").removesuffix("\r")
        texts = (line,) if width == 1 else tuple(line.split("\t"))
        if len(texts) != width:
            raise table.error(f"expected {width} columns, found {len(texts)}")
        yield texts


def _separated(table: Table, **dialect: Any) -> Iterator[Values]:
    csv.field_size_limit(sys.maxsize)  # else 131,072 characters

    def records(position: Position) -> Iterator[list[str]]:
        return filter(None, csv.reader(table.lines(position), **dialect))  # skips empty lines

    try:
        rows = records(START)
        first = next(rows, [])
        if not first:
            return
        named = table.format.indices(first)
        indices = table.unnamed_columns(first) if named is None else named
        table.header = START if named is None else table.position
        if table.start.rows:
            rows = records(table.start)
        elif named is None:  # the first line is a row, not a header
            rows = chain([first], rows)
        for row in rows:
            if len(row) != len(first):
                raise table.error(f"expected {len(first)} columns, found {len(row)}")
            yield tuple(row[index] for index in indices)
    except csv.Error as error:
        raise table.error(str(error)) from error


def _jsonl(table: Table) -> Iterator[Values]:
    row_format = table.format
    for line in table.lines(table.start):
        if not line.strip():
            continue
        try:
            values = row_format.from_json(json.loads(line))
            "".join(filter(None, values or ())).encode()
        except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
            raise table.error("this holds a lone surrogate") from None
        except (ValueError, RecursionError) as error:
            raise table.error(f"this is not JSON: {error}") from error
        if values is None:
            raise table.error(f"expected {_json_forms(row_format)}")
        yield values


def _json_forms(row_format: RowFormat) -> str:
    """Describe the JSON values that hold a row, for error messages."""
    named = f"an object with {row_format.expected}"
    if row_format.exact:
        return f"{named}; {' and '.join(row_format.names[0])} as strings"
    width = row_format.width
    return f"{'a string' if width == 1 else f'a list of {width} strings'}, or {named}"


def _parquet(table: Table) -> Iterator[Values]:
    width = table.format.width
    with open_parquet(table.path) as file:
        header = file.schema_arrow.names
        named = table.format.indices(header)
        names = [header[i] for i in (table.unnamed_columns(header) if named is None else named)]
        groups, skipped = _row_groups(file.metadata, table.start.rows)
        for batch in file.iter_batches(PARQUET_ROWS, columns=names, row_groups=groups):
            rows = batch.slice(skipped)
            skipped -= batch.num_rows - rows.num_rows
            texts = [rows[name].to_pylist() for name in names[:width]]
            kept = [_as_texts(rows[name]) for name in table.format.kept]
            for values in zip(*texts, *kept, strict=True):
                _check_texts(table, names[:width], values)
                yield values


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; an error of pyarrow becomes a `LatteMixError` that names the file."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    # pyarrow also raises Python's errors: invalid UTF-8, duplicate columns, dates out of range.
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno:  # the system's error, not pyarrow's
            raise
        reason = str(error).rstrip(".")
        raise LatteMixError(f"{path} cannot be read as Parquet: {reason}.") from error


def _row_groups(metadata: Any, start: int) -> tuple[list[int], int]:
    """Return the row groups from row `start` on, and the number of rows of the first to skip."""
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if start < count:
            return [*range(group, metadata.num_row_groups)], start
        start -= count
    return [], start


def _as_texts(column: Any) -> list[str | None]:
    """Convert a Parquet column to strings."""
    import pyarrow

    try:
        texts: list[str | None] = column.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowNotImplementedError:  # a nested type
        texts = [_as_text(value) for value in column.to_pylist()]
    return texts


def _check_texts(table: Table, names: Sequence[str], values: Sequence[object]) -> None:
    for name, value in zip(names, values, strict=False):
        if not isinstance(value, str):
            problem = "null" if value is None else "not text"
            row = table.position.rows + 1
            raise LatteMixError(f"{table.path}, row {row:,}: column {name} is {problem}.")


_PARSERS: dict[str, Callable[[Table], Iterator[Values]]] = {
    ".csv": partial(_separated, **DIALECTS[".csv"]),
    ".tsv": partial(_separated, **DIALECTS[".tsv"]),
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".txt": _text,
}
