"""Reports for people and for programs: on the terminal, as Markdown, as JSON and as CSV."""

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

Record = Mapping[str, str | int | float | None]


@dataclass(frozen=True)
class Table:
    """A title, names for the columns after the first, and rows that begin with their own name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def markdown(self) -> str:
        """As text."""
        lines = [["", *self.columns], ["---"] * (len(self.columns) + 1), *self.rows]
        return f"{self.title}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def show(self, console: Console) -> None:
        """On a terminal."""
        table = RichTable(title=self.title, title_justify="left", title_style="bold")
        table.add_column("")
        for column in self.columns:
            table.add_column(column, justify="right")
        for row in self.rows:
            table.add_row(*map(Text, row))  # an interval's brackets are no markup
        console.print(table)


class Reportable(Protocol):
    """Something with results."""

    @property
    def left_out(self) -> Sequence[str]:
        """What is not in the results, and why."""

    def tables(self) -> Sequence[Table]:
        """The results for people, the first table the most important."""

    def records(self) -> Sequence[Record]:
        """The results for programs: every figure with everything that identifies it."""


def markdown(report: Reportable) -> str:
    """The whole report."""
    parts = [table.markdown for table in report.tables()]
    if report.left_out:
        parts.append("Left out:\n\n" + "\n".join(f"- {note}" for note in report.left_out))
    return "\n\n".join(parts)


def show(report: Reportable) -> None:
    """On the terminal; as Markdown where it is none."""
    if not sys.stdout.isatty():
        print(markdown(report))
        return
    console = Console()
    for table in report.tables():
        table.show(console)
    for note in report.left_out:
        console.print(f"Left out: {note}", style="yellow", markup=False, highlight=False)


def write(report: Reportable, directory: Path) -> None:
    """As `report.md`, `report.json` and `report.csv`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "report.md").write_text(markdown(report) + "\n", encoding="utf-8")
    records = [_plain(record) for record in report.records()]
    everything = {"results": records, "left_out": list(report.left_out)}
    text = json.dumps(everything, indent=1, ensure_ascii=False, allow_nan=False)
    (directory / "report.json").write_text(text + "\n", encoding="utf-8")
    with (directory / "report.csv").open("w", encoding="utf-8", newline="") as file:
        columns = list(dict.fromkeys(key for record in records for key in record))
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(records)


def _plain(record: Record) -> dict[str, str | int | float | None]:
    """JSON knows no NaN: what could not be computed is null, and empty in a CSV."""

    def value(entry: str | int | float | None) -> str | int | float | None:
        if isinstance(entry, float):
            return round(entry, 4) if math.isfinite(entry) else None
        return entry

    return {key: value(entry) for key, entry in record.items()}


def mean_and_deviation(values: Sequence[float]) -> str:
    """Of several seeds; the one figure where there is one."""
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean
