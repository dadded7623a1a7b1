"""The systems under test: each is a command that de-duplicates a file."""

import json
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.dedup.judge import Dropped
from benchmarks.dedup.processes import Usage, run
from lattemix.bulk.dedup.options import smallest_first_score

_SEMHASH_RUN = Path(__file__).with_name("semhash_run.py")
_LOG = "log.txt"


@dataclass(frozen=True)
class System(ABC):
    """A way to de-duplicate a file."""

    name: str

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The default."""

    def measure(self, rows: Path, directory: Path) -> Usage:
        """De-duplicate a file into an empty directory, at the default threshold."""
        _clear(directory)
        return self._run_default(rows, directory)

    def sweep(
        self, rows: Path, directory: Path, thresholds: Sequence[float]
    ) -> Iterator[tuple[float, list[Dropped]]]:
        """Yield what is dropped at each threshold; they are given in ascending order."""
        _clear(directory)
        for threshold, output in self._run_all(rows, directory, thresholds):
            yield threshold, read_dropped(output / "dropped.jsonl")

    @abstractmethod
    def _run_default(self, rows: Path, directory: Path) -> Usage:
        """De-duplicate at the default threshold."""

    @abstractmethod
    def _run_all(
        self, rows: Path, directory: Path, thresholds: Sequence[float]
    ) -> Iterator[tuple[float, Path]]:
        """De-duplicate at each threshold; yield the directories with the results."""


@dataclass(frozen=True)
class LatteMix(System):
    """`lattemix dedup`. A sweep finds candidate pairs once."""

    options: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """The default."""
        return 0.95

    def _run_default(self, rows: Path, directory: Path) -> Usage:
        return self._run(rows, directory, "default", self.options)

    def _run_all(
        self, rows: Path, directory: Path, thresholds: Sequence[float]
    ) -> Iterator[tuple[float, Path]]:
        lowest = thresholds[0]  # of a mean of two scores, if a second model scores the pairs
        floor = smallest_first_score(lowest) if "--rescore" in self.options else lowest
        for threshold in thresholds:
            options = (*self.options, "--floor", f"{floor:.4g}", "--threshold", str(threshold))
            self._run(rows, directory, str(threshold), options)
            yield threshold, directory / str(threshold)

    def _run(self, rows: Path, directory: Path, output: str, options: Sequence[str]) -> Usage:
        lattemix = Path(sys.executable).with_name("lattemix")
        work = directory / "work"
        command: list[str | Path] = [
            lattemix,
            "dedup",
            rows,
            directory / output,
            "--work",
            work,
            *options,
        ]
        return run(command, directory / _LOG)


@dataclass(frozen=True)
class SemHash(System):
    """semhash with its default settings, in an interpreter that has it."""

    python: Path
    model: str  # directory or hub id

    @property
    def threshold(self) -> float:
        """The default."""
        return 0.9

    def _run_default(self, rows: Path, directory: Path) -> Usage:
        return self._run(rows, directory, [self.threshold])

    def _run_all(
        self, rows: Path, directory: Path, thresholds: Sequence[float]
    ) -> Iterator[tuple[float, Path]]:
        self._run(rows, directory, thresholds)
        for threshold in thresholds:
            yield threshold, directory / str(threshold)

    def _run(self, rows: Path, directory: Path, thresholds: Sequence[float]) -> Usage:
        values = map(str, thresholds)
        command: list[str | Path] = [
            self.python,
            _SEMHASH_RUN,
            self.model,
            rows,
            directory,
            *values,
        ]
        return run(command, directory / _LOG)


def read_dropped(path: Path) -> list[Dropped]:
    """Read the dropped rows, and the rows that are kept instead."""
    with path.open(encoding="utf-8") as file:
        records = map(json.loads, file)
        return [Dropped(record["row"] - 1, record["kept_row"] - 1) for record in records]


def _clear(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
