"""The results of an evaluation: correlations, intervals and differences of methods by set."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from training.evaluate.sets import DEVELOPMENT, Pairs
from training.evaluate.statistics import (
    CORRELATIONS,
    SUBSET_AVERAGES,
    Bootstrap,
    Scores,
    SubsetAverage,
    correlate,
    interval,
)
from training.evaluate.tables import Record, SeedMean, Table

Method = tuple[str, str]  # (aggregation, pooling or metric)

POOLING, MIXTURE = "pooling", "mixture"
SERVED, SERVER = "served", "server"  # an artifact in this process, a model behind a URL
RANDOM = "random encoder"  # untrained encoder; learned token weights, if any, are kept
UNLEARNED = "nothing learned"  # untrained encoder, uniform token weights
MEAN_POOLING: Method = (POOLING, "mean")

AVERAGE = "average"  # over all sets but the development sets


@dataclass(frozen=True)
class Report:
    """Scores of the pairs of each set by each method, one array per seed."""

    sets: list[Pairs]
    recommended: str | None = None  # metric
    left_out: list[str] = field(default_factory=list)
    scores: dict[Method, dict[str, list[Scores]]] = field(default_factory=dict)
    _resampled: dict[tuple[Method, str], NDArray[np.float64]] = field(
        default_factory=dict, repr=False
    )

    def add(self, method: Method, benchmark: str, scores: Scores) -> None:
        """Add the scores of one seed on one set."""
        self.scores.setdefault(method, {}).setdefault(benchmark, []).append(scores)

    def values(
        self,
        method: Method,
        benchmark: str,
        statistic: str = "spearman",
        average: SubsetAverage = "all",
    ) -> list[float]:
        """The correlation x100 of every seed on a set, or on average."""
        if benchmark == AVERAGE:
            by_set = [self.values(method, name, statistic, average) for name in self._averaged]
            return [float(np.mean(seed)) for seed in zip(*by_set, strict=True)]
        pairs, correlation = self._pairs[benchmark], CORRELATIONS[statistic]
        gold = np.array(pairs.gold)
        return [
            correlate(correlation, scores, gold, pairs.subsets, average)
            for scores in self.scores[method][benchmark]
        ]

    def interval(self, method: Method, benchmark: str) -> tuple[float, float]:
        """95 % interval of the first seed's Spearman on a set, or on average."""
        return interval(self._resample(method, benchmark))

    def difference(self, method: Method, other: Method, benchmark: str) -> tuple[float, ...]:
        """Spearman of `method` minus that of `other`, first seeds, and its 95 % interval.

        Both are computed on the same resamples.
        """
        value = self.values(method, benchmark)[0] - self.values(other, benchmark)[0]
        resampled = self._resample(method, benchmark) - self._resample(other, benchmark)
        return value, *interval(resampled)

    @property
    def mixture_methods(self) -> list[Method]:
        """Mixtures by every metric: of the heads, else as served, else from a server."""
        for aggregation in (MIXTURE, SERVED, SERVER):
            if methods := [method for method in self.scores if method[0] == aggregation]:
                return methods
        return []

    @property
    def recommended_method(self) -> Method | None:
        """Mixtures by the recommended metric."""
        return next((m for m in self.mixture_methods if m[1] == self.recommended), None)

    def compared(self) -> Iterator[tuple[Method, Method]]:
        """Mixtures with mean pooling, and the recommended method with every control."""
        if MEAN_POOLING in self.scores:
            yield from ((method, MEAN_POOLING) for method in self.mixture_methods)
        poolings = ("centred mean", "weighted mean", "weighted centred mean")
        controls = [(POOLING, name) for name in poolings]
        controls += [(aggregation, str(self.recommended)) for aggregation in (RANDOM, UNLEARNED)]
        if method := self.recommended_method:
            yield from ((method, control) for control in controls if control in self.scores)

    @property
    def names(self) -> list[str]:
        """The names of the sets, and `average` if there are several."""
        return [pairs.name for pairs in self.sets] + [AVERAGE] * (len(self._averaged) > 1)

    def tables(self) -> list[Table]:
        """Spearman, differences and intervals, Pearson, and Spearman over subsets."""
        tables = [self._correlations("Spearman x100", "spearman", "all")]
        tables += [table for table in (self._differences(), self._intervals()) if table.rows]
        tables.append(self._correlations("Pearson x100", "pearson", "all"))
        if any(len(set(pairs.subsets)) > 1 for pairs in self.sets):
            for average in SUBSET_AVERAGES[1:]:
                title = f"Spearman x100, {average} over subsets"
                tables.append(self._correlations(title, "spearman", average))
        return tables

    def records(self) -> list[Record]:
        """Every figure, by method, set, statistic and aggregation over subsets."""
        records: list[Record] = []
        for method, pairs, statistic in product(self.scores, self.sets, CORRELATIONS):
            for average in SUBSET_AVERAGES if len(set(pairs.subsets)) > 1 else SUBSET_AVERAGES[:1]:
                values = self.values(method, pairs.name, statistic, average)
                record: dict[str, str | int | float | None] = {
                    "aggregation": method[0],
                    "metric": method[1],
                    "set": pairs.name,
                    "pairs": len(pairs),
                    "statistic": statistic,
                    "over": average,
                    "seeds": len(values),
                    **SeedMean.of(values)._asdict(),
                }
                if (statistic, average) == ("spearman", "all"):
                    record["low"], record["high"] = self.interval(method, pairs.name)
                records.append(record)
        return records

    @cached_property
    def _pairs(self) -> dict[str, Pairs]:
        return {pairs.name: pairs for pairs in self.sets}

    @property
    def _averaged(self) -> list[str]:
        return [pairs.name for pairs in self.sets if pairs.name not in DEVELOPMENT]

    @cached_property
    def _bootstraps(self) -> dict[str, Bootstrap]:
        return {pairs.name: Bootstrap(np.array(pairs.gold)) for pairs in self.sets}

    def _resample(self, method: Method, benchmark: str) -> NDArray[np.float64]:
        """Spearman of the first seed in every resample: [R]."""
        if benchmark == AVERAGE:
            return np.mean([self._resample(method, name) for name in self._averaged], axis=0)
        key = method, benchmark
        if key not in self._resampled:
            scores = self.scores[method][benchmark][0]
            self._resampled[key] = self._bootstraps[benchmark].spearman(scores)
        return self._resampled[key]

    def _correlations(self, title: str, statistic: str, average: SubsetAverage) -> Table:
        rows = []
        for method in self.scores:
            cells = [self.values(method, name, statistic, average) for name in self.names]
            rows.append([", ".join(method), *(str(SeedMean.of(values)) for values in cells)])
        return Table(title, self.names, rows)

    def _differences(self) -> Table:
        rows = []
        for method, other in self.compared():
            cells = [self.difference(method, other, name) for name in self.names]
            shown = [f"{value:+.2f} [{low:+.2f}, {high:+.2f}]" for value, low, high in cells]
            rows.append([f"{', '.join(method)} - {', '.join(other)}", *shown])
        title = "Differences in Spearman x100, 95 % paired bootstrap"
        return Table(title + self._seed_note, self.names, rows)

    def _intervals(self) -> Table:
        rows = []
        for method in (MEAN_POOLING, *self.mixture_methods):
            if method in self.scores:
                cells = [self.interval(method, name) for name in self.names]
                rows.append(
                    [", ".join(method), *(f"[{low:.2f}, {high:.2f}]" for low, high in cells)]
                )
        title = "95 % bootstrap intervals of Spearman x100"
        return Table(title + self._seed_note, self.names, rows)

    @property
    def _seed_note(self) -> str:
        several = any(len(s) > 1 for sets in self.scores.values() for s in sets.values())
        return " (first seeds only)" * several
