"""Agreement with people: correlations, how to take a set of several parts, and how sure one is."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Scores = NDArray[np.float64]  # [N], one per pair

# Over the parts of a set: all pairs at once, the mean over the parts, or weighted by their size.
Over = Literal["all", "mean", "weighted mean"]
OVERS: tuple[Over, ...] = get_args(Over)

RESAMPLES = 1000


def pearson(scores: Scores, gold: Scores) -> float:
    """Pearson's correlation, x100; NaN where all scores are equal."""
    if np.ptp(scores) == 0 or np.ptp(gold) == 0:
        return float("nan")
    return float(100 * np.corrcoef(scores, gold)[0, 1])


def spearman(scores: Scores, gold: Scores) -> float:
    """Spearman's rank correlation, x100; NaN where all scores are equal."""
    return pearson(rankdata(scores), rankdata(gold))


Correlation = Callable[[Scores, Scores], float]
CORRELATIONS: dict[str, Correlation] = {"spearman": spearman, "pearson": pearson}


def correlate(
    correlation: Correlation,
    scores: Scores,
    gold: Scores,
    subsets: Sequence[str],
    over: Over = "all",
) -> float:
    """A correlation on a set, taken `over` its parts."""
    if over == "all":
        return correlation(scores, gold)
    names = np.array(subsets)
    parts = [names == name for name in sorted(set(subsets))]  # masks, [N] each
    values = [correlation(scores[part], gold[part]) for part in parts]
    sizes = [part.sum() for part in parts] if over == "weighted mean" else None
    return float(np.average(values, weights=sizes))


class Bootstrap:
    """The same random draws of a set's pairs for everything measured on it.

    So the differences of two ways are paired. A draw is how often it took each pair, which makes
    its Spearman a matter of weights: the order of the scores is found once, not in every draw.
    """

    def __init__(self, gold: Scores, resamples: int = RESAMPLES) -> None:
        rng = np.random.default_rng(0)
        self.size = len(gold)
        draws = (rng.integers(self.size, size=self.size) for _ in range(resamples))
        counts = [np.bincount(draw, minlength=self.size) for draw in draws]
        self.counts = np.stack(counts, axis=1).astype(np.float64)  # [N, R]
        self.gold = gold

    def spearman(self, scores: Scores) -> NDArray[np.float64]:
        """Spearman x100 in every draw: [R]."""
        mine, (theirs, norm) = self._ranks(scores), self._gold_ranks
        weighted = mine * self.counts
        covariance = np.einsum("nr,nr->r", weighted, theirs)
        with np.errstate(invalid="ignore"):
            return 100 * covariance / np.sqrt(np.einsum("nr,nr->r", weighted, mine) * norm)

    @cached_property
    def _gold_ranks(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ranks = self._ranks(self.gold)
        return ranks, np.einsum("nr,nr,nr->r", self.counts, ranks, ranks)

    def _ranks(self, values: Scores) -> NDArray[np.float64]:
        """The rank of each pair's value in each draw, ties at their middle, around 0: [N, R]."""
        _, places = np.unique(values, return_inverse=True)  # [N], equal values at one place
        order = np.argsort(places, kind="stable")
        starts = np.searchsorted(places[order], np.arange(places.max() + 1))
        sizes = np.add.reduceat(self.counts[order], starts, axis=0)  # [distinct values, R]
        # Ranks so taken average to half the number of pairs, whatever the ties.
        ranks = np.cumsum(sizes, axis=0) - sizes / 2 - self.size / 2
        return ranks[places]


def interval(draws: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95 % of what was found in each draw."""
    if np.isnan(draws).all():
        return float("nan"), float("nan")
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return float(low), float(high)
