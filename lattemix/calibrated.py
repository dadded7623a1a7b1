"""Probabilities and ratings beside scores, and thresholds given as one."""

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from model_store import LatteMixError, Metric
from model_store.calibration import Calibration

Floats = NDArray[np.float32]

PLURALS: dict[str, str] = {"probability": "probabilities", "rating": "ratings"}

# What a threshold is compared with.
ThresholdOn = Literal["score", "probability", "rating"]


class CalibrationError(LatteMixError):
    """The model has no such calibration."""


def calibrated(
    calibration: Calibration | None, scores: Mapping[str, NDArray[np.floating]]
) -> dict[str, Floats]:
    """Return the probability or rating of scores [N], by its name.

    Empty if the model has no calibration, or `scores`, by metric, lacks the one that it maps.
    """
    if calibration is None or calibration.metric not in scores:
        return {}
    return {calibration.kind: calibration.apply(scores[calibration.metric]).astype(np.float32)}


def score_threshold(
    threshold: float | None, on: ThresholdOn, calibration: Calibration | None, metric: Metric
) -> float | None:
    """Return the threshold as a score of the metric.

    Raises:
        CalibrationError: the model cannot convert it.
    """
    if on not in get_args(ThresholdOn):
        known = ", ".join(get_args(ThresholdOn))
        raise CalibrationError(f"threshold_on is {on!r}: choose among {known}.")
    if on == "score":
        return threshold
    if threshold is None:
        raise CalibrationError(f"threshold_on is {on!r}, and there is no threshold.")
    if calibration is None:
        raise CalibrationError(
            f"threshold_on is {on!r}, and the model has no calibration: fit one with `lattemix "
            'calibrate`, or use "score".'
        )
    if calibration.kind != on:
        raise CalibrationError(
            f"threshold_on is {on!r}, and the model's calibration gives a {calibration.kind}: use "
            f'"{calibration.kind}" or "score".'
        )
    if calibration.metric != metric:
        raise CalibrationError(
            f"threshold_on is {on!r}, which was fitted on {calibration.metric!r}, not on "
            f"{metric!r}: leave out metric."
        )
    low, high = calibration.scale
    if not low <= threshold <= high:
        raise CalibrationError(f"threshold is {threshold:g}: a {on} is from {low:g} to {high:g}.")
    return calibration.smallest_score(threshold)
