"""Pictures of a report: how scores follow people's judgement, and what is better than what."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.evaluate.report import MEAN, Report, Way
from training.evaluate.statistics import spearman
from training.panels import panels


def draw(report: Report, directory: Path) -> None:
    """`scatter.png`, and `differences.png` if there is something to compare."""
    ways = [way for way in (MEAN, report.best) if way and way in report.scores]
    _scatter(report, ways, directory / "scatter.png")
    compared = [(way, other) for way, other in report.compared() if other == MEAN]
    if compared:
        _differences(report, [way for way, _ in compared], directory / "differences.png")


def _scatter(report: Report, ways: Sequence[Way], path: Path) -> None:
    """Every pair: people's score, and ours."""
    shown = [(pairs, way) for pairs in report.sets for way in ways]
    titles = [f"{pairs.name}: {way[0]}, {way[1]}" for pairs, way in shown]
    with panels(path, titles) as axes:
        for axis, (pairs, way) in zip(axes, shown, strict=True):
            scores, gold = report.scores[way][pairs.name][0], np.array(pairs.gold)
            axis.scatter(gold, scores, s=4, alpha=0.25, linewidths=0)
            axis.set_xlabel("people")
            axis.set_ylabel("similarity")
            label = f"Spearman {spearman(scores, gold):.1f}"
            axis.text(0.04, 0.96, label, transform=axis.transAxes, va="top")


def _differences(report: Report, ways: Sequence[Way], path: Path) -> None:
    """Spearman above mean pooling's, by set, with the 95 % interval."""
    names = report.names
    with panels(path, [f"{way[0]}, {way[1]}" for way in ways]) as axes:
        for axis, way in zip(axes, ways, strict=True):
            found = [report.difference(way, MEAN, name) for name in names]
            values, low, high = np.array(found).T
            sure = (low > 0) | (high < 0)
            colours = np.where(sure, "tab:blue", "lightsteelblue")  # pale: it may be chance
            axis.barh(names, values, color=colours)
            axis.errorbar(values, names, xerr=[values - low, high - values], fmt="none", ecolor="k")
            axis.axvline(0, color="k", linewidth=0.8)
            axis.invert_yaxis()
            axis.set_xlabel("Spearman x100 above mean pooling")
            axis.sharex(axes[0])
