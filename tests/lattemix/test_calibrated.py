"""Probabilities beside scores, in the library, in the clients and in files."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix import LatteMixError, Model, Rejection, load
from lattemix.bulk.runners import LocalRunner
from lattemix.bulk.score import score
from lattemix.calibrated import CalibrationError, calibrated, score_threshold
from lattemix.labelled.calibrate import publish
from lattemix.settings import ModelSettings
from model_store import Store
from model_store.calibration import Calibration
from tests.lattemix.client.conftest import PAIRS, both, call
from tests.lattemix.conftest import run as lattemix
from tests.tiny import SENTENCES

A, B, *_ = SENTENCES


@pytest.fixture(scope="module")
def model(calibrated_store: Store) -> Model:
    return load("tiny", store=calibrated_store.root)


@pytest.fixture
def settings(calibrated_store: Store) -> Settings:
    return Settings(store=calibrated_store.root, model="tiny", max_inputs=8)


@pytest.fixture
def probability(calibration: Calibration) -> Any:
    return lambda scores: pytest.approx(calibration.apply(scores), abs=1e-6)


def test_other_metrics_have_no_probability(calibration: Calibration) -> None:
    assert calibrated(None, {"centred": np.ones(2, np.float32)}) == {}
    assert calibrated(calibration, {"js": np.ones(2, np.float32)}) == {}


def test_info_describes_the_calibration(model: Model, calibration: Calibration) -> None:
    assert model.info().calibration == calibration


def test_pairs_have_a_probability(model: Model, probability: Any) -> None:
    rows = [row for row in model.iter_similarity(PAIRS) if not isinstance(row, Rejection)]
    assert [row.probability for row in rows] == probability(model.similarity(PAIRS))
    assert {row.rating for row in rows} == {None}
    (row,) = model.iter_similarity(PAIRS[:1], ["js"])
    assert not isinstance(row, Rejection)
    assert row.probability is None


def test_ranked_texts_have_a_probability(model: Model, probability: Any) -> None:
    stored = {"mixtures": model.encode(SENTENCES), "fingerprint": model.info().fingerprint}
    for ranked in (model.rank(A, SENTENCES), model.rank_mixtures(A, **stored)):
        assert [r.probability for r in ranked] == probability([r.score for r in ranked])
    (row, *_) = model.iter_rank(A, SENTENCES[3:])
    assert not isinstance(row, Rejection)
    assert row.probability == probability(row.score)
    assert model.rank(A, SENTENCES, metric="js")[0].probability is None


def test_matrix_takes_a_probability_as_threshold(model: Model, probability: Any) -> None:
    every = model.matrix(SENTENCES)
    assert every.probabilities == probability(every.scores)
    assert every.probabilities is not None
    middle = sorted(every.probabilities)[20]
    some = model.matrix(SENTENCES, threshold=middle - 1e-6, threshold_on="probability")
    assert some.count == sum(p >= middle - 1e-6 for p in every.probabilities) < every.count
    assert some.ratings is None


def test_pairs_reach_their_own_probability_and_none_beyond(model: Model) -> None:
    every = model.matrix([*SENTENCES, SENTENCES[0]])
    assert every.probabilities is not None
    for probability in every.probabilities:
        options: dict[str, Any] = {"threshold": probability, "threshold_on": "probability"}
        some = model.matrix([*SENTENCES, SENTENCES[0]], **options)
        assert some.count == sum(p >= probability for p in every.probabilities)
    beyond = model.matrix(["a dog", "a dog"], threshold=0.95, threshold_on="probability")
    assert beyond.count == 0, "the highest probability is 0.9"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"threshold_on": "rating"},
            "threshold_on is 'rating', and the model's calibration gives a probability",
        ),
        ({"threshold_on": "score "}, "threshold_on is 'score ': choose among score, probability"),
        ({"threshold": None}, "threshold_on is 'probability', and there is no threshold"),
        ({"metric": "js"}, "was fitted on '.*', not on 'js': leave out metric"),
        ({"threshold": 1.2}, r"threshold is 1\.2: a probability is from 0 to 1"),
    ],
)
def test_names_a_threshold_that_the_calibration_lacks(
    model: Model, options: dict[str, Any], message: str
) -> None:
    request = {"threshold": 0.5, "threshold_on": "probability", **options}
    with pytest.raises(CalibrationError, match=message):
        model.matrix(SENTENCES, **request)


def test_model_without_calibration_has_scores_only(store: Store) -> None:
    model = load("tiny", store=store.root)
    assert model.info().calibration is None
    assert model.rank(A, SENTENCES)[0].probability is None
    assert model.matrix(SENTENCES).probabilities is None
    assert score_threshold(0.5, "score", None, "js") == 0.5
    with pytest.raises(CalibrationError, match="the model has no calibration: fit one"):
        model.matrix(SENTENCES, threshold=0.5, threshold_on="probability")


def test_service_returns_probabilities(settings: Settings, model: Model, probability: Any) -> None:
    with TestClient(create_app(settings)) as client:
        body = client.post("/similarity", json={"pairs": [[A, B]], "metrics": ["js"]}).json()
        assert list(body["similarities"][0]) == ["js"]
        body = client.post("/similarity", json={"pairs": [[A, B]]}).json()
        (row,) = body["similarities"]
        assert list(row) == [body["metric"], "probability"]
        assert row["probability"] == probability(row[body["metric"]])
        ranked = client.post("/rank", json={"query": A, "texts": SENTENCES[:4]}).json()["results"]
        assert [r["probability"] for r in ranked] == probability([r["score"] for r in ranked])
        request = {"inputs": SENTENCES[:5], "threshold": 0.3, "threshold_on": "probability"}
        body = client.post("/matrix", json=request).json()
        expected = model.matrix(SENTENCES[:5], threshold=0.3, threshold_on="probability")
        assert body["pairs"] == expected.pairs
        assert body["probabilities"] == pytest.approx(expected.probabilities, abs=1e-6)
        response = client.post("/matrix", json=request | {"threshold_on": "rating"})
        assert response.status_code == 422
        assert response.json()["error"].startswith("threshold_on is 'rating'")
        assert client.get("/info").json()["calibration"]["about"].startswith("ten pairs")


@both
def test_clients_return_probabilities(kind: Any, settings: Settings, model: Model) -> None:
    app = create_app(settings)
    with TestClient(app):
        transport = httpx.ASGITransport(app)
        rows = call(kind, transport, "iter_similarity", PAIRS[:5])
        expected = [*model.iter_similarity(PAIRS[:5])]
        for row, other in zip(rows, expected, strict=True):
            assert not isinstance(other, Rejection)
            assert row.probability == pytest.approx(other.probability, abs=1e-6)
        ranked = call(kind, transport, "rank", A, SENTENCES[:5])
        assert [r.probability for r in ranked] == pytest.approx(
            [r.probability for r in model.rank(A, SENTENCES[:5])], abs=1e-6
        )
        options: dict[str, Any] = {"threshold": 0.3, "threshold_on": "probability"}
        pairs = call(kind, transport, "matrix", SENTENCES[:5], **options)
        assert pairs.pairs == model.matrix(SENTENCES[:5], **options).pairs


def test_command_line_prints_and_writes_probabilities(
    capsys: pytest.CaptureFixture[str], calibrated_store: Store, tmp_path: Path, model: Model
) -> None:
    store = ("--store", str(calibrated_store.root), "--model", "tiny")
    expected = next(iter(model.iter_similarity([(A, B)])))
    assert not isinstance(expected, Rejection)
    code, out, _ = lattemix(capsys, "similarity", A, B, *store)
    assert code == 0
    assert out.splitlines()[1].split() == ["probability", f"{expected.probability:.4f}"]
    path = tmp_path / "ranked.jsonl"
    assert lattemix(capsys, "rank", A, *SENTENCES[:3], "--out", str(path), *store)[0] == 0
    for line in map(json.loads, path.read_text().splitlines()):
        assert list(line) == ["index", "score", "probability", "text", "model", "fingerprint"]
    csv = tmp_path / "pairs.csv"
    csv.write_text(f"a,b\n{A},{B}\n")
    out_file = tmp_path / "scores.csv"
    arguments = ("similarity", "--file", str(csv), "--out", str(out_file))
    assert lattemix(capsys, *arguments, *store)[0] == 0
    header = out_file.read_text().splitlines()[0].split(",")
    metric = model.info().recommended_metric
    assert header == ["a", "b", metric, "probability", "error", "model", "fingerprint"]


def test_score_writes_probabilities_and_resumes_with_the_same_calibration(
    calibrated_store: Store, calibration: Calibration, tmp_path: Path
) -> None:
    source = tmp_path / "pairs.jsonl"
    source.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in PAIRS))
    settings = ModelSettings(store=calibrated_store.root, model="tiny")

    def run(output: Path, settings: ModelSettings = settings) -> None:
        start = lambda: LocalRunner(settings)  # noqa: E731
        score(source, output, ("a", "b"), (), None, "jsonl", 10, start)

    run(tmp_path / "out")
    rows = [
        json.loads(line)
        for part in sorted((tmp_path / "out").glob("part-*"))
        for line in part.read_text().splitlines()
    ]
    assert len(rows) == len(PAIRS)
    scores = [row[calibration.metric] for row in rows]
    assert [r["probability"] for r in rows] == pytest.approx(calibration.apply(scores), abs=1e-6)

    other = Store(tmp_path / "store")
    changed = calibration.model_copy(update={"values": (0.0, 0.3, 0.7, 0.9)})
    publish(other, calibrated_store.open("tiny"), "tiny", changed)
    (tmp_path / "out").rename(tmp_path / "out.partial")
    (tmp_path / "out.partial" / "_score.json").rename(tmp_path / "out.partial" / "_plan.json")
    plan = json.loads((tmp_path / "out.partial" / "_plan.json").read_text())
    plan.pop("tally")
    (tmp_path / "out.partial" / "_plan.json").write_text(json.dumps(plan))
    with pytest.raises(LatteMixError, match="was started with another calibration of tiny:fp32"):
        run(tmp_path / "out", ModelSettings(store=other.root, model="tiny"))
