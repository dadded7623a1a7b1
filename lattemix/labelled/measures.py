"""How well scores agree with labels, in numpy: the server measures, too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

Floats = NDArray[np.float64]

Goal = Literal["precision", "recall"]

RESAMPLES = 1000
_BLOCK = 2_000_000  # numbers of weights in memory at once
_MAX_BINS, _PAIRS_PER_BIN = 10, 25


class Estimate(BaseModel):
    """A measured number and its 95 % interval, by bootstrap over pairs."""

    value: float
    low: float | None = Field(description="Null if no resample defines the number.")
    high: float | None

    @classmethod
    def of(cls, value: float, samples: Floats) -> "Estimate":
        """Return a number with the interval of its resamples."""
        finite = samples[np.isfinite(samples)]
        low, high = np.percentile(finite, [2.5, 97.5]).tolist() if finite.size else (None, None)
        return cls(value=value, low=low, high=high)

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}{interval}"


class Threshold(BaseModel):
    """The threshold that a wanted precision or recall needs, and what it gives."""

    goal: Goal
    wanted: float
    score: Estimate
    precision: Estimate
    recall: Estimate


class CurvePoint(BaseModel):
    """Precision and recall of a threshold."""

    threshold: float
    precision: float
    recall: float


class Bin(BaseModel):
    """Pairs of similar predictions: their mean prediction and mean target."""

    predicted: float
    observed: float
    pairs: int


@dataclass(frozen=True)
class Resamples:
    """Bootstrap resamples of N pairs as weights, shared so that differences are paired."""

    pairs: int
    count: int = RESAMPLES
    seed: int = 0

    def estimate(self, measure: Callable[[Floats], Floats]) -> Estimate:
        """Return a measure with its interval; `measure` maps weights [R, N] to values [R]."""
        value = measure(np.ones((1, self.pairs)))[0]
        return Estimate.of(float(value), self.values(measure))

    def values(self, measure: Callable[[Floats], Floats]) -> Floats:
        """Return a measure in every resample: [R, ...]."""
        rng = np.random.default_rng(self.seed)
        rows = max(1, _BLOCK // self.pairs)
        blocks = []
        for start in range(0, self.count, rows):
            shape = (min(rows, self.count - start), self.pairs)
            draws = rng.integers(self.pairs, size=shape)  # [r, N]
            draws += np.arange(shape[0])[:, None] * self.pairs
            weights = np.bincount(draws.ravel(), minlength=shape[0] * self.pairs)
            blocks.append(measure(weights.reshape(shape).astype(np.float64)))
        return np.concatenate(blocks)


class Ranking:
    """Pairs ordered by score, highest first; pairs of equal scores cannot be separated."""

    def __init__(self, scores: Floats, matches: Floats) -> None:
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        self._order, self._matches = order, matches[order]  # [N], 1 for a match
        # The last pair of each distinct score.
        self._ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))  # [T]
        self.thresholds = ordered[self._ends]  # [T]

    def _counts(self, weights: Floats) -> tuple[Floats, Floats]:
        """Matches and other pairs that reach each threshold: [R, T] each."""
        weights = weights[:, self._order]
        matches = (weights * self._matches).cumsum(axis=1)[:, self._ends]
        return matches, weights.cumsum(axis=1)[:, self._ends] - matches

    def auc(self, weights: Floats) -> Floats:
        """Area under the ROC curve: [R]."""
        matches, others = self._counts(weights)
        before = np.pad(matches, ((0, 0), (1, 0)))[:, :-1]
        steps = np.diff(others, axis=1, prepend=0)
        areas = (steps * (matches + before) / 2).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = areas / (matches[:, -1] * others[:, -1])
        return result

    def average_precision(self, weights: Floats) -> Floats:
        """Average precision: [R]."""
        matches, others = self._counts(weights)
        steps = np.diff(matches, axis=1, prepend=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = (steps * matches / (matches + others)).sum(axis=1) / matches[:, -1]
        return result

    def curve(self) -> tuple[Floats, Floats]:
        """Precision and recall at each threshold: [T] each."""
        precision, recall = self._curves(np.ones((1, len(self._order))))
        return precision[0], recall[0]

    def points(self, limit: int = 200) -> list[CurvePoint]:
        """Return the curve, thinned to `limit` thresholds, highest first."""
        precision, recall = self.curve()
        count = len(self.thresholds)
        rows = np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))
        columns = (self.thresholds[rows], precision[rows], recall[rows])
        return [
            CurvePoint(threshold=t, precision=p, recall=r)
            for t, p, r in zip(*map(np.ndarray.tolist, columns), strict=True)
        ]

    def _curves(self, weights: Floats) -> tuple[Floats, Floats]:
        matches, others = self._counts(weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            return matches / (matches + others), matches / matches[:, -1:]

    def threshold(self, goal: Goal, wanted: float, resamples: Resamples) -> Threshold | None:
        """Return the threshold for a wanted precision or recall; None if none reaches it.

        For a precision it is the lowest threshold that has it, which keeps the most matches; for a
        recall the highest one.
        """

        def chosen(weights: Floats) -> Floats:
            """Threshold, precision and recall in each resample: [R, 3]; NaN if not reached."""
            precision, recall = self._curves(weights)
            reached = (precision if goal == "precision" else recall) >= wanted  # [R, T]
            columns = np.arange(reached.shape[1])
            if goal == "precision":
                index = np.where(reached, columns, -1).max(axis=1)
            else:
                index = np.where(reached, columns, len(columns)).min(axis=1)
            found = (index >= 0) & (index < len(columns))
            index = np.where(found, index, 0)
            rows = np.arange(len(weights))
            values = (self.thresholds[index], precision[rows, index], recall[rows, index])
            return np.where(found[:, None], np.stack(values, axis=1), np.nan)

        point = chosen(np.ones((1, len(self._order))))[0]
        if np.isnan(point).any():
            return None
        samples = resamples.values(chosen)  # [R, 3]
        score, precision, recall = map(Estimate.of, point.tolist(), samples.T)
        return Threshold(goal=goal, wanted=wanted, score=score, precision=precision, recall=recall)


def spearman(scores: Floats, labels: Floats) -> Callable[[Floats], Floats]:
    """Return Spearman's rank correlation as a measure of weights [R, N]."""
    # Ranks of the full sample: resamples repeat pairs, which keeps their order.
    x, y = (ranks(values) for values in (scores, labels))

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1)
        mean_x, mean_y = weights @ x / total, weights @ y / total
        covariance = weights @ (x * y) / total - mean_x * mean_y
        variances = (weights @ (v * v) / total - m * m for v, m in ((x, mean_x), (y, mean_y)))
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = covariance / np.sqrt(np.prod([*variances], axis=0))
        return result

    return measure


