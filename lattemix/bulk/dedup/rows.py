"""The rows of the input: their texts, in a file of their own, and where rows end in their files."""

import hashlib
import math
import mmap
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.dedup.pairs import Ids
from lattemix.bulk.folder import atomic, write_arrays
from lattemix.bulk.readers import RowFormat, Table
from model_store import LatteMixError

_TEXTS, _ROWS = "texts.bin", "rows.npz"
_DIGEST_BYTES = 16
_ADVANCE_ROWS = 10_000


@dataclass(frozen=True)
class Rows:
    """Rows of several files, one file after the other, and their distinct texts.

    A text's id is its position among the distinct texts, in order of their first rows.
    """

    directory: Path
    text: Ids  # the id of each row's text: [R]
    first: Ids  # the first row of each text: [T]
    offsets: Ids  # where each row's text begins in the file of texts: [R + 1]
    ends: Ids  # where each row ends in its file, in bytes; 0 in Parquet: [R]
    counts: Ids  # number of rows of each file
    headers: Ids  # number of bytes before the first row of each file

    @classmethod
    def load(cls, directory: Path) -> "Rows":
        """Load the rows that `read_rows` wrote."""
        with np.load(directory / _ROWS) as arrays:
            return cls(directory, **arrays)

    def __len__(self) -> int:
        return len(self.text)

    @cached_property
    def _file(self) -> mmap.mmap | bytes:
        with (self.directory / _TEXTS).open("rb") as file:
            empty = not os.fstat(file.fileno()).st_size  # which cannot be mapped
            return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def row_texts(self, rows: Ids) -> list[str]:
        """Return the texts of rows."""
        bounds = zip(self.offsets[rows].tolist(), self.offsets[rows + 1].tolist(), strict=True)
        return [self._file[a:b].decode(errors="surrogatepass") for a, b in bounds]

    def texts(self, ids: Ids) -> list[str]:
        """Return texts by id."""
        return self.row_texts(self.first[ids])

    @property
    def lengths(self) -> Ids:
        """Length of each row's text in bytes: [R]."""
        return np.diff(self.offsets)

    @property
    def starts(self) -> Ids:
        """First row of each file, and the number of rows: [F + 1]."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def locate(self, row: int) -> tuple[int, int]:
        """Return the index of a row's file, and the row's number in it, from 1."""
        file = int(np.searchsorted(self.starts, row, side="right")) - 1
        return file, row - int(self.starts[file]) + 1


class RowsWriter:
    """Writes the rows of several files; see `open_rows`."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._offsets, self._ends = array("q", [0]), array("q")
        self._counts, self._headers = array("q"), array("q")
        self._digests = bytearray()

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return len(self._ends)

    def add(self, text: str, end: int = 0) -> None:
        """Add a row that ends at this byte of its file."""
        content = text.encode(errors="surrogatepass")
        self._out.write(content)
        self._digests += hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
        self._offsets.append(self._offsets[-1] + len(content))
        self._ends.append(end)

    def end_file(self, header: int = 0) -> None:
        """End a file, whose rows begin after `header` bytes."""
        self._counts.append(self.rows - sum(self._counts))
        self._headers.append(header)

    def columns(self) -> dict[str, Ids]:
        """Return the fields of `Rows`."""
        text, first = _identify(np.frombuffer(self._digests, np.uint64).reshape(-1, 2))
        columns = {
            "offsets": self._offsets,
            "ends": self._ends,
            "counts": self._counts,
            "headers": self._headers,
        }
        arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
        return {"text": text, "first": first, **arrays}


@contextmanager
def open_rows(directory: Path) -> Iterator[RowsWriter]:
    """Write what `Rows.load` loads."""
    with atomic(directory / _TEXTS) as out:
        writer = RowsWriter(out)
        yield writer
    write_arrays(directory / _ROWS, **writer.columns())


def read_rows(
    directory: Path,
    files: Sequence[Path],
    row_format: RowFormat,
    advance: Callable[[int], object],
) -> None:
    """Read the rows of files, and write what `Rows.load` loads.

    Args:
        directory: to write to.
        files: to read.
        row_format: one column.
        advance: called with the number of rows read since.
    """
    with open_rows(directory) as writer:
        for path in files:
            table = Table(path, row_format)
            for (text,) in table:
                writer.add(text, table.position.bytes)
                if not table.position.rows % _ADVANCE_ROWS:
                    advance(_ADVANCE_ROWS)
            advance(table.position.rows % _ADVANCE_ROWS)
            writer.end_file(table.header.bytes)
        if not writer.rows:
            raise LatteMixError(f"There are no rows in {', '.join(map(str, files))}.")


def read_numbers(files: Sequence[Path], row_format: RowFormat) -> NDArray[np.float64]:
    """Return the numbers [R] in the format's kept column."""
    numbers = array("d")
    for path in files:
        table = Table(path, row_format)
        numbers.extend(_number(value, table) for _, value in table)
    return np.array(numbers, np.float64)


def _number(value: str | None, table: Table) -> float:
    """Parse a number; a missing one is the smallest."""
    try:
        number = float(value) if value else -math.inf
    except ValueError:
        number = math.nan
    if math.isnan(number):
        (name,) = table.format.kept
        where = f"{table.path}, row {table.position.rows:,}"
        raise LatteMixError(f"{where}: column {name} is {str(value)[:40]!r}, not a number.")
    return number


def _identify(digests: NDArray[np.uint64]) -> tuple[Ids, Ids]:
    """Return the id of each row's text [R], and the first row of each text [T]."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: equal texts by row
    ordered = digests[order]
    new = np.ones(len(order), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    firsts = order[new]  # by digest
    rows_first = np.empty(len(order), np.int64)
    rows_first[order] = firsts[np.cumsum(new) - 1]
    first = np.sort(firsts)
    return np.searchsorted(first, rows_first), first
