"""Judge what a system drops: planted near-duplicates, and other rows.

A dropped row and the row that is kept instead of it are

- right, if both come from one sentence: one is the planted copy of the other;
- undecided, if the sentences that they come from share most of their words: a near-duplicate of
  Wikipedia itself, which some would drop and others would not;
- wrong, otherwise.

Precision is the share of the right ones among the right and the wrong ones. A stricter precision
also counts as wrong those undecided ones that differ in a number, a name or a negation. Recall is
the share of planted pairs of which a system keeps at most one row, or both rows of which it drops
for the same row.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.dedup.corpus import WORD
from benchmarks.dedup.plant import Planted

UNDECIDED = 0.6  # smallest Jaccard similarity of the words of undecided rows
_NEGATIONS = {"no", "not", "never", "none", "nor", "neither", "without", "cannot"}


class Dropped(NamedTuple):
    """A dropped row, and the row that is kept instead, counted from 0."""

    row: int
    kept: int


@dataclass
class Quality:
    """Counts of dropped rows by verdict, and of planted pairs by kind."""

    right: int = 0
    wrong: int = 0
    undecided: int = 0
    distinct: int = 0  # undecided ones that differ in a number, a name or a negation
    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    @property
    def precision(self) -> float:
        """Share of right ones; undecided ones do not count."""
        return self.right / max(self.right + self.wrong, 1)

    @property
    def strict_precision(self) -> float:
        """Share of right ones, if those that differ in a number, name or negation are wrong."""
        return self.right / max(self.right + self.wrong + self.distinct, 1)

    @property
    def recall(self) -> float:
        """Share of planted pairs that were found."""
        return self.found.total() / max(self.planted.total(), 1)


class Judge:
    """Knows which rows are planted."""

    def __init__(self, texts: Sequence[str], planted: Sequence[Planted]) -> None:
        self._texts, self._planted = texts, planted
        self._origin = np.arange(len(texts))
        self._origin[[pair.copy for pair in planted]] = [pair.source for pair in planted]

    def __call__(self, dropped: Sequence[Dropped]) -> Quality:
        """Count verdicts."""
        quality = Quality()
        keeper = np.arange(len(self._texts))
        for row, kept in dropped:
            keeper[row] = kept
            self._count(quality, self._origin[row], self._origin[kept])
        for pair in self._planted:
            quality.planted[pair.kind] += 1
            quality.found[pair.kind] += bool(keeper[pair.copy] == keeper[pair.source])
        return quality

    def _count(self, quality: Quality, a: int, b: int) -> None:
        if a == b:
            quality.right += 1
            return
        first, second = self._texts[a], self._texts[b]
        if jaccard(first, second) < UNDECIDED:
            quality.wrong += 1
            return
        quality.undecided += 1
        quality.distinct += differ_in_fact(first, second)


def jaccard(a: str, b: str) -> float:
    """Return the share of words that two texts have in common, whatever their case."""
    first, second = set(WORD.findall(a.lower())), set(WORD.findall(b.lower()))
    return len(first & second) / max(len(first | second), 1)


def differ_in_fact(a: str, b: str) -> bool:
    """Tell whether only one of two texts has some number, name or negation."""
    return _facts(a) != _facts(b)


def _facts(text: str) -> set[str]:
    """Return the numbers, capitalised words and negations of a text, but for its first word."""
    words = WORD.findall(text)
    facts = {word for word in words[1:] if word[0].isupper()}
    facts |= {word for word in words if word[0].isdigit()}
    return facts | {word for word in map(str.lower, words) if word in _NEGATIONS}
