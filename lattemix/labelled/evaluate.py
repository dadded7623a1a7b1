"""`lattemix evaluate`: every metric of several models on one's own labelled pairs."""

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from pydantic import BaseModel, Field

from lattemix.labelled.agreement import (
    Agreement,
    AnyModel,
    CalibrationCheck,
    agreement,
    check_calibration,
    score_pairs,
)
from lattemix.labelled.pairs import LabelledPairs
from lattemix.labelled.table import aligned
from lattemix.settings import Truncate
from model_store import Metric
from model_store.calibration import Kind


def measure_names(kind: Kind) -> Sequence[str]:
    """Return the names of the measures that labels of this kind have."""
    return ("auc", "average_precision", "spearman") if kind == "probability" else ("spearman",)


class ModelEvaluation(BaseModel):
    """One model on labelled pairs."""

    model: str = Field(examples=["default:int8"])
    fingerprint: str
    recommended_metric: Metric
    metrics: dict[Metric, Agreement]
    calibration: CalibrationCheck | None = Field(
        None, description="Null if the model has no calibration for such labels."
    )
    sentences_per_second: float = Field(description="In this run, on this machine.")


class Evaluation(BaseModel):
    """Several models on the same labelled pairs."""

    pairs: int
    kind: Kind
    models: list[ModelEvaluation]

    def __str__(self) -> str:
        """The evaluation as a table, and the metric with the best scores."""
        names = measure_names(self.kind)
        rows = [["model", "metric", *(name.replace("_", " ") for name in names), "sentences/s"]]
        for model in self.models:
            for metric, measured in model.metrics.items():
                values = [str(getattr(measured, name)) for name in names]
                star = "*" if metric == model.recommended_metric else ""
                speed = f"{model.sentences_per_second:,.0f}" if star else ""
                rows.append([model.model, metric + star, *values, speed])
        notes = ["* recommended by the model; [95 % interval]"]
        for model in self.models:
            if check := model.calibration:
                error = f"expected calibration error {check.error:.3f}"
                notes.append(f"{check.kind} of {model.model}: {error}")
        return "\n".join([aligned(rows), *notes])


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
        metrics={metric: agreement(values, pairs) for metric, values in scores.items()},
        calibration=check_calibration(info.calibration, scores, pairs),
        sentences_per_second=2 * len(pairs) / seconds,
    )
