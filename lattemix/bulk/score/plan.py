"""What is to be scored, cut into shards that can be done in any order, anywhere."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lattemix.bulk.readers import START, Place, Table, columns_named
from lattemix.bulk.writers import Row
from model_store import LatteMixError, Manifest, Metric


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Task(_Record):
    """What to do with every row. The same task gives the same numbers, whoever does it."""

    columns: tuple[str, ...]  # two are compared, one is embedded
    keep: tuple[str, ...]  # carried over
    metrics: tuple[Metric, ...]
    parts: str  # the kind of file to write
    shard_rows: int
    model: str
    model_digest: str


class Source(_Record):
    """A file as it was when the work began."""

    path: str
    bytes: int
    modified: int  # ns

    @classmethod
    def at(cls, path: Path) -> "Source":
        """What is there now."""
        about = path.stat()
        return cls(path=str(path.absolute()), bytes=about.st_size, modified=about.st_mtime_ns)


class Shard(_Record):
    """Rows of one file, done together."""

    part: str  # the file they become
    path: str
    start: Place
    rows: int


class Plan(_Record):
    """A task, and all shards of it."""

    task: Task
    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]


class Tally(BaseModel):
    """What became of rows."""

    rows: int = 0
    refused: int = 0
    first_reason: str = ""
    truncated: int = 0  # sentences

    def count(self, row: Row, where: str) -> None:
        """One row more."""
        self.rows += 1
        self.truncated += row.get("truncated", 0)
        if "error" in row:
            self.refused += 1
            self.first_reason = self.first_reason or f"{where}: {row['error']}"

    def add(self, other: "Tally") -> None:
        """Those of another."""
        self.rows += other.rows
        self.refused += other.refused
        self.first_reason = self.first_reason or other.first_reason
        self.truncated += other.truncated


def digest(manifest: Manifest) -> str:
    """One for all files of a model."""
    records = sorted((name, record.sha256) for name, record in manifest.files.items())
    return hashlib.sha256(repr(records).encode()).hexdigest()


def sources(path: Path) -> tuple[Source, ...]:
    """The file, or all files in the directory and below, by name."""
    found = tuple(Source.at(file) for file in (_files(path) if path.is_dir() else [path]))
    if not found:
        raise LatteMixError(f"{path} holds no files.")
    return found


def _files(path: Path) -> Iterator[Path]:
    """Those that are not hidden: what others leave beside their files begins with . or _."""
    for file in sorted(path.iterdir()):
        if file.name[0] in "._":
            continue
        if not file.is_dir():
            yield file
        elif file.is_symlink():  # it may lead anywhere, and around
            raise LatteMixError(f"{file} is a link to a directory: score that one instead.")
        else:
            yield from _files(file)


def cut(files: Sequence[Source], task: Task) -> tuple[Shard, ...]:
    """All shards. Every row is looked at: better to find a wrong one now than after hours."""
    pieces = [(file.path, *piece) for file in files for piece in _pieces(Path(file.path), task)]
    if not pieces:
        raise LatteMixError(f"There are no rows in {', '.join(file.path for file in files)}.")
    return tuple(
        Shard(
            part=f"part-{number:05}-of-{len(pieces):05}.{task.parts}",
            path=path,
            start=start,
            rows=rows,
        )
        for number, (path, start, rows) in enumerate(pieces, 1)
    )


def _pieces(path: Path, task: Task) -> Iterator[tuple[Place, int]]:
    """Where each of a file's shards begins, and how many rows it has."""
    table, start = Table(path, columns_named(task.columns, task.keep)), START
    for _ in table:
        if table.place.rows - start.rows == task.shard_rows:
            yield start, task.shard_rows
            start = table.place
    if table.place.rows > start.rows:
        yield start, table.place.rows - start.rows
