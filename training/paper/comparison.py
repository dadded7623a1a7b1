"""Our figures beside the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from training.evaluate.report import AVERAGE
from training.evaluate.statistics import spearman
from training.evaluate.tables import Record, Table
from training.paper.published import Figure, PublishedTable, Row

AGREEMENT = "order of the rows: rank correlation with the paper's, x100"

_FEWEST = 3  # rows whose order says anything


@dataclass(frozen=True)
class Comparison:
    """What was measured, by method and set: one value per seed."""

    table: PublishedTable
    sources: Mapping[str, str]  # of the backbones
    left_out: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, row: Row, benchmark: str, values: Sequence[float]) -> None:
        """Take in the figures of one row on one set."""
        self.values[row.method, benchmark] = list(values)

    def ours(self, row: Row, benchmark: str) -> Figure | None:
        """What we found over the seeds; the average over sets only where all of them are there."""
        if benchmark != AVERAGE:
            return _figure(self.values.get((row.method, benchmark), []))
        each = [self.values.get((row.method, name), []) for name in self.sets]
        return _figure([float(np.mean(seed)) for seed in zip(*each, strict=True)])

    def theirs(self, row: Row, benchmark: str) -> Figure:
        """What the paper reports."""
        if benchmark != AVERAGE:
            return row.figures[benchmark]
        return Figure(float(np.mean([row.figures[name].mean for name in self.sets])))

    @property
    def rows(self) -> list[Row]:
        """Those measured."""
        measured = {method for method, _ in self.values}
        return [row for row in self.table.rows if row.method in measured]

    @property
    def sets(self) -> list[str]:
        """Those measured."""
        measured = {name for _, name in self.values}
        return [name for name in self.table.sets if name in measured]

    @property
    def columns(self) -> list[str]:
        """The sets, and their average if they are alike and several."""
        averaged = len(self.sets) > 1 and not self.table.is_of_words
        return self.sets + [AVERAGE] * averaged

    def tables(self) -> list[Table]:
        """`ours / the paper's`."""
        rows = [
            [self._name(row), *(self._cell(row, name) for name in self.columns)]
            for row in self.rows
        ]
        if len(rows) >= _FEWEST:
            rows.append([AGREEMENT, *map(self._agreement, self.columns)])
        return [Table(f"{self.table.title}: ours / the paper's", self.columns, rows)]

    def records(self) -> list[Record]:
        """Every figure with its counterpart."""
        return [
            {
                "table": self.table.name,
                "method": row.method,
                "backbone": row.backbone,
                "source": self.sources[row.backbone],
                "layer": row.layer,
                "set": name,
                "seeds": len(self.values.get((row.method, name), [])) or None,
                "mean": ours.mean,
                "deviation": ours.deviation,
                "paper_mean": self.theirs(row, name).mean,
                "paper_deviation": self.theirs(row, name).deviation,
            }
            for row in self.rows
            for name in self.columns
            if (ours := self.ours(row, name))
        ]

    def _cell(self, row: Row, benchmark: str) -> str:
        return f"{self.ours(row, benchmark) or 'none'} / {self.theirs(row, benchmark)}"

    def _name(self, row: Row) -> str:
        """The method in the paper's words, and the backbone that it was really measured on."""
        source = self.sources[row.backbone].rstrip("/").rsplit("/", 1)[-1]
        return f"{row.method} ({source})"

    def _agreement(self, benchmark: str) -> str:
        both = [
            (ours.mean, self.theirs(row, benchmark).mean)
            for row in self.rows
            if (ours := self.ours(row, benchmark))
        ]
        return f"{spearman(*np.array(both).T):.0f}" if len(both) >= _FEWEST else "none"


def _figure(values: Sequence[float]) -> Figure | None:
    if not values:
        return None
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Figure(float(np.mean(values)), deviation)
