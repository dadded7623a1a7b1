"""Tables of the results."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from benchmarks.dedup.judge import Quality
from benchmarks.dedup.processes import Usage
from benchmarks.report import Table

PRECISION = 0.95


class Curve(NamedTuple):
    """The quality of a system by threshold."""

    points: Mapping[float, Quality]
    default: float  # threshold

    def at_precision(self, kind: str | None = None) -> tuple[float, float] | None:
        """Return the threshold and the recall at `PRECISION`, interpolated; None if never met.

        This is the lowest threshold from which on the precision is not lower. With a kind of edit,
        the recall is that of its pairs.
        """
        thresholds = sorted(self.points, reverse=True)
        if not thresholds or self.points[thresholds[0]].precision < PRECISION:
            return None
        for high, low in pairwise(thresholds):
            above, below = self.points[high].precision, self.points[low].precision
            if below < PRECISION:
                share = (above - PRECISION) / (above - below)
                recalls = [_recall(self.points[t], kind) for t in (high, low)]
                recall = recalls[0] + share * (recalls[1] - recalls[0])
                return high + share * (low - high), recall
        return thresholds[-1], _recall(self.points[thresholds[-1]], kind)


def _recall(quality: Quality, kind: str | None) -> float:
    if kind is None:
        return quality.recall
    return quality.found[kind] / max(quality.planted[kind], 1)


def tables(usages: Mapping[str, Sequence[Usage]], curves: Mapping[str, Curve]) -> list[Table]:
    """Return all tables."""
    kinds = sorted({kind for c in curves.values() for q in c.points.values() for kind in q.planted})
    all_tables = [
        _by_kind(f"Recall at precision {PRECISION}", curves, kinds, _at_precision),
        _by_kind("Recall at the default threshold", curves, kinds, _at_default),
        *(_curve(name, curve) for name, curve in curves.items()),
    ]
    if any(usages.values()):
        all_tables.insert(0, _usage(usages))
    return all_tables


def _usage(usages: Mapping[str, Sequence[Usage]]) -> Table:
    rows = [
        [
            name,
            f"{statistics.median(usage.seconds for usage in runs):,.0f}",
            f"{min(u.seconds for u in runs):,.0f}-{max(u.seconds for u in runs):,.0f}",
            f"{statistics.median(usage.cpu_seconds for usage in runs):,.0f}",
            f"{max(usage.megabytes for usage in runs):,.0f}",
        ]
        for name, runs in usages.items()
        if runs
    ]
    return Table(
        "From a file to files", ("system", "seconds", "range", "CPU seconds", "peak MB"), rows
    )


def _by_kind(
    title: str,
    curves: Mapping[str, Curve],
    kinds: Sequence[str],
    recall: Callable[[Curve, str | None], tuple[float, float] | None],
) -> Table:
    rows = []
    for name, curve in curves.items():
        values = [recall(curve, kind) for kind in (None, *kinds)]
        if values[0] is None:
            rows.append([name, "", *("never" for _ in values)])
        else:
            recalls = [f"{value[1]:.4f}" for value in values if value is not None]
            rows.append([name, f"{values[0][0]:.3f}", *recalls])
    return Table(title, ("system", "threshold", "all", *kinds), rows)


def _at_precision(curve: Curve, kind: str | None) -> tuple[float, float] | None:
    return curve.at_precision(kind)


def _at_default(curve: Curve, kind: str | None) -> tuple[float, float] | None:
    quality = curve.points.get(curve.default)
    return None if quality is None else (curve.default, _recall(quality, kind))


def _curve(name: str, curve: Curve) -> Table:
    columns = ("threshold", "dropped", "precision", "strict precision", "recall", "undecided")
    rows = [
        [
            f"{threshold:g}",
            f"{quality.right + quality.wrong + quality.undecided:,}",
            f"{quality.precision:.4f}",
            f"{quality.strict_precision:.4f}",
            f"{quality.recall:.4f}",
            f"{quality.undecided:,}",
        ]
        for threshold, quality in sorted(curve.points.items())
    ]
    return Table(name, columns, rows)
