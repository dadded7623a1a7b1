from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from model_store import ArtifactError
from model_store.calibration import CALIBRATION, Calibration, read


def test_maps_scores_linearly_between_knots(calibration: Calibration) -> None:
    values = calibration.apply([-2, -1, -0.25, 0.5, 0.7, 1])
    np.testing.assert_allclose(values, [0, 0, 0.1, 0.2, 0.5, 0.9])
    assert calibration.apply(0.5) == pytest.approx(0.2)


def test_inverse_returns_the_score_of_a_value(calibration: Calibration) -> None:
    for score in (-0.3, 0.5, 0.77, 0.95):
        assert calibration.score_of(float(calibration.apply(score))) == pytest.approx(score)


def test_smallest_score_is_the_first_float32_that_reaches_a_value(
    calibration: Calibration,
) -> None:
    steps = {"scores": (-1.0, 1.0), "values": (0.0, 0.9)}  # a value of 0.45 at a score of 0
    for each in (calibration, calibration.model_copy(update=steps)):
        for value in np.float32([0.001, 0.2, 0.45, 0.450001, 0.8, 0.89]):
            score = np.float32(each.smallest_score(float(value)))
            assert np.float32(each.apply(score)) >= value
            assert np.float32(each.apply(np.nextafter(score, np.float32(-2)))) < value
    assert calibration.smallest_score(0.95) == np.inf
    assert calibration.smallest_score(0) == -np.inf


def test_never_changes_an_order(calibration: Calibration) -> None:
    scores = np.sort(np.random.default_rng(0).uniform(-1, 1, 1000))
    assert (np.diff(calibration.apply(scores)) > 0).all()


def test_reads_what_was_written(tmp_path: Path, calibration: Calibration) -> None:
    calibration.write(tmp_path / CALIBRATION)
    assert read(tmp_path / CALIBRATION, calibration.head) == calibration


def test_rejects_a_calibration_of_other_weights(tmp_path: Path, calibration: Calibration) -> None:
    calibration.write(tmp_path / CALIBRATION)
    with pytest.raises(ArtifactError, match=r"other weights, head .*fit it again with `lattemix"):
        read(tmp_path / CALIBRATION, "ab" * 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": (0.0, 0.5, 0.5, 1.0)}, "scores and values should increase"),
        ({"values": (0.0, 0.5, 0.4, 1.0)}, "scores and values should increase"),
        ({"values": (0.0, 1.0)}, "equally long"),
        ({"scores": (0.0, 0.5, 0.9, float("inf"))}, "finite"),
        ({"values": (0.0, 0.5, 0.9, 1.1)}, "within the scale"),
        ({"schema_version": 2}, "schema_version"),
    ],
)
def test_rejects_invalid_maps(
    calibration: Calibration, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Calibration.model_validate({**calibration.model_dump(), **changes})


@pytest.mark.parametrize(
    ("content", "message"), [(b"[", "is not valid: Invalid JSON"), (b"{}", "Field required")]
)
def test_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / CALIBRATION).write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"{CALIBRATION} is not valid: .*{message[-8:]}"):
        read(tmp_path / CALIBRATION, None)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot be read: No such file"):
        read(tmp_path / CALIBRATION, None)
