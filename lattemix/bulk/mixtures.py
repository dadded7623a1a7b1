"""Read the mixtures of a file that `lattemix embed` or `lattemix score` wrote."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.readers import DIALECTS, PARQUET_ROWS, START, TEXTS, Table, open_parquet
from lattemix.bulk.writers import sidecar
from model_store import LatteMixError


class StoredMixture(NamedTuple):
    """A row of the file."""

    mixture: NDArray[np.float32] | None  # None if the sentence was rejected
    fingerprint: str | None = None  # of the model that computed it
    text: str | None = None


def read_mixtures(path: Path) -> Iterator[StoredMixture]:
    """Return the rows of a file; raise `LatteMixError`, naming file and row, for an invalid one."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise LatteMixError(f"{path}: mixtures are read from {', '.join(_READERS)}.")
    path.stat()  # raises if there is no such file
    return reader(path)


def _jsonl(path: Path) -> Iterator[StoredMixture]:
    table = Table(path, TEXTS)
    for line in table.lines(START):
        if line.strip():
            yield _from_json(_parse(line, path), f"{path}, line {table.position.lines:,}")


def _json(path: Path) -> Iterator[StoredMixture]:
    rows = _parse(path.read_bytes(), path)
    if not isinstance(rows, list):
        raise LatteMixError(f"{path}: expected a list of objects.")
    for number, row in enumerate(rows, 1):
        yield _from_json(row, f"{path}, row {number:,}")


def _parse(text: str | bytes, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LatteMixError(f"{path} is not JSON: {error}.") from error


def _from_json(row: Any, where: str) -> StoredMixture:
    if not isinstance(row, dict) or not ("embedding" in row or "error" in row):
        raise LatteMixError(f"{where}: expected an object with embedding.")
    values = row.get("embedding")
    if isinstance(values, dict):
        raise LatteMixError(f"{where}: a sparse mixture is incomplete: write dense or flat ones.")
    mixture = None if values is None else _floats(values, where)
    return StoredMixture(mixture, row.get("fingerprint"), row.get("text"))


def _separated(path: Path, suffix: str) -> Iterator[StoredMixture]:
    csv.field_size_limit(sys.maxsize)  # else 131,072 characters
    table = Table(path, TEXTS)
    rows = filter(None, csv.reader(table.lines(START), **DIALECTS[suffix]))
    try:
        header = next(rows, [])
        cells = [i for i, name in enumerate(header) if name.startswith("embedding_")]
        if not cells:
            raise _no_embedding(path, header)
        for row in rows:
            if len(row) != len(header):
                raise table.error(f"expected {len(header)} columns, found {len(row)}")
            named = dict(zip(header, row, strict=True))
            values = [row[i] for i in cells]
            where = f"{path}, line {table.position.lines:,}"
            mixture = _floats(values, where) if any(values) else None
            yield StoredMixture(mixture, named.get("fingerprint"), named.get("text"))
    except csv.Error as error:
        raise table.error(str(error)) from error


def _parquet(path: Path) -> Iterator[StoredMixture]:
    number = 0
    with open_parquet(path) as file:
        header = file.schema_arrow.names
        if "embedding" not in header:
            raise _no_embedding(path, header)
        names = [name for name in ("embedding", "fingerprint", "text") if name in header]
        for batch in file.iter_batches(PARQUET_ROWS, columns=names):
            others = batch.drop_columns("embedding").to_pylist()
            for row, value in zip(others, batch["embedding"], strict=True):
                number += 1
                numbers = getattr(value, "values", value) if value.is_valid else None
                yield _from_json({**row, "embedding": numbers}, f"{path}, row {number:,}")


def _npy(path: Path) -> Iterator[StoredMixture]:
    """Rows of NaN are rejected sentences; the fingerprint is in the file beside it."""
    try:
        mixtures = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise LatteMixError(f"{path} cannot be read as npy: {error}.") from error
    if mixtures.ndim not in (2, 3) or mixtures.dtype.kind != "f":
        shape = f"{mixtures.dtype} {mixtures.shape}"
        raise LatteMixError(f"{path}: expected floats [N, L, C] or [N, L*C], found {shape}.")
    try:
        origin = _parse(sidecar(path).read_bytes(), sidecar(path))
    except FileNotFoundError:
        origin = {}
    fingerprint = origin.get("fingerprint") if isinstance(origin, dict) else None
    for row in mixtures:
        yield StoredMixture(None if np.isnan(row).any() else row, fingerprint)


def _floats(values: Any, where: str) -> NDArray[np.float32]:
    try:
        return np.array(values, np.float32)
    except (ValueError, TypeError):
        raise LatteMixError(f"{where}: the embedding is not an array of numbers.") from None


def _no_embedding(path: Path, header: Sequence[str]) -> LatteMixError:
    found = ", ".join(header)[:200]
    return LatteMixError(f"{path}: expected a column embedding; found {found}.")


_READERS: dict[str, Callable[[Path], Iterator[StoredMixture]]] = {
    ".csv": partial(_separated, suffix=".csv"),
    ".tsv": partial(_separated, suffix=".tsv"),
    ".json": _json,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
    ".npy": _npy,
}
