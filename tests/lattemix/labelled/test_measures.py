"""Measures, compared with scipy or with their definitions."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, spearmanr

from lattemix.labelled import measures
from lattemix.labelled.measures import Ranking, Resamples

RNG = np.random.default_rng(0)
LABELS = (RNG.random(200) < 0.4).astype(float)
SCORES = (LABELS + RNG.normal(0, 1, 200)).round(1)  # with ties
ONCE = np.ones((1, 200))
WEIGHTS = RNG.integers(0, 3, (1, 200)).astype(float)


def repeated(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sample that `WEIGHTS` describes."""
    return np.repeat(values, WEIGHTS[0].astype(int))


def expected_auc(scores: NDArray[np.float64], labels: NDArray[np.float64]) -> float:
    matches, others = scores[labels == 1], scores[labels == 0]
    return float(mannwhitneyu(matches, others).statistic / (len(matches) * len(others)))


def expected_precisions(
    scores: NDArray[np.float64], labels: NDArray[np.float64]
) -> list[tuple[float, float, float]]:
    """Threshold, precision and recall, by counting."""
    rows = []
    for threshold in sorted(set(scores), reverse=True):
        reached = labels[scores >= threshold]
        rows.append((threshold, reached.mean(), reached.sum() / labels.sum()))
    return rows


def test_auc_is_the_share_of_ordered_pairs() -> None:
    ranking = Ranking(SCORES, LABELS)
    assert ranking.auc(ONCE)[0] == pytest.approx(expected_auc(SCORES, LABELS))
    expected = expected_auc(repeated(SCORES), repeated(LABELS))
    assert ranking.auc(WEIGHTS)[0] == pytest.approx(expected)
    assert Ranking(LABELS, LABELS).auc(ONCE)[0] == 1
    assert Ranking(-LABELS, LABELS).auc(ONCE)[0] == 0
    assert Ranking(0 * LABELS, LABELS).auc(ONCE)[0] == 0.5


def test_average_precision_weights_precisions_by_gained_recall() -> None:
    for weights, scores, labels in (
        (ONCE, SCORES, LABELS),
        (WEIGHTS, repeated(SCORES), repeated(LABELS)),
    ):
        rows = expected_precisions(scores, labels)
        gains = np.diff([0, *(recall for _, _, recall in rows)])
        expected = sum(gains * [precision for _, precision, _ in rows])
        assert Ranking(SCORES, LABELS).average_precision(weights)[0] == pytest.approx(expected)


def test_curve_has_precision_and_recall_of_every_threshold() -> None:
    ranking = Ranking(SCORES, LABELS)
    rows = np.array(expected_precisions(SCORES, LABELS))
    np.testing.assert_allclose(np.stack([ranking.thresholds, *ranking.curve()], axis=1), rows)
    points = ranking.points(limit=10)
    assert len(points) == 10
    assert (points[0].threshold, points[-1].threshold) == (rows[0, 0], rows[-1, 0])


def test_average_precision_is_defined_without_the_highest_scores() -> None:
    weights = np.ones((1, 200))
    weights[0, np.argsort(-SCORES)[:10]] = 0
    kept = weights[0] > 0
    expected = Ranking(SCORES[kept], LABELS[kept]).average_precision(np.ones((1, 190)))
    np.testing.assert_allclose(Ranking(SCORES, LABELS).average_precision(weights), expected)


def test_spearman_is_scipys() -> None:
    measure = measures.spearman(SCORES, LABELS)
    assert measure(ONCE)[0] == pytest.approx(spearmanr(SCORES, LABELS).statistic)
    expected = spearmanr(repeated(SCORES), repeated(LABELS)).statistic
    assert measure(WEIGHTS)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (5, 6, 0.4365, 0.9699),
        (10, 10, 0.7225, 1.0),
        (0, 10, 0.0, 0.2775),
        (50, 100, 0.4038, 0.5962),
    ],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    share = measures.wilson(successes, trials)
    assert share.value == successes / trials
    assert (share.low, share.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_split_keeps_equal_values_together() -> None:
    values = np.array([3.0, 1, 2, 2, 2, 2, 0, 3])
    parts = [sorted(values[part].tolist()) for part in measures.split(values, 3)]
    assert parts == [[0, 1], [2, 2, 2, 2, 3, 3]]
    assert [len(part) for part in measures.split(np.arange(100.0), 4)] == [25] * 4
    assert [len(part) for part in measures.split(np.zeros(9), 3)] == [9]


def test_calibration_error_does_not_depend_on_the_order_of_ties() -> None:
    predictions = np.repeat([0.2, 0.5, 0.8], 100)
    targets = np.concatenate([np.arange(100) < count for count in (20, 50, 80)]).astype(float)
    shuffled = np.random.default_rng(0).permutation(300)
    for order in (np.arange(300), shuffled):
        error = measures.calibration_error(predictions[order], targets[order])
        assert error == pytest.approx(0, abs=1e-9)


def test_interval_narrows_with_more_pairs() -> None:
    few, many = (
        Resamples(count).estimate(Ranking(SCORES[:count], LABELS[:count]).auc)
        for count in (50, 200)
    )
    widths = [e.high - e.low for e in (few, many) if e.high is not None and e.low is not None]
    assert widths[1] < widths[0]
    again = Resamples(200).estimate(Ranking(SCORES, LABELS).auc)
    assert again == many


def test_resamples_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    ranking = Ranking(SCORES, LABELS)
    whole = Resamples(200).values(ranking.auc)
    assert len(whole) == 1000
    assert np.std(whole) == pytest.approx(0.036, abs=0.01)  # about sqrt(auc (1 - auc) / matches)
    monkeypatch.setattr(measures, "_BLOCK", 200)
    np.testing.assert_allclose(Resamples(200).values(ranking.auc), whole)


def test_calibration_error_is_the_mean_gap_of_bins() -> None:
    predictions = np.repeat([0.2, 0.8], 30)
    targets = np.concatenate([np.arange(30) < 9, np.arange(30) < 21]).astype(float)
    first, second = measures.reliability(predictions, targets)
    assert (first.predicted, first.observed, first.pairs) == (pytest.approx(0.2), 0.3, 30)
    assert (second.predicted, second.observed) == (pytest.approx(0.8), 0.7)
    assert measures.calibration_error(predictions, targets) == pytest.approx(0.1)
    assert measures.brier(predictions, targets) == pytest.approx(0.22)
    assert len(measures.reliability(np.arange(1000) / 1000, np.ones(1000))) == 10


def test_log_loss_of_fractions_is_cross_entropy() -> None:
    loss = measures.log_loss(np.array([0.5, 0.9, 0.0]), np.array([0.3, 1.0, 1.0]))
    np.testing.assert_allclose(loss, [np.log(2), -np.log(0.9), -np.log(1e-6)])
