"""Agreement of a model's scores with labels, by metric."""

import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from pydantic import BaseModel, Field

from lattemix.client import Client
from lattemix.labelled.measures import (
    RESAMPLES,
    Bin,
    Estimate,
    Floats,
    Ranking,
    Resamples,
    calibration_error,
    reliability,
    spearman,
)
from lattemix.labelled.pairs import LabelError, LabelledPairs, Labels
from lattemix.model import Model
from lattemix.responses import PairSimilarity, Rejection
from lattemix.settings import Truncate
from model_store import Metric
from model_store.calibration import Calibration, Kind

AnyModel: TypeAlias = Model | Client

_RESAMPLED_PAIRS = 20_000_000  # pairs of all resamples: fewer resamples of many pairs


class Agreement(BaseModel):
    """Agreement of one metric's scores with the labels."""

    spearman: Estimate = Field(description="Rank correlation with the labels.")
    auc: Estimate | None = Field(None, description="Area under the ROC curve, for labels 0 and 1.")
    average_precision: Estimate | None = Field(
        None, description="Area under the precision/recall curve, for labels 0 and 1."
    )


class CalibrationCheck(BaseModel):
    """Calibration error on labelled pairs."""

    kind: Kind
    error: float = Field(
        description="Expected calibration error: mean gap between predicted and observed labels, "
        "as a share of the scale."
    )
    bins: list[Bin] = Field(description="Predicted and observed labels, of equally many pairs.")


def score_pairs(
    model: AnyModel,
    pairs: LabelledPairs,
    metrics: Sequence[Metric],
    truncate: Truncate | None = None,
) -> dict[Metric, Floats]:
    """Return the scores [N] of labelled pairs by metric; raise `LabelError` for a rejected pair."""
    from tqdm import tqdm

    rows: list[PairSimilarity] = []
    texts = zip(pairs.a, pairs.b, strict=True)
    results = model.iter_similarity(texts, metrics, truncate=truncate)
    bar = tqdm(results, total=len(pairs), unit=" pairs", disable=not sys.stderr.isatty())
    for number, row in enumerate(bar, 1):
        if isinstance(row, Rejection):
            raise LabelError(f"{pairs.name}, row {number:,}: {row.reason}")
        rows.append(row)
    return {metric: np.array([getattr(row, metric) for row in rows]) for metric in metrics}


def resamples_of(pairs: int) -> Resamples:
    """Return bootstrap resamples, fewer of many pairs."""
    return Resamples(pairs, max(200, min(RESAMPLES, _RESAMPLED_PAIRS // pairs)))


def measure_agreement(scores: Floats, labels: Labels) -> Agreement:
    """Measure the agreement of scores [N] with labels."""
    if scores.min() == scores.max():
        raise LabelError(f"All pairs have the score {scores[0]:g}: nothing can be measured.")
    resamples = resamples_of(len(labels))
    correlation = resamples.estimate(spearman(scores, labels.labels))
    if not labels.is_binary:
        return Agreement(spearman=correlation)
    ranking = Ranking(scores, labels.labels)
    return Agreement(
        spearman=correlation,
        auc=resamples.estimate(ranking.auc),
        average_precision=resamples.estimate(ranking.average_precision),
    )


def check_calibration(
    calibration: Calibration | None, scores: Mapping[Metric, Floats], labels: Labels
) -> CalibrationCheck | None:
    """Compare a calibration's predictions with labels; None if it was fitted for other labels."""
    if calibration is None or calibration.metric not in scores:
        return None
    if (calibration.kind, calibration.scale) != (labels.kind, labels.scale):
        return None
    low, high = calibration.scale
    predicted = (calibration.apply(scores[calibration.metric]) - low) / (high - low)
    return CalibrationCheck(
        kind=calibration.kind,
        error=calibration_error(predicted, labels.targets),
        bins=reliability(predicted, labels.targets),
    )
