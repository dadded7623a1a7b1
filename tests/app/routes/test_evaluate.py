from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.labelled.measures import Ranking, calibration_error
from model_store import Store
from model_store.calibration import Calibration
from tests.app.conftest import failure

LABELS = [i % 3 // 2 for i in range(60)]
SCORES = [round(label * 0.3 + (i * 7 % 60) / 90, 3) for i, label in enumerate(LABELS)]


def test_measures_agreement_of_scores_with_labels(client: TestClient) -> None:
    body = client.post("/evaluate", json={"scores": SCORES, "labels": LABELS}).json()
    info = client.get("/info").json()
    assert (body["model"], body["fingerprint"]) == ("tiny", info["fingerprint"])
    assert (body["metric"], body["kind"]) == (info["recommended_metric"], "probability")
    assert body["pairs"] == 60
    ranking = Ranking(np.array(SCORES), np.array(LABELS, float))
    expected = ranking.auc(np.ones((1, 60)))[0]
    auc = body["agreement"]["auc"]
    assert auc["value"] == pytest.approx(expected)
    assert auc["low"] < expected < auc["high"]
    assert [point["threshold"] for point in body["curve"]] == pytest.approx(ranking.thresholds)
    assert sum(b["pairs"] for b in body["bins"]) == 60
    assert body["calibration"] is None


def test_ratings_need_a_scale(client: TestClient) -> None:
    ratings = [i % 5 + 1 for i in range(60)]
    body = client.post("/evaluate", json={"scores": SCORES, "labels": ratings, "scale": [1, 5]})
    assert body.json()["kind"] == "rating"
    assert body.json()["curve"] == []
    response = client.post("/evaluate", json={"scores": SCORES, "labels": ratings})
    assert failure(response)[0] == 400
    assert "labels[1]: label 2 is neither 0 nor 1" in failure(response)[2]


def test_checks_the_models_calibration(calibrated_store: Store, calibration: Calibration) -> None:
    settings = Settings(store=calibrated_store.root, model="tiny")
    with TestClient(create_app(settings)) as client:
        body = client.post("/evaluate", json={"scores": SCORES, "labels": LABELS}).json()
        expected = calibration_error(calibration.apply(SCORES), np.array(LABELS, float))
        assert body["calibration"]["error"] == pytest.approx(expected)
        request = {"scores": SCORES, "labels": LABELS, "metric": "js"}
        assert client.post("/evaluate", json=request).json()["calibration"] is None


def test_takes_more_pairs_than_fit_one_similarity_request(client: TestClient) -> None:
    request = {"scores": SCORES * 5, "labels": LABELS * 5}  # max_inputs is 8, the body 4,096 bytes
    assert client.post("/evaluate", json=request).json()["pairs"] == 300


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": LABELS[:-1]}, "There are 59 labels for 60 scores"),
        ({"scores": [], "labels": []}, "There are no labels in the request"),
        (
            {"scores": SCORES[:5], "labels": LABELS[:5]},
            "There are 5 labels in the request: at least 20 are needed",
        ),
        ({"labels": [1] * 60}, "0 of 60 labels in the request are 0: at least 5 are needed"),
        (
            {"labels": [7, *LABELS[1:]], "scale": [0, 5]},
            "labels[0]: label 7 is outside the scale from 0 to 5",
        ),
        ({"scale": [5, 0]}, "scale is 5 to 0: give the lowest and the highest label"),
        ({"scores": [*SCORES[:-1], 211]}, "scores[59] is 211: centred is from -1 to 1"),
        ({"scores": [0.5] * 60}, "All pairs have the score 0.5"),
    ],
)
def test_says_why_labels_are_unusable(
    client: TestClient, changes: dict[str, Any], message: str
) -> None:
    response = client.post("/evaluate", json={"scores": SCORES, "labels": LABELS, **changes})
    status, kind, error = failure(response)
    assert (status, kind) == (400, "UnusableLabels")
    assert message in error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": ["0.5"] * 60}, "scores[0]: should be a number"),
        ({"labels": [None] * 60}, "labels[0]: Input should be a valid number"),
        ({"metric": "euclid"}, "metric: Input should be"),
        ({"scale": [5]}, "scale: List should have at least 2 items"),
        ({"threshold": 1}, "threshold: Extra inputs are not permitted"),
    ],
)
def test_names_invalid_fields(client: TestClient, changes: dict[str, Any], message: str) -> None:
    response = client.post("/evaluate", json={"scores": SCORES, "labels": LABELS, **changes})
    assert failure(response)[:2] == (422, "Validation")
    assert message in failure(response)[2]
