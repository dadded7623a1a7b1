"""Sentences of known lengths."""

import numpy as np
import pytest

from benchmarks import texts


def test_lengths_are_in_range_and_reproducible() -> None:
    lengths = texts.mixed_lengths("a", 500)
    assert lengths.min() >= 1
    assert lengths.max() <= 254  # and two special tokens
    assert np.median(lengths + 2) < 50  # log-uniform
    assert (lengths == texts.mixed_lengths("a", 500)).all()
    assert (texts.sts_lengths("a", 500) >= 4).all()
    assert (texts.sts_lengths("a", 500) <= 28).all()


def test_seed_changes_words_but_not_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "vocabulary", lambda: ["one", "two", "three", "four"])
    lengths = texts.sts_lengths("a", 20)
    first, second = (texts.write(lengths, seed) for seed in ("x", "y"))
    assert [len(text.split()) for text in first] == lengths.tolist()
    assert [len(text.split()) for text in second] == lengths.tolist()
    assert not set(first) & set(second)
    assert texts.write(lengths, "x") == first
