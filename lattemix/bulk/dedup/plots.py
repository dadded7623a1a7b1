"""The plot of a run: pairs by score, and groups by size."""

import sys
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from lattemix.bulk.dedup.summary import Summary

_WIDTH, _HEIGHT = 4.2, 3.4  # of a panel, in inches
# Groups of these sizes share a bar: a run has groups of two, and perhaps some of thousands.
_SIZES = {
    "2": range(2, 3),
    "3": range(3, 4),
    "4-5": range(4, 6),
    "6-10": range(6, 11),
    "11-20": range(11, 21),
    "21-100": range(21, 101),
    ">100": range(101, sys.maxsize),
}


def draw(summary: Summary, path: Path) -> None:
    """Write the plot as a PNG."""
    plot(summary).savefig(path, dpi=150)


def plot(summary: Summary) -> Figure:
    """Plot a run."""
    figure = Figure(figsize=(2 * _WIDTH, _HEIGHT), layout="constrained")
    scores, sizes = figure.subplots(1, 2)
    _draw_scores(scores, summary)
    _draw_sizes(sizes, summary)
    return figure


def _draw_scores(axis: Axes, summary: Summary) -> None:
    counts = [*summary.scores.values()]
    lefts = [float(score) for score in summary.scores]
    axis.bar(lefts, counts, width=0.01, align="edge")
    axis.axvline(
        summary.threshold, color="0.3", linestyle="--", label=f"threshold {summary.threshold:g}"
    )
    axis.set(title="Candidate pairs by score", ylabel="pairs")
    axis.set_xlabel(_score_name(summary), fontsize="small" if summary.rescored_by else None)
    _count_from_zero(axis, counts)
    axis.legend(framealpha=1, edgecolor="none")


def _score_name(summary: Summary) -> str:
    """Name the metric and the model of the scores; two models have a line each."""
    first, second = (
        scorer and f"{scorer.metric} of {scorer.model}"
        for scorer in (summary.candidates_by, summary.rescored_by)
    )
    return f"score: {first}" if second is None else f"mean of {first}\nand {second}"


def _draw_sizes(axis: Axes, summary: Summary) -> None:
    counts = by_size(summary.group_sizes)
    bars = axis.bar([*counts], [*counts.values()])
    axis.bar_label(bars, [f"{count:,}" for count in counts.values()])
    axis.set(title="Groups of near-duplicates", xlabel="rows in the group", ylabel="groups")
    axis.tick_params("x", labelsize="small")
    axis.margins(y=0.1)  # room for the numbers
    _count_from_zero(axis, [*counts.values()])


def by_size(groups: Mapping[int, int]) -> dict[str, int]:
    """Count groups by ranges of sizes, from their number by size, up to the largest group."""
    largest = max(groups, default=2)
    return {
        name: sum(count for size, count in groups.items() if size in sizes)
        for name, sizes in _SIZES.items()
        if sizes.start <= largest
    }


def _count_from_zero(axis: Axes, counts: list[int]) -> None:
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if not any(counts):
        axis.set_ylim(0, 1)
