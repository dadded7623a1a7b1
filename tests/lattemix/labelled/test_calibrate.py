import shutil

import numpy as np
import pytest

from lattemix import LatteMixError, Model, load
from lattemix.labelled.calibrate import CalibrationReport, calibrate, publish
from lattemix.labelled.pairs import LabelledPairs
from lattemix.labelled.text import calibration_text
from lattemix.labelled.thresholds import Goal
from model_store import ArtifactError, Store
from model_store.calibration import CALIBRATION, Calibration
from model_store.manifest import file_record
from tests.lattemix.labelled.conftest import TEXTS


@pytest.fixture(scope="module")
def report(model: Model, binary: LabelledPairs, store: Store) -> CalibrationReport:
    return calibrate(model, binary, store.open("tiny").manifest.head.sha256, "ours")


def test_describes_what_was_fitted(report: CalibrationReport, binary: LabelledPairs) -> None:
    calibration = report.calibration
    assert (calibration.kind, calibration.scale) == ("probability", (0, 1))
    assert (calibration.about, calibration.pairs) == ("ours", len(binary))
    assert calibration.fitted_on == "tiny:fp32"
    assert set(calibration.held_out) == {
        *("calibration_error", "brier", "log_loss"),
        *("spearman", "auc", "average_precision"),
    }
    loss = report.losses[calibration.metric][calibration.method]
    assert calibration.held_out["log_loss"] == pytest.approx(loss, abs=1e-4)
    assert report.base_loss == pytest.approx(np.log(2), abs=1e-3)
    assert loss < report.base_loss
    assert sum(b.pairs for b in report.bins) == len(binary)


def test_ranks_pairs_as_the_scores_do(report: CalibrationReport, model: Model) -> None:
    scores = model.similarity(TEXTS, metric=report.calibration.metric)
    values = report.calibration.apply(scores)
    np.testing.assert_array_equal(np.argsort(values), np.argsort(scores.astype(np.float64)))


def test_maps_ratings_to_their_scale(model: Model, binary: LabelledPairs, store: Store) -> None:
    ratings = LabelledPairs(
        name="r", a=binary.a, b=binary.b, labels=1 + 4 * binary.labels, scale=(1, 5)
    )
    report = calibrate(model, ratings, store.open("tiny").manifest.head.sha256, "ours")
    calibration = report.calibration
    assert (calibration.kind, calibration.scale) == ("rating", (1, 5))
    assert 1 <= calibration.values[0] < calibration.values[-1] <= 5
    assert (report.thresholds, report.curve) == ([], [])
    assert "Thresholds" not in calibration_text(report)


def test_reports_thresholds_and_what_is_not_reached(
    model: Model, binary: LabelledPairs, store: Store
) -> None:
    wrong = LabelledPairs(name="p", a=binary.a, b=binary.b, labels=1 - binary.labels, scale=(0, 1))
    head = store.open("tiny").manifest.head.sha256
    goals = [Goal("precision", 0.99), Goal("recall", 0.9)]
    report = calibrate(model, wrong, head, "ours", goals)
    assert report.not_reached == goals[:1]
    (threshold,) = report.thresholds
    assert threshold.goal == goals[1]
    text = calibration_text(report)
    assert "recall 0.9" in text
    assert "predict these labels no better than their mean does" in text
    assert text.endswith("Not reached on these pairs: precision 0.99.")


def test_publishes_a_copy_with_the_calibration(
    private_store: Store, report: CalibrationReport, model: Model
) -> None:
    source = private_store.open("tiny")
    published = publish(private_store, source, "mine", report.calibration)
    assert published.manifest.reference == "mine:fp32"
    assert published.manifest.recommended_metric == report.calibration.metric
    assert published.manifest.fingerprint == source.manifest.fingerprint
    loaded = load("mine", store=private_store.root)
    assert loaded.info().calibration == report.calibration
    np.testing.assert_array_equal(loaded.encode("a dog"), model.encode("a dog"))


def test_replaces_the_calibration_of_a_model(
    private_store: Store, calibration: Calibration
) -> None:
    publish(private_store, private_store.open("tiny"), "tiny", calibration)
    changed = calibration.model_copy(update={"about": "later"})
    publish(private_store, private_store.open("tiny"), "tiny", changed)
    assert load("tiny", store=private_store.root).info().calibration == changed


def test_never_replaces_a_model_of_other_weights(
    private_store: Store, static_store: Store, calibration: Calibration
) -> None:
    shutil.copytree(static_store.root / "static", private_store.root / "static")
    with pytest.raises(LatteMixError, match="another model 'static', of other weights"):
        publish(private_store, private_store.open("tiny"), "static", calibration)


@pytest.mark.parametrize("name", ["default", "fast"])
def test_never_replaces_a_shipped_model(
    private_store: Store, calibration: Calibration, name: str
) -> None:
    with pytest.raises(LatteMixError, match=f"'{name}' is a shipped model: choose another --out"):
        publish(private_store, private_store.open("tiny"), name, calibration)


def test_model_with_a_foreign_calibration_is_rejected(
    private_store: Store, calibration: Calibration
) -> None:
    artifact = publish(private_store, private_store.open("tiny"), "tiny", calibration)
    calibration.model_copy(update={"head": "ab" * 32}).write(artifact.path / CALIBRATION)
    files = {**artifact.manifest.files, CALIBRATION: file_record(artifact.path / CALIBRATION)}
    artifact.manifest.model_copy(update={"files": files}).write(artifact.path)
    with pytest.raises(ArtifactError, match="was fitted on the scores of other weights"):
        load("tiny", store=private_store.root)


def test_damaged_calibration_is_rejected(private_store: Store, calibration: Calibration) -> None:
    artifact = publish(private_store, private_store.open("tiny"), "tiny", calibration)
    path = artifact.path / CALIBRATION
    path.write_bytes(path.read_bytes().replace(b"0.8", b"0.7"))
    with pytest.raises(ArtifactError, match=f"{CALIBRATION} is damaged.*`lattemix calibrate`"):
        load("tiny", store=private_store.root)
