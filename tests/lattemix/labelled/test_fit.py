from collections.abc import Mapping

import numpy as np
import pytest
from scipy.special import expit

from lattemix.labelled import fit as module
from lattemix.labelled.fit import METHODS, Method, assign_folds, choose, fit
from lattemix.labelled.measures import Floats, calibration_error
from lattemix.labelled.pairs import LabelledPairs
from model_store import Metric

RANGE = (-1.0, 1.0)


def truth(scores: Floats) -> Floats:
    """Probability of a match: a curve that is not logistic."""
    return np.where(scores < 0, 0.1, 0.1 + 0.8 * scores)


def sample(count: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-1, 1, count)
    return scores, (rng.random(count) < truth(scores)).astype(float)


def pairs_of(labels: Floats) -> LabelledPairs:
    texts = [f"text {i}" for i in range(len(labels))]
    return LabelledPairs(name="p", a=texts, b=texts, labels=labels, scale=(0, 1))


@pytest.mark.parametrize("method", METHODS)
def test_predicts_probabilities(method: Method) -> None:
    fitted = fit(method, *sample(4000), RANGE)
    scores, labels = sample(4000, seed=1)
    assert calibration_error(fitted(scores), labels) < (0.02 if method == "isotonic" else 0.06)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "targets",
    [
        np.arange(40) / 39,
        (np.arange(40) > 19).astype(float),  # separable
        (np.arange(40) < 20).astype(float),  # scores are wrong
        np.arange(40) % 2.0,
    ],
)
def test_maps_increase_strictly_within_bounds(method: Method, targets: Floats) -> None:
    fitted = fit(method, np.linspace(-0.5, 0.9, 40), targets, RANGE)
    assert (fitted.scores[0], fitted.scores[-1]) == RANGE
    assert (np.diff(fitted.scores) > 0).all()
    assert (np.diff(fitted.values) > 0).all()
    assert 0 <= fitted.values[0] < fitted.values[-1] <= 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
def test_equal_scores_give_a_valid_map(method: Method, value: float) -> None:
    fitted = fit(method, np.full(40, value), np.arange(40) % 2.0, RANGE)
    assert (np.diff(fitted.scores) > 0).all()
    assert (np.diff(fitted.values) > 0).all()


def test_logistic_finds_its_parameters() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, 20_000)
    targets = (rng.random(20_000) < expit(6 * scores - 1)).astype(float)
    fitted = fit("logistic", scores, targets, RANGE)
    grid = np.linspace(-0.9, 0.9, 19)
    np.testing.assert_allclose(fitted(grid), expit(6 * grid - 1), atol=0.015)


def test_few_separable_pairs_give_no_certainty() -> None:
    targets = (np.arange(20) > 9).astype(float)
    values = fit("logistic", np.linspace(-1, 1, 20), targets, RANGE).values
    assert values[0] > 0.01
    assert values[-1] < 0.99


def test_chooses_a_better_metric() -> None:
    scores, labels = sample(400)
    noise = np.random.default_rng(5).uniform(-1, 1, 400)
    by_metric: Mapping[Metric, Floats] = {"cosine": noise, "js": scores}
    choice = choose(
        by_metric, labels, assign_folds(pairs_of(labels)), {"cosine": RANGE, "js": RANGE}
    )
    assert choice.metric == "js"
    assert choice.losses["js"][choice.method] < min(choice.losses["cosine"].values())


def test_keeps_the_first_metric_if_labels_cannot_tell() -> None:
    scores, labels = sample(30)
    other = scores + np.random.default_rng(5).normal(0, 0.02, 30)
    by_metric: Mapping[Metric, Floats] = {"cosine": scores, "js": other}
    choice = choose(
        by_metric, labels, assign_folds(pairs_of(labels)), {"cosine": RANGE, "js": RANGE}
    )
    assert (choice.metric, choice.method) == ("cosine", "logistic")


def test_predictions_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, labels = sample(100)
    folds = assign_folds(pairs_of(labels))
    trained: list[Floats] = []
    original = module.fit

    def record(method: Method, scores: Floats, targets: Floats, score_range: object) -> object:
        trained.append(scores)
        return original(method, scores, targets, RANGE)

    monkeypatch.setattr(module, "fit", record)
    choose({"cosine": scores}, labels, folds, {"cosine": RANGE})
    for fold, seen in zip([*range(5)] * 2, trained, strict=True):
        assert set(seen) == set(scores[folds != fold])


def test_folds_are_even_and_keep_equal_pairs_together() -> None:
    labels = np.arange(50) % 2.0
    a = [f"text {i % 25}" for i in range(50)]
    pairs = LabelledPairs(name="p", a=a, b=a, labels=labels, scale=(0, 1))
    folds = assign_folds(pairs)
    assert np.bincount(folds).tolist() == [10] * 5
    np.testing.assert_array_equal(folds[:25], folds[25:])
    different = assign_folds(pairs_of(labels))
    assert [labels[different == fold].sum() for fold in range(5)] == [5] * 5
