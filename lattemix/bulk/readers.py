"""Files of sentences or of pairs, read as a stream, row by row, from any place on."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from model_store import LatteMixError

STDIN = Path("-")

_PARQUET_ROWS = 4096  # at a time: texts may be long

Texts = tuple[Any, ...]  # of a row: strings, then what is kept beside them, strings or None


@dataclass(frozen=True)
class Shape:
    """What a row holds: texts, by the names that their columns may have."""

    what: str
    names: tuple[tuple[str, ...], ...]
    exact: bool = False  # else names may differ in case, or be missing where nothing else is there
    kept: tuple[str, ...] = ()  # columns to carry along

    @property
    def width(self) -> int:
        """Texts in a row."""
        return len(self.names[0])

    @property
    def expected(self) -> str:
        """For people."""
        return " or ".join(", ".join(names + self.kept) for names in self.names)

    def places(self, columns: Sequence[str]) -> list[int] | None:
        """Which of the columns are meant, if their names say so."""
        if not self.exact:
            columns = [name.strip().lower() for name in columns]
        for names in self.names:
            if all(columns.count(name) == 1 for name in names + self.kept):
                return [columns.index(name) for name in names + self.kept]
        return None

    def texts(self, value: Any) -> Texts | None:
        """The texts in a JSON value, if it has this shape."""
        if isinstance(value, dict):
            keys = [*value]
            value = [value[keys[place]] for place in self.places(keys) or ()]
        elif self.exact:
            return None
        elif isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or len(value) != self.width + len(self.kept):
            return None
        sound = all(isinstance(text, str) for text in value[: self.width])
        return (*value[: self.width], *map(_as_text, value[self.width :])) if sound else None


PAIRS = Shape("pairs", (("a", "b"), ("sentence1", "sentence2")))
TEXTS = Shape("sentences", (("text",), ("sentence",)))


def columns_named(names: Sequence[str], kept: Sequence[str] = ()) -> Shape:
    """Rows of just these columns: one of sentences, or two of pairs."""
    what = "sentences" if len(names) == 1 else "pairs"
    return Shape(what, (tuple(names),), exact=True, kept=tuple(kept))


def _as_text(value: object) -> str | None:
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=str)
    return None if value is None else str(value)


class Place(NamedTuple):
    """Where in a file a row begins: what comes before it."""

    rows: int = 0
    bytes: int = 0  # of text; Parquet is entered by its rows
    lines: int = 0


START = Place()


class Table:
    """The rows of a CSV, TSV, JSON lines, Parquet or text file, from a place on.

    `place` is where the next row begins. `-` is standard input: text, its columns with tabs.
    """

    def __init__(self, path: Path, shape: Shape, start: Place = START) -> None:
        self.path = path
        self.shape = shape
        self.start = self.place = start
        self._parse = self._parser()

    def __iter__(self) -> Iterator[Texts]:
        """Raise `LatteMixError`, with the file and the line, for what is no such row."""
        for texts in self._parse(self):
            self.place = self.place._replace(rows=self.place.rows + 1)
            yield texts

    def _parser(self) -> "Callable[[Table], Iterator[Texts]]":
        if self.path == STDIN:
            return _text
        parsers = _PARSERS
        if self.shape.width > 1 or self.shape.exact:  # text has no columns
            parsers = {kind: parser for kind, parser in _PARSERS.items() if kind != ".txt"}
        parser = parsers.get(self.path.suffix.lower())
        if parser is None:
            kinds = ", ".join(parsers) + ("" if self.shape.exact else ", or - for standard input")
            raise LatteMixError(f"{self.path}: {self.shape.what} are read from {kinds}.")
        return parser

    def lines(self, place: Place) -> Iterator[str]:
        """The lines of text from there on."""
        self.place = place
        if self.path == STDIN:
            yield from self._decoded(sys.stdin.buffer)
            return
        with self.path.open("rb") as file:
            file.seek(place.bytes)
            yield from self._decoded(file)

    def _decoded(self, file: Iterable[bytes]) -> Iterator[str]:
        # From bytes, so that a line that is no UTF-8 can be named.
        for line in file:
            rows, before, number = self.place
            self.place = Place(rows, before + len(line), number + 1)
            try:
                yield line.decode("utf-8" if number else "utf-8-sig")
            except UnicodeDecodeError:
                raise self.wrong("this is not UTF-8 text") from None

    def columns(self, found: Sequence[str]) -> list[int]:
        """Where the texts are, if all that is there are texts without names."""
        names = self.shape.expected
        if self.shape.exact or len(found) != self.shape.width:
            count = "one column" if self.shape.width == 1 else f"{self.shape.width} columns"
            or_else = "" if self.shape.exact else f", or {count} in all"
            there = ", ".join(found)[:200]
            raise LatteMixError(
                f"{self.path}: expected columns named {names}{or_else}; found {there}."
            )
        return [*range(self.shape.width)]

    def wrong(self, problem: str) -> LatteMixError:
        """What to say of the line that was read last."""
        name = "Standard input" if self.path == STDIN else str(self.path)
        return LatteMixError(f"{name}, line {self.place.lines:,}: {problem}.")


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """The pairs in a file."""
    return ((a, b) for a, b in Table(path, PAIRS))


def read_texts(path: Path) -> Iterator[str]:
    """The sentences in a file."""
    return (text for (text,) in Table(path, TEXTS))


def _text(table: Table) -> Iterator[Texts]:
    """One row a line, its texts separated by tabs."""
    width = table.shape.width
    for line in table.lines(table.start):
        line = line.removesuffix("\n").removesuffix("\r")
        texts = (line,) if width == 1 else tuple(line.split("\t"))
        if len(texts) != width:
            raise table.wrong(f"expected {width} columns, found {len(texts)}")
        yield texts


def _separated(table: Table, **dialect: Any) -> Iterator[Texts]:
    csv.field_size_limit(sys.maxsize)  # else 131,072 characters

    def records(place: Place) -> Iterator[list[str]]:
        return filter(None, csv.reader(table.lines(place), **dialect))  # but no empty lines

    try:
        rows = records(START)
        first = next(rows, [])
        if not first:
            return
        named = table.shape.places(first)
        places = table.columns(first) if named is None else named
        if table.start.rows:
            rows = records(table.start)
        elif named is None:  # no header: this is a row already
            rows = chain([first], rows)
        for row in rows:
            if len(row) != len(first):
                raise table.wrong(f"expected {len(first)} columns, found {len(row)}")
            yield tuple(row[place] for place in places)
    except csv.Error as error:
        raise table.wrong(str(error)) from error


def _jsonl(table: Table) -> Iterator[Texts]:
    shape = table.shape
    for line in table.lines(table.start):
        if not line.strip():
            continue
        try:
            texts = shape.texts(json.loads(line))
            "".join(filter(None, texts or ())).encode()
        except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
            raise table.wrong("this holds a lone surrogate") from None
        except (ValueError, RecursionError) as error:
            raise table.wrong(f"this is not JSON: {error}") from error
        if texts is None:
            form = "a string" if shape.width == 1 else f"a list of {shape.width} strings"
            forms = "" if shape.exact else f"{form}, or "
            strings = f"; {' and '.join(shape.names[0])} as strings" if shape.exact else ""
            raise table.wrong(f"expected {forms}an object with {shape.expected}{strings}")
        yield texts


def _parquet(table: Table) -> Iterator[Texts]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(table.path) as file:
            columns = file.schema_arrow.names
            named = table.shape.places(columns)
            names = [columns[i] for i in (table.columns(columns) if named is None else named)]
            groups, skipped = _row_groups(file.metadata, table.start.rows)
            for batch in file.iter_batches(_PARQUET_ROWS, columns=names, row_groups=groups):
                rows = batch.slice(skipped)
                skipped -= batch.num_rows - rows.num_rows
                texts = [rows[name].to_pylist() for name in names[: table.shape.width]]
                kept = [_as_texts(rows[name]) for name in table.shape.kept]
                for values in zip(*texts, *kept, strict=True):
                    _check_texts(table, names[: table.shape.width], values)
                    yield values
    # Beside its own: of wrong UTF-8, of columns with one name, of dates beyond Python's.
    except (pyarrow.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno:  # not Arrow's, who has no numbers
            raise
        reason = str(error).rstrip(".")
        raise LatteMixError(f"{table.path} cannot be read as Parquet: {reason}.") from error


def _row_groups(metadata: Any, start: int) -> tuple[list[int], int]:
    """The groups from that of a row on, and how many rows of the first come before it."""
    for group in range(metadata.num_row_groups):
        count = metadata.row_group(group).num_rows
        if start < count:
            return [*range(group, metadata.num_row_groups)], start
        start -= count
    return [], start


def _as_texts(column: Any) -> list[str | None]:
    """What is kept of a column of Parquet."""
    import pyarrow

    try:
        found: list[str | None] = column.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowNotImplementedError:  # it is nested
        found = [_as_text(value) for value in column.to_pylist()]
    return found


def _check_texts(table: Table, names: Sequence[str], values: Sequence[object]) -> None:
    for name, value in zip(names, values, strict=False):
        if not isinstance(value, str):
            what = "null" if value is None else "not text"
            row = table.place.rows + 1
            raise LatteMixError(f"{table.path}, row {row:,}: column {name} is {what}.")


_PARSERS: dict[str, Callable[[Table], Iterator[Texts]]] = {
    ".csv": partial(_separated, delimiter=",", strict=True),
    # In the files that people have, quotes in TSV are text.
    ".tsv": partial(_separated, delimiter="\t", quoting=csv.QUOTE_NONE),
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".txt": _text,
}
