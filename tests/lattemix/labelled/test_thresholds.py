import numpy as np
import pytest
from numpy.typing import NDArray

from lattemix.labelled.measures import Ranking, Resamples
from lattemix.labelled.thresholds import Goal, Threshold, find_threshold

COUNT = 400


def sample(seed: int = 0, count: int = COUNT) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.4).astype(float)
    return labels + rng.normal(0, 0.6, count), labels


def find(goal: Goal, seed: int = 0, count: int = COUNT) -> Threshold | None:
    scores, labels = sample(seed, count)
    folds = np.arange(count) % 5
    return find_threshold(goal, scores, labels, folds, Resamples(count, 200))


def test_threshold_for_a_precision_is_the_lowest() -> None:
    found = find(Goal("precision", 0.8))
    assert found is not None
    ranking = Ranking(*sample())
    precision, _ = ranking.curve()
    reached = ranking.thresholds[precision >= 0.8]
    assert found.score.value == reached.min()
    assert found.pairs == (sample()[0] >= found.score.value).sum()


def test_threshold_for_a_recall_is_the_highest() -> None:
    found = find(Goal("recall", 0.9))
    assert found is not None
    ranking = Ranking(*sample())
    _, recall = ranking.curve()
    assert found.score.value == ranking.thresholds[recall >= 0.9].max()


def test_interval_contains_the_threshold() -> None:
    for goal in (Goal("precision", 0.8), Goal("recall", 0.9)):
        found = find(goal)
        assert found is not None
        assert found.score.low is not None
        assert found.score.high is not None
        assert found.score.low < found.score.value < found.score.high


@pytest.mark.parametrize("goal", [Goal("precision", 0.8), Goal("recall", 0.9)])
def test_held_out_figures_are_those_of_new_pairs(goal: Goal) -> None:
    new_scores, new_labels = sample(seed=99, count=100_000)
    inside = total = 0
    for seed in range(40):
        found = find(goal, seed)
        assert found is not None
        reached = new_scores >= found.score.value
        actual = {
            "precision": new_labels[reached].mean(),
            "recall": new_labels[reached].sum() / new_labels.sum(),
        }[goal.measure]
        measured = getattr(found, goal.measure)
        assert measured.low is not None
        inside += measured.low <= actual <= measured.high
        total += 1
    assert inside / total > 0.85, "intervals of 95 %"


def test_a_few_lucky_pairs_are_no_threshold() -> None:
    labels = np.concatenate([np.ones(5), np.tile([1.0, 0.0], 100)])
    scores = -np.arange(205.0)
    folds = np.arange(205) % 5
    assert find_threshold(Goal("precision", 0.95), scores, labels, folds, Resamples(205)) is None


def test_unreachable_goal_has_no_threshold() -> None:
    scores, labels = sample()
    folds = np.arange(COUNT) % 5
    assert find_threshold(Goal("precision", 0.9), -scores, labels, folds, Resamples(COUNT)) is None
