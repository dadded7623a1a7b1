"""How well scores agree with labels, in numpy: the server measures, too."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

Floats = NDArray[np.float64]

RESAMPLES = 1000
_BLOCK = 2_000_000  # numbers of weights in memory at once
_MAX_BINS, _PAIRS_PER_BIN = 10, 25


class Estimate(BaseModel):
    """A measured number and its 95 % interval."""

    value: float
    low: float | None = Field(description="Null if the number is too seldom defined.")
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

    def counts(self, weights: Floats) -> tuple[Floats, Floats]:
        """Matches and other pairs that reach each threshold: [R, T] each."""
        weights = weights[:, self._order]
        matches = (weights * self._matches).cumsum(axis=1)[:, self._ends]
        return matches, weights.cumsum(axis=1)[:, self._ends] - matches

    def auc(self, weights: Floats) -> Floats:
        """Area under the ROC curve: [R]."""
        matches, others = self.counts(weights)
        before = np.pad(matches, ((0, 0), (1, 0)))[:, :-1]
        steps = np.diff(others, axis=1, prepend=0)
        areas = (steps * (matches + before) / 2).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = areas / (matches[:, -1] * others[:, -1])
        return result

    def average_precision(self, weights: Floats) -> Floats:
        """Average precision: [R]."""
        matches, others = self.counts(weights)
        steps = np.diff(matches, axis=1, prepend=0)
        # A resample may lack the pairs of the highest thresholds.
        precision = np.divide(
            matches, matches + others, out=np.zeros_like(matches), where=matches > 0
        )
        with np.errstate(invalid="ignore"):
            result: Floats = (steps * precision).sum(axis=1) / matches[:, -1]
        return result

    def curve(self) -> tuple[Floats, Floats]:
        """Precision and recall at each threshold: [T] each."""
        precision, recall = self.curves(np.ones((1, len(self._order))))
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

    def curves(self, weights: Floats) -> tuple[Floats, Floats]:
        """Precision and recall at each threshold: [R, T] each."""
        matches, others = self.counts(weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            return matches / (matches + others), matches / matches[:, -1:]


def spearman(scores: Floats, labels: Floats) -> Callable[[Floats], Floats]:
    """Return Spearman's rank correlation as a measure of weights [R, N]."""
    ranks_of = _weighted_ranks(scores), _weighted_ranks(labels)

    def measure(weights: Floats) -> Floats:
        total = weights.sum(axis=1, keepdims=True)
        x, y = (ranks(weights) for ranks in ranks_of)  # [R, N] each
        x -= (weights * x).sum(axis=1, keepdims=True) / total
        y -= (weights * y).sum(axis=1, keepdims=True) / total
        products = ((weights * p * q).sum(axis=1) for p, q in ((x, y), (x, x), (y, y)))
        covariance, *variances = products
        with np.errstate(invalid="ignore", divide="ignore"):
            result: Floats = covariance / np.sqrt(variances[0] * variances[1])
        return result

    return measure


def _weighted_ranks(values: Floats) -> Callable[[Floats], Floats]:
    """Return ranks as a function of weights [R, N]; equal values share their mean rank."""
    order = np.argsort(values, kind="stable")
    _, group_of, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum() - 1

    def ranks(weights: Floats) -> Floats:
        reached = weights[:, order].cumsum(axis=1)[:, ends]  # [R, G]
        middles = reached - np.diff(reached, axis=1, prepend=0) / 2
        result: Floats = middles[:, group_of]
        return result

    return ranks


def wilson(successes: float, trials: float) -> Estimate:
    """Return a share with Wilson's 95 % interval, which holds for few trials, too."""
    share, z = successes / trials, 1.96
    width = 1 + z**2 / trials
    middle = share + z**2 / (2 * trials)
    margin = z * np.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    low, high = (middle - margin) / width, (middle + margin) / width
    return Estimate(value=share, low=max(0.0, float(low)), high=min(1.0, float(high)))


def log_loss(predictions: Floats, targets: Floats) -> Floats:
    """Return the cross-entropy of each pair, in nats: [N]; targets may be fractions."""
    p = predictions.clip(1e-6, 1 - 1e-6)
    result: Floats = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
    return result


def brier(predictions: Floats, targets: Floats) -> float:
    """Return the mean squared difference of predictions and targets."""
    return float(np.mean((predictions - targets) ** 2))


def reliability(predictions: Floats, targets: Floats) -> list[Bin]:
    """Return bins of about equally many pairs, by prediction: ten, or fewer of few pairs."""
    bins = int(np.clip(len(predictions) // _PAIRS_PER_BIN, 2, _MAX_BINS))
    return [
        Bin(
            predicted=float(predictions[part].mean()),
            observed=float(targets[part].mean()),
            pairs=len(part),
        )
        for part in split(predictions, bins)
    ]


def split(values: Floats, parts: int) -> list[NDArray[np.intp]]:
    """Return indices by value, in at most `parts` lists of about equal length.

    Equal values are in one list, so that the result does not depend on their order.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.arange(1, parts) * len(values) // parts
    ends = np.searchsorted(ordered, ordered[cuts], side="left")
    return [part for part in np.split(order, np.unique(ends)) if len(part)]


def calibration_error(predictions: Floats, targets: Floats) -> float:
    """Return the expected calibration error: the mean gap of the bins, by their sizes."""
    table = reliability(predictions, targets)
    gaps = sum(abs(b.predicted - b.observed) * b.pairs for b in table)
    return gaps / len(predictions)
