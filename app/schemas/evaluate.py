"""Body and response of `/evaluate`."""

from typing import Annotated

from pydantic import FailFast, Field

from app.schemas.common import METRIC, Amount, ModelChoice
from lattemix.labelled.agreement import Agreement, CalibrationCheck
from lattemix.labelled.measures import Bin, CurvePoint
from lattemix.responses import ModelResponse, Two
from model_store import Metric
from model_store.calibration import Kind

_Numbers = Annotated[list[Amount], FailFast(), Field(max_length=100_000)]


class EvaluateRequest(ModelChoice):
    """Scores of pairs, and the labels that people gave the pairs."""

    scores: _Numbers = Field(
        description="Similarity of each pair, as `/similarity` returns it.",
        examples=[[0.91, 0.18, 0.72, 0.35]],
    )
    labels: _Numbers = Field(
        description="Label of each pair: 0 or 1, or a rating on the scale.",
        examples=[[1, 0, 1, 0]],
    )
    scale: Two[Amount] | None = Field(
        None, description="Lowest and highest rating. Default: labels are 0 and 1.", examples=[None]
    )
    metric: Metric | None = Field(None, description=METRIC)


class EvaluateResponse(ModelResponse):
    """How well scores agree with labels."""

    metric: Metric
    kind: Kind = Field(description="`probability` for labels 0 and 1, else `rating`.")
    pairs: int
    agreement: Agreement
    bins: list[Bin] = Field(
        description="Pairs in order of score: their mean score, `predicted`, and their mean label "
        "as a share of the scale, `observed`."
    )
    curve: list[CurvePoint] = Field(
        description="Precision and recall by threshold, for labels 0 and 1."
    )
    calibration: CalibrationCheck | None = Field(
        None,
        description="The model's calibration on these pairs. Null if it has none for this kind and "
        "scale of label.",
    )
