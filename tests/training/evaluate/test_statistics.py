import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from training.evaluate import statistics
from training.evaluate.statistics import Bootstrap, correlate, interval, pearson, spearman


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_correlations_with_ties(rng: np.random.Generator) -> None:
    scores, gold = rng.normal(size=50), rng.integers(5, size=50).astype(float)
    assert spearman(scores, gold) == pytest.approx(100 * spearmanr(scores, gold).statistic)
    assert pearson(scores, gold) == pytest.approx(100 * pearsonr(scores, gold).statistic)


@pytest.mark.filterwarnings("error")
def test_correlation_of_constant_scores_is_nan() -> None:
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))
    assert np.isnan(pearson(np.ones(5), np.arange(5.0)))


def test_correlation_over_subsets(rng: np.random.Generator) -> None:
    scores, gold = rng.normal(size=30), rng.normal(size=30)
    subsets = ["a"] * 10 + ["b"] * 20
    first, second = spearman(scores[:10], gold[:10]), spearman(scores[10:], gold[10:])
    values = [
        correlate(spearman, scores, gold, subsets, average)
        for average in statistics.SUBSET_AVERAGES
    ]
    assert values == pytest.approx(
        [spearman(scores, gold), (first + second) / 2, (first + 2 * second) / 3]
    )


def test_bootstrap_is_spearman_of_every_resample(
    rng: np.random.Generator,
) -> None:
    gold = rng.integers(6, size=80).astype(float)
    scores = np.round(gold + rng.normal(size=80), 1)  # both with ties
    bootstrap = Bootstrap(gold, resamples=20)
    again = np.random.default_rng(0)
    expected = [
        spearman(scores[d], gold[d]) for d in (again.integers(80, size=80) for _ in "x" * 20)
    ]
    np.testing.assert_allclose(bootstrap.spearman(scores), expected)


def test_interval_separates_a_difference_from_noise(rng: np.random.Generator) -> None:
    gold = rng.normal(size=400)
    good, bad = gold + rng.normal(size=400), gold + 4 * rng.normal(size=400)
    same = gold + rng.normal(size=400)
    bootstrap = Bootstrap(gold, resamples=200)
    low, high = interval(bootstrap.spearman(good) - bootstrap.spearman(bad))
    assert 0 < low < spearman(good, gold) - spearman(bad, gold) < high
    low, high = interval(bootstrap.spearman(good) - bootstrap.spearman(same))
    assert low < 0 < high


def test_interval_of_constant_scores_is_nan() -> None:
    bootstrap = Bootstrap(np.arange(9.0), resamples=10)
    assert np.isnan(interval(bootstrap.spearman(np.ones(9)))).all()