def ranks(values: Floats) -> Floats:
    """Return ranks from 0 to 1, equal values sharing their mean rank: [N]."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    mean: Floats = (last - (counts + 1) / 2)[inverse] / max(1, len(values) - 1)
    return mean


def log_loss(predictions: Floats, targets: Floats) -> Floats:
    """Return the cross-entropy of each pair, in nats: [N]; targets may be fractions."""
    p = predictions.clip(1e-6, 1 - 1e-6)
    result: Floats = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    return result


def brier(predictions: Floats, targets: Floats) -> float:
    """Return the mean squared difference of predictions and targets."""
    return float(np.mean((predictions - targets) ** 2))


def reliability(predictions: Floats, targets: Floats) -> list[Bin]:
    """Return bins of equally many pairs, by prediction: ten, or fewer of few pairs."""
    order = np.argsort(predictions, kind="stable")
    bins = np.clip(len(order) // _PAIRS_PER_BIN, 2, _MAX_BINS)
    parts = np.array_split(order, bins)
    return [
        Bin(
            predicted=float(predictions[part].mean()),
            observed=float(targets[part].mean()),
            pairs=len(part),
        )
        for part in parts
    ]


def calibration_error(predictions: Floats, targets: Floats) -> float:
    """Return the expected calibration error: the mean gap of the bins, by their sizes."""
    table = reliability(predictions, targets)
    gaps = sum(abs(b.predicted - b.observed) * b.pairs for b in table)
    return gaps / len(predictions)
