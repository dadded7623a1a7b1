"""`POST /evaluate`: agreement of scores with labels."""

import numpy as np
from fastapi import APIRouter, Response

from app.errors import document
from app.routes.context import Context
from app.routes.route import NumbersRoute
from app.routes.serialize import document_model_responses, json_response
from app.schemas.evaluate import EvaluateRequest, EvaluateResponse
from lattemix.labelled.agreement import agreement, check_calibration
from lattemix.labelled.measures import Floats, Ranking, reliability
from lattemix.labelled.pairs import LabelError, Labels, check_labels

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
    scores, labels = np.array(body.scores, np.float64), _labels(body)

    def respond() -> Response:
        measured = EvaluateResponse(
            **model.identity,
            metric=metric,
            kind=labels.kind,
            pairs=len(labels),
            agreement=agreement(scores, labels),
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
    values: Floats = np.array(body.labels, np.float64)
    if body.scale is None:
        return check_labels("labels", values, None).check()
    low, high = body.scale
    if not low < high:
        raise LabelError(f"scale is [{low:g}, {high:g}]: give the lowest and the highest label.")
    return check_labels("labels", values, (low, high)).check()
