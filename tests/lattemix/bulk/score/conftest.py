"""A file of pairs, and `score` with default arguments."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.settings import Settings
from lattemix.bulk.runners import LocalRunner
from lattemix.bulk.score import score
from tests.tiny import SENTENCES

PAIRS = [(SENTENCES[i % 10], SENTENCES[i * 7 % 10]) for i in range(25)]


def write(path: Path, rows: Sequence[tuple[Any, Any]] = PAIRS) -> Path:
    a, b = zip(*rows, strict=True)
    parquet.write_table(pyarrow.table({"a": a, "b": b, "id": range(len(rows))}), path)
    return path


Run = Callable[..., Any]


@pytest.fixture
def run(settings: Settings) -> Run:
    """`score` with default arguments, some of them changed."""

    def run(source: Path, output: Path, **changes: Any) -> Any:
        arguments = {
            "columns": ("a", "b"),
            "keep": (),
            "metrics": ("cosine", "js"),
            "parts": "parquet",
            "shard_rows": 10,
            "start_runner": lambda: LocalRunner(settings),
        }
        return score(source, output, **(arguments | changes))

    return run


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())
