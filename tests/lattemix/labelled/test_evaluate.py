from contextlib import nullcontext

import numpy as np
import pytest
from scipy.stats import spearmanr

from lattemix import Model, load
from lattemix.labelled.agreement import check_calibration
from lattemix.labelled.evaluate import evaluate
from lattemix.labelled.measures import calibration_error
from lattemix.labelled.pairs import LabelError, LabelledPairs
from lattemix.labelled.text import evaluation_text
from model_store import Store
from model_store.calibration import Calibration
from tests.lattemix.labelled.conftest import TEXTS


def test_measures_every_metric(model: Model, binary: LabelledPairs) -> None:
    (result,) = evaluate([nullcontext(model)], binary).models
    assert (result.model, result.fingerprint) == ("tiny:fp32", model.info().fingerprint)
    assert [*result.metrics] == model.info().metrics
    for metric, measured in result.metrics.items():
        scores = model.similarity(TEXTS, metric=metric)
        expected = spearmanr(scores, binary.labels).statistic
        assert measured.spearman.value == pytest.approx(expected, abs=1e-3)
        assert measured.auc is not None
        assert measured.average_precision is not None
    best = result.metrics[result.recommended_metric]
    assert best.auc is not None
    assert best.auc.low is not None
    assert best.auc.low > 0.6, "labels follow this metric"
    assert result.calibration is None


def test_ratings_have_correlations_only(model: Model, binary: LabelledPairs) -> None:
    ratings = binary.take(np.arange(len(binary)))
    ratings = LabelledPairs(
        name="r", a=ratings.a, b=ratings.b, labels=binary.labels * 4 + 1, scale=(1, 5)
    )
    evaluation = evaluate([nullcontext(model)], ratings)
    assert evaluation.kind == "rating"
    measured = evaluation.models[0].metrics[model.info().recommended_metric]
    assert (measured.auc, measured.average_precision) == (None, None)
    assert "AUC" not in evaluation_text(evaluation)


def test_checks_the_calibration_of_a_model(calibrated_store: Store, binary: LabelledPairs) -> None:
    calibrated = load("tiny", store=calibrated_store.root)
    evaluation = evaluate([nullcontext(calibrated)], binary)
    check = evaluation.models[0].calibration
    assert check is not None
    calibration = calibrated.info().calibration
    assert calibration is not None
    predicted = calibration.apply(calibrated.similarity(TEXTS))
    assert check.error == pytest.approx(calibration_error(predicted, binary.labels), abs=1e-3)
    note = f"probability of tiny:fp32: expected calibration error {check.error:.3f}"
    assert note in evaluation_text(evaluation)


def test_calibrations_of_other_labels_are_not_checked(
    calibration: Calibration, binary: LabelledPairs
) -> None:
    scores = {calibration.metric: np.zeros(len(binary))}
    rating = calibration.model_copy(update={"kind": "rating", "scale": (0.0, 5.0)})
    assert check_calibration(rating, scores, binary) is None
    assert check_calibration(calibration, {}, binary) is None


def test_names_a_rejected_pair(model: Model, binary: LabelledPairs) -> None:
    a = [*binary.a[:7], "\ud800", *binary.a[8:]]
    broken = LabelledPairs(name="p.csv", a=a, b=binary.b, labels=binary.labels, scale=(0, 1))
    with pytest.raises(LabelError, match=r"p\.csv, row 8: a holds a lone surrogate"):
        evaluate([nullcontext(model)], broken)


def test_names_equal_scores(model: Model, binary: LabelledPairs) -> None:
    same = LabelledPairs(
        name="p.csv",
        a=["a dog"] * len(binary),
        b=["a dog"] * len(binary),
        labels=binary.labels,
        scale=(0, 1),
    )
    with pytest.raises(LabelError, match=r"All pairs have the score 1"):
        evaluate([nullcontext(model)], same)
