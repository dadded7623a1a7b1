"""Sentences of known lengths that do not come twice."""

import numpy as np

from benchmarks import texts

WORDS = ["one", "two", "three", "four"] * 100


def test_lengths_are_those_asked_for_and_the_same_for_a_name() -> None:
    lengths = texts.mixed("a", 500)
    assert lengths.min() >= 1
    assert lengths.max() <= 254  # and two special tokens
    assert np.median(lengths + 2) < 50  # every magnitude as often as any other
    assert (lengths == texts.mixed("a", 500)).all()
    assert (texts.usual("a", 500) >= 4).all()
    assert (texts.usual("a", 500) <= 28).all()


def test_other_names_give_other_words_of_the_same_lengths() -> None:
    lengths = texts.usual("a", 20)
    first, second = (texts.write(lengths, name, WORDS) for name in ("x", "y"))
    assert [len(text.split()) for text in first] == lengths.tolist()
    assert [len(text.split()) for text in second] == lengths.tolist()
    assert not set(first) & set(second)
    assert texts.write(lengths, "x", WORDS) == first
    assert texts.tokens_of(lengths) == sum(len(text.split()) + 2 for text in first)
