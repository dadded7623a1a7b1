"""Files of sentences: plain text, SNLI and MultiNLI, JSON lines, CSV, Parquet, standard input."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from training.corpus import CorpusError, check_size

STDIN = Path("-")

# What data sets call the columns that hold their sentences.
USUAL_COLUMNS = ("sentence1", "sentence2", "premise", "hypothesis", "sentence", "text")


def read(paths: Sequence[Path], columns: Sequence[str] = ()) -> Iterator[str]:
    """Yield the sentences of every file, streamed, in order.

    The kind of a file is told by its ending, before `.gz` if it is compressed: `.jsonl`, `.csv`,
    `.tsv`, `.parquet`; any other is text of one sentence a line, or SNLI's table if it begins with
    that table's header. `-` is text on standard input.

    Args:
        paths: the files.
        columns: of tables and JSON objects, which fields to read; else those of the usual names.
    """
    for path in paths:
        kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        try:
            yield from _READERS.get(kind, _text)(path, columns)
        except (OSError, EOFError) as error:  # EOFError: a .gz cut short
            reason = getattr(error, "strerror", None) or error
            raise CorpusError(f"Cannot read the corpus {path}: {reason}.") from error
        except UnicodeDecodeError as error:
            raise CorpusError(f"The corpus {path} is not UTF-8 text: {error}.") from error


def check(paths: Sequence[Path], columns: Sequence[str] = ()) -> None:
    """Refuse files that cannot be read, or that hold fewer than two sentences, from their start.

    Streams are not looked at: they can be read only once.
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


def _open(path: Path) -> TextIO:
    if path == STDIN:
        return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8", newline="\n")


def _text(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        first = next(lines, "")
        if "sentence1\t" in first:  # snli_1.0_train.txt, multinli_1.0_train.txt
            yield from _rows(path, _split([first]), _split(lines), columns)
        else:
            yield first
            yield from lines


def _split(lines: Iterable[str]) -> Iterator[list[str]]:
    """Tab-separated columns in which quotes are text."""
    return (line.rstrip("\r\n").split("\t") for line in lines)


def _csv(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        rows = csv.reader(lines)
        try:
            yield from _rows(path, rows, rows, columns)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {rows.line_num:,}: {error}.") from error


def _tsv(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        rows = _split(lines)
        yield from _rows(path, rows, rows, columns)


def _rows(
    path: Path, header: Iterator[list[str]], rows: Iterator[list[str]], columns: Sequence[str]
) -> Iterator[str]:
    names = next(header, [])
    places = [names.index(column) for column in _chosen(path, names, columns)]
    for number, row in enumerate(rows, start=2):
        if len(row) <= max(places):
            if not any(row):
                continue
            raise CorpusError(
                f"{path}, row {number:,} has {len(row)} columns where the header has {len(names)}."
            )
        yield from (row[place] for place in places)


def _jsonl(path: Path, columns: Sequence[str]) -> Iterator[str]:
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise CorpusError(f"{path}, line {number:,} is not valid JSON: {error}.") from error
            if isinstance(record, str):
                yield _unicode(record, path, number)
            elif isinstance(record, dict):
                chosen = _chosen(path, list(record), columns)
                yield from (_unicode(record[column], path, number) for column in chosen)
            else:
                raise CorpusError(f"{path}, line {number:,} is neither a text nor an object.")


def _unicode(value: Any, path: Path, number: int) -> str:
    """JSON can spell half a character, which is no text."""
    try:
        return str(value or "").encode().decode()
    except UnicodeEncodeError:
        raise CorpusError(f"{path}, line {number:,} holds a lone surrogate: no text.") from None


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[str]:
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            chosen = _chosen(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(columns=chosen):
                for column in chosen:
                    yield from (str(value or "") for value in batch.column(column).to_pylist())
    except ArrowException as error:
        raise CorpusError(f"{path} is not a Parquet file, or damaged: {error}.") from error


def _chosen(path: Path, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The columns asked for, or those of the usual names; never none."""
    found = [name for name in columns or USUAL_COLUMNS if name in names]
    if not found or (columns and len(found) < len(columns)):
        wanted = ", ".join(columns or USUAL_COLUMNS)
        raise CorpusError(
            f"{path} has the columns {', '.join(map(repr, names)) or 'none'}, and not {wanted}: "
            "name those that hold sentences with --column."
        )
    return found


_READERS = {".jsonl": _jsonl, ".csv": _csv, ".tsv": _tsv, ".parquet": _parquet}
