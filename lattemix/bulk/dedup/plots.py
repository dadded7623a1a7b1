"""The plot of a run: pairs by score, and groups by size."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lattemix.bulk.dedup.summary import Summary

_WIDTH, _HEIGHT = 4.2, 3.4  # of a panel, in inches


def draw(summary: Summary, path: Path) -> None:
    """Write the plot as a PNG."""
    figure = Figure(figsize=(2 * _WIDTH, _HEIGHT), layout="constrained")
    scores, sizes = figure.subplots(1, 2)
    _draw_scores(scores, summary)
    _draw_sizes(sizes, summary)
    figure.savefig(path, dpi=150)


def _draw_scores(axis: Axes, summary: Summary) -> None:
    scorers = [summary.candidates_by, summary.rescored_by]
    names = " and ".join(f"{s.metric} of {s.model}" for s in scorers if s is not None)
    lefts = [float(score) for score in summary.scores]
    axis.bar(lefts, [*summary.scores.values()], width=0.01, align="edge")
    axis.axvline(summary.threshold, color="0.3", linestyle="--", label="threshold")
    axis.set(title="Candidate pairs by score", ylabel="pairs")
    axis.set_xlabel(names if summary.rescored_by is None else f"mean of {names}")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False)


def _draw_sizes(axis: Axes, summary: Summary) -> None:
    sizes = [*summary.group_sizes]
    axis.bar(sizes, [*summary.group_sizes.values()], width=0.8)
    axis.set(title="Groups of near-duplicates", xlabel="rows in the group", ylabel="groups")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if max(sizes, default=0) > 50:
        axis.set_xscale("log")
    if max(summary.group_sizes.values(), default=0) > 50:
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.5)  # else a single group has no bar
