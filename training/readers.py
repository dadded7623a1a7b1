"""Readers of corpus files: text, SNLI and MultiNLI, JSON lines, CSV, TSV, Parquet, stdin."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from training.corpus import CorpusError, check_size
from training.evaluate.sets import all_sentences
from training.exclusion import Exclusion

STDIN = Path("-")

# Names that data sets give the columns of their sentences.
USUAL_COLUMNS = ("sentence1", "sentence2", "premise", "hypothesis", "sentence", "text")


def read(paths: Sequence[Path], columns: Sequence[str] = ()) -> Iterator[str]:
    """Yield the sentences of every file, streamed, in order.

    The suffix, before `.gz`, names the format: `.jsonl`, `.csv`, `.tsv`, `.parquet`. Any other file
    is text of one sentence per line, or SNLI's table if it starts with that header. `-` is text on
    standard input.

    `columns` are the fields of tables and JSON objects to read; by default those with usual names.
    """
    for path in paths:
        suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        with _named_errors(path):
            yield from _READERS.get(suffix, _read_text)(path, columns)


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a `.jsonl` or `.jsonl.gz` file, each with its line number."""
    with _named_errors(path), _open(path) as lines:
        for number, record in _parse_json_lines(lines, path):
            if not isinstance(record, dict):
                raise CorpusError(f"{path}, line {number:,} is not an object.")
            yield number, record


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Raise CorpusError with the file's name if it cannot be read or is not UTF-8."""
    try:
        yield
    except (OSError, EOFError) as error:  # EOFError: a truncated .gz
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"Cannot read the corpus {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"The corpus {path} is not UTF-8 text: {error}.") from error


def check(paths: Sequence[Path], columns: Sequence[str] = ()) -> None:
    """Read the start of each file; reject unreadable ones, and fewer than two sentences in all.

    Streams are skipped: they can be read only once.
    """
    distinct: set[str] = set()
    streams = [path for path in paths if path == STDIN or path.is_fifo() or path.is_char_device()]
    for path in paths:
        if path not in streams:
            for sentence in read([path], columns):
                distinct.add(" ".join(sentence.split()))
                if len(distinct - {""}) > 1:
                    break
    if paths and not streams:
        check_size(len(distinct - {""}))


def read_exclusion(paths: Sequence[Path], columns: Sequence[str] = ()) -> Exclusion | None:
    """Read directories of evaluation sets and files of sentences to exclude; None without paths."""
    if not paths:
        return None
    exclusion = Exclusion(text for path in paths for text in _excluded(path, columns))
    if not exclusion:
        raise CorpusError("The files of --exclude have no sentences.")
    return exclusion


def _excluded(path: Path, columns: Sequence[str]) -> Iterator[str]:
    if path.is_dir():
        yield from all_sentences(path)
    else:
        for sentence in read([path], columns):
            yield sentence
            # One line of an evaluation set, such as SICK_train.txt, has several sentences.
            yield from sentence.split("\t")


def _open(path: Path) -> TextIO:
    if path == STDIN:
        return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8", newline="\n")


def _read_text(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as file:
        first = next(file, "")
        lines = chain([first], file)
        if "sentence1\t" in first:  # snli_1.0_train.txt, multinli_1.0_train.txt
            yield from _read_rows(path, _split_tabs(lines), columns)
        else:
            yield from lines


def _read_csv(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        rows = csv.reader(lines)
        try:
            yield from _read_rows(path, rows, columns)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {rows.line_num:,}: {error}.") from error


def _read_tsv(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        yield from _read_rows(path, _split_tabs(lines), columns)


def _split_tabs(lines: Iterator[str]) -> Iterator[list[str]]:
    """Rows of tab-separated values; quotes are text."""
    return (line.rstrip("\r\n").split("\t") for line in lines)


def _read_rows(path: Path, rows: Iterator[list[str]], columns: Sequence[str]) -> Iterator[str]:
    header = next(rows, [])
    indices = [header.index(column) for column in _select(path, header, columns)]
    for number, row in enumerate(rows, start=2):
        if len(row) > max(indices):
            yield from (row[index] for index in indices)
        elif any(row):
            raise CorpusError(
                f"{path}, row {number:,} has {len(row)} columns where the header has {len(header)}."
            )


def _read_jsonl(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        yield from read_json_lines(lines, path, columns)


def read_json_lines(lines: Iterable[str], path: Path, columns: Sequence[str]) -> Iterator[str]:
    """Yield the sentences of JSON lines; `path` names them in errors."""
    for number, record in _parse_json_lines(lines, path):
        if isinstance(record, dict):
            values = [record[column] for column in _select(path, list(record), columns)]
        elif isinstance(record, str):
            values = [record]
        else:
            raise CorpusError(f"{path}, line {number:,} is neither a string nor an object.")
        yield from (as_text(value, path, number) for value in values)


def _parse_json_lines(lines: Iterable[str], path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line that is not blank, with its line number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{path}, line {number:,} is not valid JSON: {error}.") from error


def as_text(value: Any, path: Path, number: int) -> str:
    """Return a JSON value as text; `path` and the line `number` name it in errors."""
    try:
        return str(value or "").encode().decode()
    except UnicodeEncodeError:  # JSON can escape half of a surrogate pair
        raise CorpusError(f"{path}, line {number:,} holds a lone surrogate.") from None


def _read_parquet(path: Path, columns: Sequence[str]) -> Iterator[str]:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            selected = _select(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(columns=selected):
                for column in selected:
                    yield from (str(value or "") for value in batch.column(column).to_pylist())
    except ArrowException as error:
        raise CorpusError(f"{path} is not a Parquet file, or damaged: {error}.") from error


def _select(path: Path, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The requested columns, or those with usual names; at least one."""
    selected = [name for name in columns or USUAL_COLUMNS if name in names]
    if not selected or (columns and len(selected) < len(columns)):
        expected = ", ".join(columns or USUAL_COLUMNS)
        raise CorpusError(
            f"{path} has the columns {', '.join(map(repr, names)) or 'none'}, and not {expected}: "
            "name those that hold sentences with --column."
        )
    return selected


_READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".tsv": _read_tsv, ".parquet": _read_parquet}
