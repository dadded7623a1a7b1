"""Labelled pairs of the tiny model's sentences."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from lattemix import Model, load
from lattemix.labelled.pairs import LabelledPairs
from model_store import Store
from tests.tiny import SENTENCES

Write = Callable[..., Path]

TEXTS = [(a, b) for a in SENTENCES for b in SENTENCES if a < b]  # 45 pairs


@pytest.fixture(scope="session")
def model(store: Store) -> Model:
    return load("tiny", store=store.root)


@pytest.fixture(scope="session")
def scores(model: Model) -> Sequence[float]:
    values: list[float] = model.similarity(TEXTS).tolist()
    return values


@pytest.fixture(scope="session")
def binary(scores: Sequence[float]) -> LabelledPairs:
    """A pair matches if its score, with noise, is above the median."""
    noisy = np.array(scores) + np.random.default_rng(1).normal(0, np.std(scores) / 2, len(scores))
    labels = (noisy > np.median(noisy)).astype(float)
    a, b = zip(*TEXTS, strict=True)
    return LabelledPairs(name="pairs.csv", a=a, b=b, labels=labels, scale=(0, 1))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write labelled pairs as CSV."""

    def write(pairs: LabelledPairs, name: str = "pairs.csv") -> Path:
        rows = zip(pairs.a, pairs.b, pairs.labels.tolist(), strict=True)
        lines = ["a,b,label", *(f"{a},{b},{label:g}" for a, b, label in rows)]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write
