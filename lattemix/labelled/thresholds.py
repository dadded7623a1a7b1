"""Thresholds for a wanted precision or recall."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from lattemix.labelled.measures import Estimate, Floats, Ranking, Resamples, wilson

Measure = Literal["precision", "recall"]

_MIN_REACHED = 10  # pairs that reach a threshold: fewer say nothing about its precision


class Goal(NamedTuple):
    """A wanted precision or recall."""

    measure: Measure
    wanted: float

    def __str__(self) -> str:
        return f"{self.measure} {self.wanted:g}"


class Threshold(BaseModel):
    """The threshold for a goal, and what it gives on held-out pairs."""

    goal: Goal
    score: Estimate = Field(
        description="Chosen on all pairs; the interval is that of thresholds chosen on resamples."
    )
    pairs: int = Field(description="Number of pairs that reach it.")
    precision: Estimate = Field(
        description="Of pairs that reach a threshold chosen without them, in cross-validation."
    )
    recall: Estimate


def find_threshold(
    goal: Goal, scores: Floats, matches: Floats, folds: NDArray[np.intp], resamples: Resamples
) -> Threshold | None:
    """Return the threshold for a goal; None if no threshold reaches it.

    Args:
        goal: the wanted precision or recall.
        scores: scores of the pairs: [N].
        matches: 1 for a match, else 0: [N].
        folds: the fold of each pair: [N].
        resamples: for the interval of the threshold.
    """
    ranking = Ranking(scores, matches)
    (score,) = _choose(goal, ranking, np.ones((1, len(scores))))
    reached, matched = _held_out(goal, scores, matches, folds)
    if np.isnan(score) or not reached:
        return None
    samples = resamples.values(lambda weights: _choose(goal, ranking, weights))
    return Threshold(
        goal=goal,
        score=Estimate.of(float(score), samples),
        pairs=int((scores >= score).sum()),
        precision=wilson(matched, reached),
        recall=wilson(matched, matches.sum()),
    )


def _choose(goal: Goal, ranking: Ranking, weights: Floats) -> Floats:
    """The threshold in each resample: [R]; NaN where none reaches the goal.

    For a precision it is the lowest one that has it, which keeps the most matches; for a recall
    the highest one.
    """
    precision, recall = ranking.curves(weights)  # [R, T] each, highest threshold first
    enough = np.add(*ranking.counts(weights)) >= _MIN_REACHED
    columns = np.arange(len(ranking.thresholds))
    if goal.measure == "precision":
        index = np.where(enough & (precision >= goal.wanted), columns, -1).max(axis=1)
    else:
        index = np.where(recall >= goal.wanted, columns, len(columns)).min(axis=1)
    exists = (index >= 0) & (index < len(columns))
    return np.where(exists, ranking.thresholds[np.where(exists, index, 0)], np.nan)


def _held_out(
    goal: Goal, scores: Floats, matches: Floats, folds: NDArray[np.intp]
) -> tuple[int, int]:
    """Pairs that reach the thresholds chosen without their fold, and the matches among them."""
    reached = np.zeros(len(scores), bool)
    for fold in np.unique(folds):
        held = folds == fold
        ranking = Ranking(scores[~held], matches[~held])
        (score,) = _choose(goal, ranking, np.ones((1, len(scores) - int(held.sum()))))
        reached[held] = scores[held] >= score  # false for NaN
    return int(reached.sum()), int(matches[reached].sum())
