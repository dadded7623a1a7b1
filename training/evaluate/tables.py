"""Reports on the terminal, as Markdown, JSON and CSV."""

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

Record = Mapping[str, str | int | float | None]


class SeedMean(NamedTuple):
    """A mean over seeds, with its standard deviation if there are several."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "SeedMean":
        """Aggregate the values of several seeds."""
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), deviation)

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}"


@dataclass(frozen=True)
class Table:
    """A titled table; the first cell of a row is its label, and `columns` name the others."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [["", *self.columns], ["---"] * (len(self.columns) + 1), *self.rows]
        return f"{self.title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def show(self, console: Console) -> None:
        """Print the table on a terminal."""
        table = RichTable(title=self.title, title_justify="left", title_style="bold")
        table.add_column("")
        for column in self.columns:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(*map(Text, row))  # Text: the brackets of an interval are not markup
        console.print(table)


class Reportable(Protocol):
    """Results that can be shown and written."""

    @property
    def left_out(self) -> Sequence[str]:
        """Notes on what the results do not cover, and why."""

    def tables(self) -> Sequence[Table]:
        """The results for people, most important table first."""

    def records(self) -> Sequence[Record]:
        """The results for programs: one record per figure."""


def markdown(report: Reportable) -> str:
    """The report as Markdown."""
    parts = [table.markdown for table in report.tables()]
    if report.left_out:
        parts.append("Left out:\n\n" + "\n".join(f"- {note}" for note in report.left_out))
    return "\n\n".join(parts)


def show(report: Reportable) -> None:
    """Print the report: tables on a terminal, else Markdown."""
    if not sys.stdout.isatty():
        print(markdown(report))
        return
    console = Console()
    for table in report.tables():
        table.show(console)
    for note in report.left_out:
        console.print(f"Left out: {note}", style="yellow", markup=False, highlight=False)


def write(report: Reportable, directory: Path) -> None:
    """Write `report.md`, `report.json` and `report.csv`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.md").write_text(markdown(report) + "\n", encoding="utf-8")
    records = [{key: _plain(value) for key, value in r.items()} for r in report.records()]
    content = {"results": records, "left_out": list(report.left_out)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (directory / "report.json").write_text(text + "\n", encoding="utf-8")
    with (directory / "report.csv").open("w", encoding="utf-8", newline="") as file:
        columns = list(dict.fromkeys(key for record in records for key in record))
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(records)


def _plain(value: str | int | float | None) -> str | int | float | None:
    """Round floats; NaN becomes null, which JSON can hold."""
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value
