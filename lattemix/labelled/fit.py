"""Fit calibrations: which metric, and how its scores map to probabilities or ratings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

from lattemix.labelled.measures import Floats, log_loss, split
from lattemix.labelled.pairs import LabelledPairs
from model_store import Metric
from model_store.calibration import Method

Folds = NDArray[np.intp]  # [N]

METHODS: tuple[Method, ...] = get_args(Method)
FOLDS = 5

_LOGISTIC_KNOTS = 33
_PAIRS_PER_BIN, _MAX_BINS = 25, 40
_MIN_SLOPE = 1e-3  # per standard deviation of the scores: maps must increase
_TILT = 1e-3  # slope of a map where the labels show none, so that it never ties scores


@dataclass(frozen=True)
class Map:
    """A strictly increasing, piecewise linear map from scores to [0, 1]."""

    scores: Floats  # [K]
    values: Floats  # [K]

    def __call__(self, scores: Floats) -> Floats:
        """Return the value of each score."""
        return np.interp(scores, self.scores, self.values)


@dataclass(frozen=True)
class Choice:
    """The chosen metric and method, and their held-out predictions."""

    metric: Metric
    method: Method
    losses: Mapping[Metric, Mapping[Method, float]]  # held-out cross-entropy
    held_out: Floats  # [N], predictions of pairs by maps that were fitted without them


def choose(
    scores: Mapping[Metric, Floats],
    targets: Floats,
    folds: Folds,
    ranges: Mapping[Metric, tuple[float, float]],
) -> Choice:
    """Choose metric and method by cross-validation.

    The first metric with the logistic map is kept unless another combination has a lower held-out
    cross-entropy by more than the standard error of the difference: smaller ones are noise.

    Args:
        scores: scores [N] by metric, the recommended metric first.
        targets: labels from 0 to 1: [N].
        folds: the fold of each pair: [N].
        ranges: lowest and highest score of each metric.
    """
    predictions = {
        (metric, method): _held_out(method, values, targets, folds, ranges[metric])
        for metric, values in scores.items()
        for method in METHODS
    }
    losses = {key: log_loss(values, targets) for key, values in predictions.items()}  # [N] each
    first = best = next(iter(losses))
    for key, loss in losses.items():
        gain = losses[first] - loss
        error = gain.std() / np.sqrt(len(gain))
        if gain.mean() > error and loss.mean() < losses[best].mean():
            best = key
    means = {
        metric: {method: float(losses[metric, method].mean()) for method in METHODS}
        for metric in scores
    }
    return Choice(*best, means, predictions[best])


def assign_folds(pairs: LabelledPairs, seed: int = 0, folds: int = FOLDS) -> Folds:
    """Return the fold of each pair: [N]. Equal pairs share one; classes are spread evenly."""
    keys: dict[frozenset[str], int] = {}
    group = [
        keys.setdefault(frozenset(pair), len(keys)) for pair in zip(pairs.a, pairs.b, strict=True)
    ]
    _, first = np.unique(group, return_index=True)  # a pair of each group
    shuffled = np.random.default_rng(seed).permutation(len(first))
    by_label = shuffled[np.argsort(pairs.labels[first][shuffled], kind="stable")]
    fold = np.empty(len(first), np.intp)
    fold[by_label] = np.arange(len(first)) % folds
    result: Folds = fold[group]
    return result


def _held_out(
    method: Method, scores: Floats, targets: Floats, folds: Folds, score_range: tuple[float, float]
) -> Floats:
    predictions = np.empty(len(scores))
    for fold in np.unique(folds):
        held = folds == fold
        fitted = fit(method, scores[~held], targets[~held], score_range)
        predictions[held] = fitted(scores[held])
    return predictions


def fit(method: Method, scores: Floats, targets: Floats, score_range: tuple[float, float]) -> Map:
    """Fit a map of scores [N] to targets [N] in [0, 1], over all possible scores."""
    fitter = _fit_logistic if method == "logistic" else _fit_isotonic
    return _increasing(*fitter(scores, targets, score_range))


def _fit_logistic(
    scores: Floats, targets: Floats, score_range: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Platt scaling: a logistic curve, by maximum likelihood.

    Targets are drawn towards 1/2 by a pair of each class, as Platt did, so that separable pairs do
    not give a step.
    """
    mean, deviation = scores.mean(), scores.std() or 1.0
    x = (scores - mean) / deviation
    count = targets.sum(), (1 - targets).sum()
    high, low = (count[0] + 1) / (count[0] + 2), 1 / (count[1] + 2)
    smoothed = low + targets * (high - low)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        logits = parameters[0] * x + parameters[1]
        value = np.logaddexp(0, logits) - smoothed * logits
        slope = expit(logits) - smoothed
        return float(value.mean()), np.array([(slope * x).mean(), slope.mean()])

    bounds = [(_MIN_SLOPE, None), (None, None)]
    slope, intercept = minimize(loss, [1.0, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x
    low_score, high_score = score_range
    # Knots where the curve bends: between the scores of 0.1 % and 99.9 %.
    bend = (np.array([-7.0, 7.0]) - intercept) / slope * deviation + mean
    start, end = np.clip(bend, low_score, high_score)
    knots = np.unique(np.concatenate([np.linspace(start, end, _LOGISTIC_KNOTS), score_range]))
    return knots, expit(slope * (knots - mean) / deviation + intercept)


def _fit_isotonic(
    scores: Floats, targets: Floats, score_range: tuple[float, float]
) -> tuple[Floats, Floats]:
    """Isotonic regression on bins of about equally many pairs, with lines between their centres.

    Bins keep the few highest and lowest pairs from becoming probabilities of 1 and 0.
    """
    parts = split(scores, int(np.clip(len(scores) // _PAIRS_PER_BIN, 2, _MAX_BINS)))
    counts = np.array([len(part) for part in parts], np.float64)
    means = np.array([(targets[part].sum() + 0.5) / (len(part) + 1) for part in parts])
    centres = np.array([scores[part].mean() for part in parts])
    fitted = isotonic_regression(means, weights=counts).x
    low, high = score_range
    inside = (centres > low) & (centres < high)
    if not inside.any():  # every score is the lowest or the highest
        return np.array([low, high]), np.array([means[0], means[-1]])
    x, y = centres[inside], fitted[inside]
    return np.concatenate([[low], x, [high]]), np.concatenate([[y[0] / 2], y, [(1 + y[-1]) / 2]])


def _increasing(scores: Floats, values: Floats) -> Map:
    """Return a map with a minimum slope where the labels show no increase."""
    steps = (scores - scores[0]) / (scores[-1] - scores[0])
    return Map(scores, (1 - _TILT) * values.clip(0, 1) + _TILT * steps)
