"""A task, split into shards that can be computed in any order on any machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from lattemix.bulk.readers import START, Position, Table, columns_named
from lattemix.bulk.sources import Record, Source
from lattemix.bulk.writers import Row
from lattemix.settings import MAX_WINDOWS, Truncate
from model_store import LatteMixError, Metric


class Task(Record):
    """What to compute for every row. Equal tasks give equal numbers on every machine."""

    # The model first: if it differs, so may the default of `metrics`.
    model: str
    fingerprint: str  # of the model
    calibration: str | None = None  # digest of the file, if results have its probability or rating
    columns: tuple[str, ...]  # two to compare, or one to encode
    keep: tuple[str, ...]  # copied as text
    metrics: tuple[Metric, ...]
    truncate: Truncate = "window"
    max_windows: int = MAX_WINDOWS
    parts: str  # file type of the results
    shard_rows: int


class Shard(Record):
    """Consecutive rows of one file."""

    part: str  # name of the result file
    path: str
    start: Position
    rows: int


class Plan(Record):
    """A task and its shards."""

    task: Task
    sources: tuple[Source, ...]
    shards: tuple[Shard, ...]


class Tally(BaseModel):
    """Counts of rows."""

    rows: int = 0
    rejected: int = 0
    first_rejection: str = ""
    truncated: int = 0  # sentences

    def count(self, row: Row, location: str) -> None:
        """Add a row of the results."""
        self.rows += 1
        self.truncated += row.get("truncated", 0)
        if "error" in row:
            self.rejected += 1
            self.first_rejection = self.first_rejection or f"{location}: {row['error']}"

    def add(self, other: "Tally") -> None:
        """Add the counts of other rows."""
        self.rows += other.rows
        self.rejected += other.rejected
        self.first_rejection = self.first_rejection or other.first_rejection
        self.truncated += other.truncated


def make_shards(sources: Sequence[Source], task: Task) -> tuple[Shard, ...]:
    """Split files into shards. Reads every row: an invalid one is found before the work."""
    bounds = [(file.path, *bound) for file in sources for bound in _bounds(Path(file.path), task)]
    if not bounds:
        raise LatteMixError(f"There are no rows in {', '.join(file.path for file in sources)}.")
    return tuple(
        Shard(
            part=f"part-{number:05}-of-{len(bounds):05}.{task.parts}",
            path=path,
            start=start,
            rows=rows,
        )
        for number, (path, start, rows) in enumerate(bounds, 1)
    )


def _bounds(path: Path, task: Task) -> Iterator[tuple[Position, int]]:
    """Yield the first position and the number of rows of each shard of a file."""
    table, start = Table(path, columns_named(task.columns, task.keep)), START
    for _ in table:
        if table.position.rows - start.rows == task.shard_rows:
            yield start, task.shard_rows
            start = table.position
    if table.position.rows > start.rows:
        yield start, table.position.rows - start.rows
