"""Correlations with human scores, and their bootstrap intervals."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ConstantInputWarning, pearsonr, rankdata, spearmanr

Scores = NDArray[np.float64]  # [N], one per pair

# How subsets are combined: all pairs at once, mean over subsets, or mean weighted by their sizes.
SubsetAverage = Literal["all", "mean", "weighted mean"]
SUBSET_AVERAGES: tuple[SubsetAverage, ...] = get_args(SubsetAverage)

RESAMPLES = 1000


def pearson(scores: Scores, gold: Scores) -> float:
    """Pearson's correlation, x100; NaN if all scores are equal."""
    return _percent(pearsonr, scores, gold)


def spearman(scores: Scores, gold: Scores) -> float:
    """Spearman's rank correlation, x100; NaN if all scores are equal."""
    return _percent(spearmanr, scores, gold)


def _percent(correlation: Callable[..., Any], scores: Scores, gold: Scores) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        return float(100 * correlation(scores, gold).statistic)


Correlation = Callable[[Scores, Scores], float]
CORRELATIONS: dict[str, Correlation] = {"spearman": spearman, "pearson": pearson}


def correlate(
    correlation: Correlation,
    scores: Scores,
    gold: Scores,
    subsets: Sequence[str],
    average: SubsetAverage = "all",
) -> float:
    """A correlation on a set, with its subsets combined by `average`."""
    if average == "all":
        return correlation(scores, gold)
    names = np.array(subsets)
    masks = [names == name for name in sorted(set(subsets))]  # [N] each
    values = [correlation(scores[mask], gold[mask]) for mask in masks]
    sizes = [mask.sum() for mask in masks] if average == "weighted mean" else None
    return float(np.average(values, weights=sizes))


class Bootstrap:
    """Resamples of a set's pairs, shared by all methods, so that their differences are paired.

    scipy's bootstrap would draw new resamples for every method.
    """

    def __init__(self, gold: Scores, resamples: int = RESAMPLES) -> None:
        rng = np.random.default_rng(0)
        self._draws = rng.integers(len(gold), size=(resamples, len(gold)))  # [R, N]
        self._gold = self._unit_ranks(gold)

    def spearman(self, scores: Scores) -> NDArray[np.float64]:
        """Spearman x100 in every resample: [R]."""
        return 100 * np.einsum("rn,rn->r", self._unit_ranks(scores), self._gold)

    def _unit_ranks(self, values: Scores) -> NDArray[np.float64]:
        """Ranks in each resample, centred and of norm 1; NaN if all are tied: [R, N]."""
        ranks = rankdata(values[self._draws], axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            ranks /= np.linalg.norm(ranks, axis=1, keepdims=True)
        unit: NDArray[np.float64] = ranks
        return unit


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95 % percentile interval of values by resample."""
    if np.isnan(values).all():
        return float("nan"), float("nan")
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)
