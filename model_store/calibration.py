"""Maps from scores to probabilities or ratings: `calibration.json`, optional in an artifact.

A calibration maps the scores of one metric to a probability, or to a rating on a scale. The map is
strictly increasing, so that it never changes an order.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from model_store.errors import ArtifactError, read_json
from model_store.manifest import CALIBRATION, Artifact, Metric, Sha256

CALIBRATION_VERSION: Literal[1] = 1

_BISECTIONS = 80  # enough for scores near 0, where floats are dense

# The name of a calibrated score in responses and files.
Kind = Literal["probability", "rating"]
Method = Literal["logistic", "isotonic"]


class Calibration(BaseModel):
    """A map from the scores of a metric, and the pairs that it was fitted on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = CALIBRATION_VERSION
    head: Sha256 = Field(description="Digest of the head whose scores were fitted.")
    metric: Metric = Field(description="The metric whose scores are mapped.")
    kind: Kind = Field(
        description="`probability` that a pair is a match, or `rating` on the scale of the labels."
    )
    scale: tuple[float, float] = Field(description="Lowest and highest label.")
    method: Method
    scores: tuple[float, ...] = Field(min_length=2, description="Scores of the map, increasing.")
    values: tuple[float, ...] = Field(description="Value of each score; linear in between.")
    about: str = Field(description="The labelled pairs, and their licence.")
    pairs: int = Field(gt=0, description="Number of labelled pairs.")
    fitted_on: str = Field(description="Model that scored the pairs.", examples=["default:int8"])
    held_out: Mapping[str, float] = Field(
        default_factory=dict, description="Measured by cross-validation on the labelled pairs."
    )

    @model_validator(mode="after")
    def _is_increasing(self) -> "Calibration":
        numbers = (*self.scores, *self.values, *self.scale)
        if len(self.scores) != len(self.values) or not np.isfinite(numbers).all():
            raise ValueError("scores and values should be lists of finite numbers, equally long")
        if not (np.all(np.diff(self.scores) > 0) and np.all(np.diff(self.values) > 0)):
            raise ValueError("scores and values should increase")
        low, high = self.scale
        if not low <= self.values[0] < self.values[-1] <= high:
            raise ValueError("values should be within the scale")
        return self

    def apply(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probability or rating of each score."""
        return np.interp(np.asarray(scores, np.float64), self.scores, self.values)

    def score_of(self, value: float) -> float:
        """Return the score whose probability or rating is `value`."""
        return float(np.interp(value, self.values, self.scores))

    def smallest_score(self, value: float) -> float:
        """Return the smallest float32 score whose float32 value is at least `value`.

        Infinite if no score has such a value, or all have.
        """
        wanted = np.float32(value)
        if wanted > np.float32(self.values[-1]):
            return math.inf
        if wanted <= np.float32(self.values[0]):
            return -math.inf
        below, reached = self.scores[0], self.scores[-1]
        for _ in range(_BISECTIONS):
            middle = (below + reached) / 2
            if np.float32(self.apply(middle)) >= wanted:
                reached = middle
            else:
                below = middle
        rounded = np.float32(reached)
        up = np.nextafter(rounded, np.float32(math.inf))
        return float(rounded if rounded >= np.float64(reached) else up)

    def write(self, path: Path) -> None:
        """Write the calibration as JSON."""
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read(path: Path, head: str | None) -> Calibration:
    """Read `calibration.json` and check that it was fitted on the scores of this head."""
    calibration = read_json(path, Calibration)
    if calibration.head != head:
        raise ArtifactError(
            f"{path} was fitted on the scores of other weights, head {calibration.head[:12]}…, "
            f"not {str(head)[:12]}…: fit it again with `lattemix calibrate`, or remove it."
        )
    return calibration


def calibration_of(artifact: Artifact) -> Calibration | None:
    """Return the calibration of an artifact, if it has one."""
    path = artifact.calibration
    return read(path, artifact.manifest.head.sha256) if path else None


__all__ = ["CALIBRATION", "Calibration", "Kind", "Method", "calibration_of", "read"]
