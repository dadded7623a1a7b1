"""Files of sentences or of pairs, read as a stream, row by row."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_store import LatteMixError

STDIN = Path("-")


@dataclass(frozen=True)
class Shape:
    """What a row holds: texts, by the names that their columns may have."""

    what: str
    names: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        """Texts in a row."""
        return len(self.names[0])

    @property
    def expected(self) -> str:
        """For people."""
        return " or ".join(", ".join(names) for names in self.names)

    def named(self, columns: Iterable[str]) -> tuple[str, ...] | None:
        """Which of the columns are meant, if any are."""
        present = set(columns)
        return next((names for names in self.names if present.issuperset(names)), None)

    def texts(self, value: Any) -> tuple[str, ...] | None:
        """The texts in a JSON value, if it has this shape."""
        if isinstance(value, dict):
            value = [value[name] for name in self.named(value) or ()]
        elif isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or len(value) != self.width:
            return None
        return tuple(value) if all(isinstance(text, str) for text in value) else None


PAIRS = Shape("pairs", (("a", "b"), ("sentence1", "sentence2")))
TEXTS = Shape("sentences", (("text",), ("sentence",)))


def read_pairs(path: Path) -> Iterator[tuple[str, str]]:
    """The pairs in a CSV, TSV, JSON lines or Parquet file; `-` is TSV on standard input."""
    return ((a, b) for a, b in _read(path, PAIRS))


def read_texts(path: Path) -> Iterator[str]:
    """The sentences in such a file, or one a line in text; `-` is text on standard input."""
    return (text for (text,) in _read(path, TEXTS))


def _read(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    readers = {".csv": _csv, ".tsv": _tsv, ".jsonl": _jsonl, ".parquet": _parquet}
    if shape is TEXTS:
        readers[".txt"] = _text
    if path == STDIN:
        return _text(path, shape)
    if path.suffix.lower() not in readers:
        raise LatteMixError(
            f"{path}: {shape.what} are read from {', '.join(readers)}, or - for standard input."
        )
    return readers[path.suffix.lower()](path, shape)


def _lines(path: Path) -> Iterator[str]:
    # Bytes, so that a line that is no UTF-8 can be named.
    with nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise _wrong(path, number, "this is not UTF-8 text") from None


def _text(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    """One row a line, its texts separated by tabs."""
    for number, line in enumerate(_lines(path), 1):
        line = line.removesuffix("\n").removesuffix("\r")
        texts = (line,) if shape.width == 1 else tuple(line.split("\t"))
        if len(texts) != shape.width:
            raise _wrong(path, number, f"expected {shape.width} columns, found {len(texts)}")
        yield texts


def _csv(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    return _separated(path, shape, delimiter=",", strict=True)


def _tsv(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    # In the files that people have, quotes in TSV are text.
    return _separated(path, shape, delimiter="\t", quoting=csv.QUOTE_NONE)


def _separated(path: Path, shape: Shape, **dialect: Any) -> Iterator[tuple[str, ...]]:
    reader = csv.reader(_lines(path), **dialect)
    try:
        width, places = 0, [*range(shape.width)]
        for row in reader:
            if not row:  # an empty line
                continue
            if not width:
                width = len(row)
                header = [name.strip().lower() for name in row]
                names = shape.named(header)
                if names:
                    places = [header.index(name) for name in names]
                    continue
                _check_columns(path, shape, row)  # no header: this is a row already
            if len(row) != width:
                problem = f"expected {width} columns, found {len(row)}"
                raise _wrong(path, reader.line_num, problem)
            yield tuple(row[place] for place in places)
    except csv.Error as error:
        raise _wrong(path, reader.line_num, str(error)) from error


def _jsonl(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            texts = shape.texts(json.loads(line))
            "".join(texts or ()).encode()
        except UnicodeEncodeError:  # JSON can spell half of a surrogate pair
            raise _wrong(path, number, "this holds a lone surrogate") from None
        except (ValueError, RecursionError) as error:
            raise _wrong(path, number, f"this is not JSON: {error}") from error
        if texts is None:
            form = "a string" if shape.width == 1 else f"a list of {shape.width} strings"
            raise _wrong(path, number, f"expected {form}, or an object with {shape.expected}")
        yield texts


def _parquet(path: Path, shape: Shape) -> Iterator[tuple[str, ...]]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            columns = file.schema_arrow.names
            names = shape.named(columns)
            if names is None:
                _check_columns(path, shape, columns)
                names = tuple(columns)
            number = 0
            for batch in file.iter_batches(columns=names):
                for texts in zip(*(batch[name].to_pylist() for name in names), strict=True):
                    number += 1
                    if not all(isinstance(text, str) for text in texts):
                        raise LatteMixError(f"{path}, row {number:,}: this is not text.")
                    yield texts
    except pyarrow.ArrowException as error:
        reason = str(error).rstrip(".")
        raise LatteMixError(f"{path} cannot be read as Parquet: {reason}.") from error


def _check_columns(path: Path, shape: Shape, found: Sequence[str]) -> None:
    """Columns without known names can only be taken for texts if there are just enough."""
    if len(found) != shape.width:
        count = "one column" if shape.width == 1 else f"{shape.width} columns"
        raise LatteMixError(
            f"{path}: expected columns named {shape.expected}, or {count} in all; "
            f"found {', '.join(found)[:200]}."
        )


def _wrong(path: Path, line: int, problem: str) -> LatteMixError:
    name = "Standard input" if path == STDIN else str(path)
    return LatteMixError(f"{name}, line {line:,}: {problem}.")
