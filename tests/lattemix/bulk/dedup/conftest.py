"""Texts with near-duplicates, and `dedup_files` with default arguments."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.settings import Settings
from lattemix.bulk.dedup import cells, compare, vectors
from lattemix.bulk.dedup.files import dedup_files, work_path
from lattemix.bulk.dedup.inputs import Input
from lattemix.bulk.dedup.options import Options
from lattemix.bulk.dedup.summary import Summary
from lattemix.bulk.runners import LocalRunner, Runner
from lattemix.settings import ModelSettings
from tests.tiny import WORDS

# The model `static` ignores the order and the case of words: such variants score 1.
DEFAULTS: dict[str, Any] = {"model": "static", "metric": "centred", "threshold": 0.9}


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Distinct texts of eight words, few of them similar."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 8, replace=False)) for _ in range(count)]


def variant(text: str, number: int = 1) -> str:
    """Another text of the same vector."""
    words = text.split()
    return " ".join(words[number % 8 :] + words[: number % 8]).upper() + "." * (number // 8)


def duplicated_texts(count: int = 40) -> list[str]:
    """Texts, of which some are identical, some similar, and some rejected by the model."""
    texts = random_texts(count)
    copies = texts[::4]
    variants = [variant(text, 1 + i % 3) for i, text in enumerate(texts[::3])]
    longer = [f"{text} coffee sea" for text in texts[1::5]]
    mixed = [*texts, *copies, *variants, *longer, "", "!?", "", "..."]
    return [mixed[i] for i in np.random.default_rng(1).permutation(len(mixed))]


def write_lines(path: Path, texts: Sequence[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def files_below(directory: Path) -> dict[str, bytes]:
    """Content of all files of a directory, by relative path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


Run = Callable[..., Summary]


@pytest.fixture
def model_settings(two_models: Settings) -> ModelSettings:
    """Settings of the models `static` and `tiny`."""
    return ModelSettings(store=two_models.store, model="static", provider="cpu")


@pytest.fixture
def run(model_settings: ModelSettings) -> Run:
    """`dedup_files` with default arguments, some of them changed."""

    def run(
        source: Path,
        output: Path,
        *,
        work: Path | None = None,
        column: str | None = None,
        against: Path | None = None,
        keep: str = "first",
        runner: Runner | None = None,
        **options: Any,
    ) -> Summary:
        return dedup_files(
            Input(source, column, against, keep),
            output,
            work or work_path(output),
            Options(keep=keep, **(DEFAULTS | options)),
            lambda: runner or LocalRunner(model_settings),
        )

    return run


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several shards, cells and ranges of cells for a few texts."""
    monkeypatch.setattr(vectors, "_SHARD", 16)
    monkeypatch.setattr(compare, "_TEXTS", 16)
    monkeypatch.setattr(cells, "_SINGLE_CELL", 8)


class Calls:
    """Counts the parts that workers compute."""

    def __init__(self) -> None:
        self.vectors: list[int] = []
        self.compare: list[tuple[str, int]] = []

    def clear(self) -> None:
        self.vectors.clear()
        self.compare.clear()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    encode, match = vectors.VectorsWorker.__call__, compare.CompareWorker.__call__

    def encoded(worker: vectors.VectorsWorker, shard: vectors.Shard) -> Any:
        result = encode(worker, shard)
        calls.vectors.append(shard.number)
        return result

    def compared(worker: compare.CompareWorker, part: compare.CellRange) -> Any:
        result = match(worker, part)
        calls.compare.append((part.round, part.number))
        return result

    monkeypatch.setattr(vectors.VectorsWorker, "__call__", encoded)
    monkeypatch.setattr(compare.CompareWorker, "__call__", compared)
    return calls
