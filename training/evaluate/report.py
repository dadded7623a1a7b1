"""The scores of every way of comparing on every set, and what follows from them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from training.evaluate.sets import DEVELOPMENT, Pairs
from training.evaluate.statistics import (
    CORRELATIONS,
    OVERS,
    Bootstrap,
    Over,
    Scores,
    correlate,
    interval,
)
from training.evaluate.tables import Record, Table, mean_and_deviation

POOLING, MIXTURE = "pooling", "mixture"
SERVED, REMOTE = "served", "server"  # a model in this process, and one behind a URL
CONTROL, NOTHING = "random encoder", "nothing learned"  # the latter where weights are learned
AVERAGE = "average"  # over the sets that nothing is chosen on

Way = tuple[str, str]  # a way of comparing: (aggregation, pooling or metric)
MEAN: Way = (POOLING, "mean")


@dataclass(frozen=True)
class Report:
    """Similarities of the pairs of each set by each way of comparing, one row per seed."""

    sets: list[Pairs]
    recommended: str | None = None  # metric
    left_out: list[str] = field(default_factory=list)
    scores: dict[Way, dict[str, list[Scores]]] = field(default_factory=dict)
    _draws: dict[tuple[Way, str], NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def add(self, way: Way, benchmark: str, scores: Scores) -> None:
        """Take in the scores of one set, of one seed."""
        self.scores.setdefault(way, {}).setdefault(benchmark, []).append(scores)

    def values(
        self, way: Way, benchmark: str, statistic: str = "spearman", over: Over = "all"
    ) -> list[float]:
        """A correlation x100 with people, of every seed."""
        pairs, correlation = self._pairs[benchmark], CORRELATIONS[statistic]
        gold = np.array(pairs.gold)
        return [
            correlate(correlation, scores, gold, pairs.subsets, over)
            for scores in self.scores[way][benchmark]
        ]

    def averages(self, way: Way, statistic: str = "spearman", over: Over = "all") -> list[float]:
        """Over the sets that nothing is chosen on, of every seed."""
        by_set = [self.values(way, name, statistic, over) for name in self._reported]
        return [float(np.mean(seed)) for seed in zip(*by_set, strict=True)]

    def interval(self, way: Way, benchmark: str) -> tuple[float, float]:
        """95 % interval of the first seed's Spearman on a set, or on average."""
        return interval(self._drawn(way, benchmark))

    def difference(self, way: Way, other: Way, benchmark: str) -> tuple[float, float, float]:
        """How much higher the first seed of `way` is than of `other`, with its 95 % interval.

        The pairs are drawn anew, the same ones for both.
        """
        names = self._reported if benchmark == AVERAGE else [benchmark]
        each = [self.values(way, n)[0] - self.values(other, n)[0] for n in names]
        draws = self._drawn(way, benchmark) - self._drawn(other, benchmark)
        return float(np.mean(each)), *interval(draws)

    def tables(self) -> list[Table]:
        """The headline, its differences and intervals, and the other ways to count."""
        tables = [self._table("Spearman x100", "spearman", "all")]
        tables += [table for table in (self._differences(), self._intervals()) if table.rows]
        tables.append(self._table("Pearson x100", "pearson", "all"))
        if any(len(set(pairs.subsets)) > 1 for pairs in self.sets):
            for over in OVERS[1:]:
                tables.append(self._table(f"Spearman x100, {over} over parts", "spearman", over))
        return tables

    def records(self) -> list[Record]:
        """Every figure, by way, set, statistic and aggregation over the parts of a set."""
        return [
            {
                "aggregation": way[0],
                "metric": way[1],
                "set": pairs.name,
                "pairs": len(pairs),
                "statistic": statistic,
                "over": over,
                "seeds": len(values := self.values(way, pairs.name, statistic, over)),
                "mean": float(np.mean(values)),
                "deviation": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                **self._limits(way, pairs, statistic, over),
            }
            for way in self.scores
            for pairs in self.sets
            for statistic in CORRELATIONS
            for over in (OVERS if len(set(pairs.subsets)) > 1 else OVERS[:1])
        ]

    @property
    def ours(self) -> list[Way]:
        """Mixtures by every metric: the heads', or what is served where no head was measured."""
        for kind in (MIXTURE, SERVED, REMOTE):
            if found := [way for way in self.scores if way[0] == kind]:
                return found
        return []

    @property
    def best(self) -> Way | None:
        """Mixtures by the recommended metric."""
        return next((way for way in self.ours if way[1] == self.recommended), None)

    def compared(self) -> Iterator[tuple[Way, Way]]:
        """Which differences matter: all of ours with mean pooling, the best with every control."""
        if MEAN in self.scores:
            yield from ((way, MEAN) for way in self.ours)
        controls = [(POOLING, "centred mean"), (POOLING, "weighted mean")]
        controls += [(POOLING, "weighted centred mean")]
        controls += [(kind, str(self.recommended)) for kind in (CONTROL, NOTHING)]
        if best := self.best:
            yield from ((best, control) for control in controls if control in self.scores)

    @property
    def names(self) -> list[str]:
        """Of the sets, and of their average if there are several."""
        return [pairs.name for pairs in self.sets] + [AVERAGE] * (len(self._reported) > 1)

    @cached_property
    def _pairs(self) -> dict[str, Pairs]:
        return {pairs.name: pairs for pairs in self.sets}

    @property
    def _reported(self) -> list[str]:
        return [pairs.name for pairs in self.sets if pairs.name not in DEVELOPMENT]

    @cached_property
    def _bootstraps(self) -> dict[str, Bootstrap]:
        return {pairs.name: Bootstrap(np.array(pairs.gold)) for pairs in self.sets}

    def _drawn(self, way: Way, benchmark: str) -> NDArray[np.float64]:
        """Spearman of the first seed in every draw: [R]."""
        if benchmark == AVERAGE:
            return np.mean([self._drawn(way, name) for name in self._reported], axis=0)
        if (way, benchmark) not in self._draws:
            found = self._bootstraps[benchmark].spearman(self.scores[way][benchmark][0])
            self._draws[way, benchmark] = found
        return self._draws[way, benchmark]

    def _limits(self, way: Way, pairs: Pairs, statistic: str, over: str) -> Record:
        if (statistic, over) != ("spearman", "all"):
            return {}
        low, high = self.interval(way, pairs.name)
        return {"low": low, "high": high}

    def _table(self, title: str, statistic: str, over: Over) -> Table:
        rows = []
        for way in self.scores:
            cells = [self.values(way, pairs.name, statistic, over) for pairs in self.sets]
            if AVERAGE in self.names:
                cells.append(self.averages(way, statistic, over))
            rows.append([_name(way), *map(mean_and_deviation, cells)])
        return Table(title, self.names, rows)

    def _differences(self) -> Table:
        rows = []
        for way, other in self.compared():
            cells = [self.difference(way, other, name) for name in self.names]
            shown = [f"{value:+.2f} [{low:+.2f}, {high:+.2f}]" for value, low, high in cells]
            rows.append([f"{_name(way)} - {_name(other)}", *shown])
        title = "Differences in Spearman x100, 95 % paired bootstrap"
        return Table(title + self._of_first, self.names, rows)

    def _intervals(self) -> Table:
        ways = [way for way in (MEAN, *self.ours) if way in self.scores]
        rows = [
            [_name(way), *(f"[{low:.2f}, {high:.2f}]" for low, high in intervals)]
            for way in ways
            for intervals in [[self.interval(way, name) for name in self.names]]
        ]
        title = "95 % bootstrap intervals of Spearman x100"
        return Table(title + self._of_first, self.names, rows)

    @property
    def _of_first(self) -> str:
        several = any(len(s) > 1 for sets in self.scores.values() for s in sets.values())
        return " (of the first seeds)" * several


def _name(way: Way) -> str:
    return f"{way[0]}, {way[1]}"
