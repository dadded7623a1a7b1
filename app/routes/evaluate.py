"""`POST /evaluate`: agreement of scores with labels."""

import numpy as np
from fastapi import APIRouter, Response

from app.errors import document
from app.routes.context import Context
from app.routes.route import NumbersRoute
from app.routes.serialize import document_model_responses, json_response
from app.schemas.evaluate import EvaluateRequest, EvaluateResponse
from lattemix.labelled.agreement import check_calibration, measure_agreement
from lattemix.labelled.measures import Floats, Ranking, reliability
from lattemix.labelled.pairs import LabelError, Labels, check_labels
from lattemix.similarity import score_range
from model_store import Metric

_ROUNDING = 1e-3  # of scores that were written with few digits

router = APIRouter(tags=["evaluate"], route_class=NumbersRoute)


@router.post(
    "/evaluate",
    summary="Agreement of scores with labels",
    response_model=EvaluateResponse,
    responses={**document_model_responses(), **document("UnusableLabels")},
)
async def evaluate(body: EvaluateRequest, context: Context) -> Response:
    """Compare the scores of pairs with labels: correlation, precision and recall, reliability.

    Useful to choose a threshold. Nothing is stored; `lattemix calibrate` stores a calibration.
    """
    model, metric = context.model, context.model.metric(body.metric)
    labels = _labels(body)
    scores = _scores(body, metric, model.manifest.latent_dims)

    def respond() -> Response:
        measured = EvaluateResponse(
            **model.identity,
            metric=metric,
            kind=labels.kind,
            pairs=len(labels),
            agreement=measure_agreement(scores, labels),
            bins=reliability(scores, labels.targets),
            curve=Ranking(scores, labels.labels).points() if labels.is_binary else [],
            calibration=check_calibration(model.calibration, {metric: scores}, labels),
        )
        return json_response(measured.model_dump())

    return await context.off_loop(respond)


def _labels(body: EvaluateRequest) -> Labels:
    """Check that there is a label for every score, and that the labels differ."""
    if len(body.scores) != len(body.labels):
        counts = f"{len(body.labels):,} labels for {len(body.scores):,} scores"
        raise LabelError(f"There are {counts}: send a label for every score.")
    scale = (body.scale[0], body.scale[1]) if body.scale else None
    values: Floats = np.array(body.labels, np.float64)
    return check_labels("the request", values, scale, "labels[{}]".format).check()


def _scores(body: EvaluateRequest, metric: Metric, latent_dims: int) -> Floats:
    """Check that the scores are possible: others are of another metric."""
    scores: Floats = np.array(body.scores, np.float64)
    low, high = score_range(metric, latent_dims)
    outside = np.flatnonzero((scores < low - _ROUNDING) | (scores > high + _ROUNDING))
    if outside.size:
        index = int(outside[0])
        raise LabelError(
            f"scores[{index}] is {scores[index]:g}: {metric} is from {low:g} to {high:g}. Are they "
            "of another metric?"
        )
    return scores
