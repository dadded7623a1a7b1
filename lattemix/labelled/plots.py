"""The plot of a calibration: reliability diagram, precision and recall by threshold."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lattemix.labelled.calibrate import CalibrationReport

_WIDTH, _HEIGHT = 4.2, 3.8  # of a panel, in inches


def draw(report: CalibrationReport, path: Path) -> None:
    """Write the plot as a PNG."""
    panels = 2 if report.curve else 1
    figure = Figure(figsize=(_WIDTH * panels, _HEIGHT), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, panels, squeeze=False)[0]
    _draw_reliability(axes[0], report)
    if report.curve:
        _draw_precision_recall(axes[1], report)
    figure.savefig(path, dpi=150)


def _draw_reliability(axis: Axes, report: CalibrationReport) -> None:
    calibration = report.calibration
    low, high = calibration.scale
    predicted, observed = (
        low + (high - low) * np.array([getattr(b, name) for b in report.bins])
        for name in ("predicted", "observed")
    )
    axis.plot([low, high], [low, high], color="0.7", linewidth=1, label="perfect calibration")
    axis.plot(predicted, observed, "o-", markersize=4, label="held-out pairs")
    is_rating = calibration.kind == "rating"
    axis.set(
        title=f"Reliability (calibration error {calibration.held_out['calibration_error']:.3f})",
        xlabel=f"predicted {calibration.kind}",
        ylabel="mean label" if is_rating else "share of matches",
    )
    axis.legend(framealpha=1, edgecolor="none")


def _draw_precision_recall(axis: Axes, report: CalibrationReport) -> None:
    thresholds = [point.threshold for point in report.curve]
    axis.plot(thresholds, [point.precision for point in report.curve], label="precision")
    axis.plot(thresholds, [point.recall for point in report.curve], label="recall")
    axis.set(
        title="Precision and recall by threshold",
        xlabel=f"threshold (score of {report.calibration.metric})",
        ylabel="precision, recall",
        ylim=(0, 1.02),
    )
    axis.legend(framealpha=1, edgecolor="none")
