"""Tables of what was measured, for a terminal and for `bench.md`."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.rounds import Series, Spread, ratios


class Table(NamedTuple):
    """A title, columns and rows, and what there is to know about them."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def __str__(self) -> str:
        """In Markdown, its columns aligned."""
        every = [self.columns, *self.rows]
        widths = [max(len(row[i]) for row in every) for i in range(len(self.columns))]
        lines = [self._line(row, widths) for row in every]
        lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
        text = f"### {self.title}\n\n" + "\n".join(lines) + "\n"
        return text + (f"\n{self.note}\n" if self.note else "")

    @staticmethod
    def _line(row: Sequence[str], widths: Sequence[int]) -> str:
        cells = (f" {cell:<{width}} " for cell, width in zip(row, widths, strict=True))
        return "|" + "|".join(cells) + "|"


def contestants(series: Series, workload: str, measure: str) -> list[str]:
    """Who was measured so, in the order of their first turns."""
    ends = (key.split("/") for key in series)
    return [who for what, who, which in ends if (what, which) == (workload, measure)]


def workloads(series: Series) -> list[str]:
    """What they were measured on."""
    return list(dict.fromkeys(key.split("/")[0] for key in series))


def cell(series: Series, key: str, form: str = ",.0f") -> str:
    """Median and range of what was measured; nothing where it was not."""
    return f"{Spread.of(series[key]):{form}}" if series.get(key) else ""


def middle(series: Series, key: str, form: str = ",.0f") -> str:
    """The median alone, of what matters less."""
    return f"{Spread.of(series[key]).median:{form}}" if series.get(key) else ""


def beside(series: Series, top: str, bottom: str, form: str = ".2f") -> str:
    """How many times the second the first is, within a round."""
    if not (series.get(top) and series.get(bottom)):
        return ""
    return f"{Spread.of(ratios(series[top], series[bottom])):{form}}"


def written(tables: Iterable[Table]) -> str:
    """All of them."""
    return "\n".join(str(table) for table in tables)
