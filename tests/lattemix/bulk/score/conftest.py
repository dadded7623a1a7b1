"""Pairs in a file, and `score` as the tests ask for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.settings import Settings
from lattemix.bulk.score import Local, score
from tests.conftest import SENTENCES

PAIRS = [(SENTENCES[i % 10], SENTENCES[i * 7 % 10]) for i in range(25)]


def write(path: Path, rows: Sequence[tuple[Any, Any]] = PAIRS) -> Path:
    a, b = zip(*rows, strict=True)
    parquet.write_table(pyarrow.table({"a": a, "b": b, "id": range(len(rows))}), path)
    return path


Run = Callable[..., Any]


@pytest.fixture
def run(settings: Settings) -> Run:
    """Score as asked, with this of it changed."""

    def run(source: Path, output: Path, **changed: Any) -> Any:
        usual = {"columns": ("a", "b"), "keep": (), "metrics": ("cosine", "js"), "parts": "parquet"}
        asked = usual | {"shard_rows": 10, "start": lambda: Local(settings)} | changed
        return score(source, output, **asked)

    return run


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())
