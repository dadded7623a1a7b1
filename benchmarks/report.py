"""Markdown tables of measured series."""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.rounds import Series, Spread, ratios


class Table(NamedTuple):
    """A titled table with an optional note; `str()` gives aligned Markdown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        text = [self._line(line, widths) for line in lines]
        text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        note = f"\n{self.note}\n" if self.note else ""
        return f"### {self.title}\n\n" + "\n".join(text) + "\n" + note

    @staticmethod
    def _line(row: Sequence[str], widths: Sequence[int]) -> str:
        cells = (f" {cell:<{width}} " for cell, width in zip(row, widths, strict=True))
        return "|" + "|".join(cells) + "|"


def system_names(series: Series, workload: str, measure: str) -> list[str]:
    """Systems with a value of `measure` on a workload, in the order of the first round."""
    keys = (key.split("/", 2) for key in series)
    return [
        name
        for key_workload, name, key_measure in keys
        if (key_workload, key_measure) == (workload, measure)
    ]


def workload_names(series: Series) -> list[str]:
    """Workloads, in the order of the first round."""
    return list(dict.fromkeys(key.split("/")[0] for key in series))


def spread_cell(series: Series, key: str, spec: str = ",.0f") -> str:
    """Median and range of a measure; empty if it was not measured."""
    return f"{Spread.of(series[key]):{spec}}" if series.get(key) else ""


def ratio_cell(series: Series, numerator: str, denominator: str, spec: str = ".2f") -> str:
    """Median and range of a ratio within rounds; empty if either was not measured."""
    if not (series.get(numerator) and series.get(denominator)):
        return ""
    return f"{Spread.of(ratios(series[numerator], series[denominator])):{spec}}"
