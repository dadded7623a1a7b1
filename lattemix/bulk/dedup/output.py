"""The files that `lattemix dedup` writes: kept rows as they are, and a list of dropped ones."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lattemix.bulk.dedup.inputs import Input, InputFiles
from lattemix.bulk.dedup.outcome import DecidedRows
from lattemix.bulk.dedup.pairs import Ids, Mask
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.folder import atomic
from lattemix.bulk.readers import PARQUET_ROWS, open_parquet
from lattemix.bulk.writers import INTEGER, NUMBER, TEXT, Origin, open_writer

_BATCH = 4096  # rows whose texts are in memory
_GROUP_BYTES = 64_000_000  # of a row group of Parquet


class OutputFiles:
    """The files that rows were read from, and those that results are written to."""

    def __init__(self, rows: Rows, source: Input, files: InputFiles) -> None:
        self._rows, self._root, self._paths = rows, source.source, files.paths
        self._names = source.names(files)
        self._first_input = len(files.references)

    def write_kept(self, directory: Path, kept: Mask) -> None:
        """Write the kept rows [R] of each file as they are, to a file of the same type.

        A single file becomes kept.<type>; the files of a directory keep their names, in kept/.
        """
        starts, headers = self._rows.starts.tolist(), self._rows.headers.tolist()
        for index in range(self._first_input, len(self._paths)):
            path, rows = self._paths[index], slice(starts[index], starts[index + 1])
            target = directory / f"kept{path.suffix}"
            if path != self._root:
                target = directory / "kept" / path.relative_to(self._root)
                target.parent.mkdir(parents=True, exist_ok=True)
            with atomic(target) as out:
                if path.suffix.lower() == ".parquet":
                    _copy_parquet(path, kept[rows], out)
                else:
                    _copy_lines(path, kept[rows], self._rows.ends[rows], headers[index], out)

    def write_dropped(self, path: Path, decided: DecidedRows, origin: Origin) -> None:
        """Write a row for each dropped one: its place and text, and the row that is kept."""
        place = {"file": TEXT, "row": INTEGER, "text": TEXT}
        kept_place = {f"kept_{name}": column for name, column in place.items()}
        columns = {**place, **kept_place, "score": NUMBER}
        (dropped,) = np.nonzero(~decided.kept)
        with open_writer(path, columns, origin) as write:
            for start in range(0, len(dropped), _BATCH):
                ids = dropped[start : start + _BATCH]
                places = self._places(ids), self._places(decided.keeper[ids])
                for row, keeper, score in zip(*places, decided.scores[ids].tolist(), strict=True):
                    write(dict(zip(columns, (*row, *keeper, score), strict=True)))

    def _places(self, ids: Ids) -> Iterator[tuple[str, int, str]]:
        """Yield the file, the number in it and the text of rows."""
        for row, text in zip(ids.tolist(), self._rows.row_texts(ids), strict=True):
            file, number = self._rows.locate(row)
            yield self._names[file], number, text


def _copy_lines(path: Path, kept: Mask, ends: Ids, header: int, out: BinaryIO) -> None:
    """Copy a header of so many bytes, and kept rows [R], which end at `ends`."""
    with path.open("rb") as file:
        out.write(file.read(header))
        bounds = pairwise([header, *ends.tolist()])
        for is_kept, (start, stop) in zip(kept.tolist(), bounds, strict=True):
            row = file.read(stop - start)
            if is_kept:
                out.write(row)


def _copy_parquet(path: Path, kept: Mask, out: BinaryIO) -> None:
    from pyarrow import Table, concat_tables, parquet

    with open_parquet(path) as file, parquet.ParquetWriter(out, file.schema_arrow) as writer:
        group = file.schema_arrow.empty_table()
        start = 0
        for batch in file.iter_batches(PARQUET_ROWS):
            rows = batch.filter(kept[start : start + len(batch)])
            start += len(batch)
            group = concat_tables([group, Table.from_batches([rows])])
            if group.nbytes >= _GROUP_BYTES:
                writer.write_table(group)
                group = group.slice(0, 0)
        writer.write_table(group)
