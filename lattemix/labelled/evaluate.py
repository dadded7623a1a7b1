"""`lattemix evaluate`: every metric of several models on one's own labelled pairs."""

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager

from pydantic import BaseModel, Field

from lattemix.labelled.agreement import (
    Agreement,
    AnyModel,
    CalibrationCheck,
    check_calibration,
    measure_agreement,
    score_pairs,
)
from lattemix.labelled.pairs import LabelledPairs
from lattemix.settings import Truncate
from model_store import Metric
from model_store.calibration import Kind

_MIN_TIMED = 500  # pairs


class ModelEvaluation(BaseModel):
    """One model on labelled pairs."""

    model: str = Field(examples=["default:int8"])
    fingerprint: str
    recommended_metric: Metric
    metrics: dict[Metric, Agreement]
    calibration: CalibrationCheck | None = Field(
        None, description="Null if the model has no calibration for such labels."
    )
    sentences_per_second: float | None = Field(
        description="In this run, on this machine. Null for few pairs."
    )


class Evaluation(BaseModel):
    """Several models on the same labelled pairs."""

    pairs: int
    kind: Kind
    models: list[ModelEvaluation]


def evaluate(
    models: Iterable[AbstractContextManager[AnyModel]],
    pairs: LabelledPairs,
    truncate: Truncate | None = None,
) -> Evaluation:
    """Measure every metric of each model on labelled pairs."""
    measured = []
    for opened in models:
        with opened as model:
            measured.append(_evaluate(model, pairs, truncate))
    return Evaluation(pairs=len(pairs), kind=pairs.kind, models=measured)


def _evaluate(model: AnyModel, pairs: LabelledPairs, truncate: Truncate | None) -> ModelEvaluation:
    info = model.info()
    start = time.perf_counter()
    scores = score_pairs(model, pairs, info.metrics, truncate)
    seconds = time.perf_counter() - start
    return ModelEvaluation(
        model=info.model_id,
        fingerprint=info.fingerprint,
        recommended_metric=info.recommended_metric,
        metrics={metric: measure_agreement(values, pairs) for metric, values in scores.items()},
        calibration=check_calibration(info.calibration, scores, pairs),
        sentences_per_second=2 * len(pairs) / seconds if len(pairs) >= _MIN_TIMED else None,
    )
