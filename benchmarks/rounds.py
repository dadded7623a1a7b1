"""Contestants that take turns, and what their figures say of each other.

In every round each takes a turn, in an order that moves on by one from round to round, so that a
noisy machine is noisy for all. What is compared is compared within a round.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Figures = Mapping[str, float]  # what one turn measured
Series = dict[str, list[float]]  # "workload/contestant/measure" -> a value for every round
Turn = Callable[[int], Figures]  # takes the number of the round


class Spread(NamedTuple):
    """What a measurement came to over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def __format__(self, form: str) -> str:
        if self.low == self.high:
            return f"{self.median:{form}}"
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def order(names: Sequence[str], number: int) -> list[str]:
    """Who takes which turn in a round."""
    first = number % len(names) if names else 0
    return [*names[first:], *names[:first]]


def play(
    turns: Mapping[str, Turn], rounds: int, tell: Callable[[str], None] = lambda line: None
) -> Series:
    """Let every contestant take its turn in every round."""
    series: Series = {}
    for number in range(rounds):
        for name in order(list(turns), number):
            figures = turns[name](number)
            tell(f"  round {number + 1}, {name}: {_line(figures)}")
            for measure, value in figures.items():
                series.setdefault(f"{name}/{measure}", []).append(value)
    return series


def ratios(top: Sequence[float], bottom: Sequence[float]) -> list[float]:
    """How many times the second the first is, round by round."""
    return [a / b for a, b in zip(top, bottom, strict=True)]


def _line(figures: Figures) -> str:
    return ", ".join(f"{measure} {value:,.4g}" for measure, value in figures.items())
