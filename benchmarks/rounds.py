"""Rounds of measurements.

Every system is measured once per round, and the order rotates from round to round, so that
noise on the machine affects all alike. Ratios are taken within a round.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Figures = Mapping[str, float]  # measure -> value, of one measurement
Series = dict[str, list[float]]  # "workload/system/measure" -> one value per round
Measurement = Callable[[int], Figures]  # takes the round's number


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    seconds: float  # approximate duration of one measurement of a slow system
    quick: bool
    sts: str | None = None  # a file of the STS benchmark

    @property
    def few_rounds(self) -> int:
        """Rounds of slow or secondary measurements."""
        return 1 if self.quick else max(1, self.rounds // 3)

    def sentences(self, tokens: float = 14.0) -> int:
        """Sentences per measurement, given their mean length; a multiple of 32."""
        return max(16, round(self.seconds * 7168 / tokens / 32)) * 32


class Spread(NamedTuple):
    """Median and range of a measure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise one or more values."""
        return cls(statistics.median(values), min(values), max(values))

    def __format__(self, spec: str) -> str:
        if self.low == self.high:
            return f"{self.median:{spec}}"
        return f"{self.median:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def run_rounds(measurements: Mapping[str, Measurement], rounds: int) -> Series:
    """Take every measurement, named "workload/system", once per round."""
    series: Series = {}
    names = list(measurements)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            record(series, name, measurements[name](number), f"round {number + 1}")
    return series


def record(series: Series, name: str, figures: Figures, heading: str) -> None:
    """Append the figures of one measurement, and print them."""
    values = ", ".join(f"{measure} {value:,.4g}" for measure, value in figures.items())
    print(f"  {heading}, {name}: {values}", flush=True)
    for measure, value in figures.items():
        series.setdefault(f"{name}/{measure}", []).append(value)


def ratios(numerator: Sequence[float], denominator: Sequence[float]) -> list[float]:
    """Divide two measures round by round."""
    return [a / b for a, b in zip(numerator, denominator, strict=True)]
