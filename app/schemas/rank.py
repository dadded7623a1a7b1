"""Bodies of `/rank` and `/matrix`."""

from pydantic import Field, StrictBool

from app.schemas.common import (
    METRIC,
    TOP_K,
    Amount,
    Count,
    ModelChoice,
    Text,
    TextList,
    Truncation,
)
from lattemix.calibrated import ThresholdOn
from model_store import Metric

QUERY = "How do I reset my password?"
TEXTS = ["The cat sat by the window.", "I forgot my password and cannot log in."]


class RankRequest(ModelChoice, Truncation):
    """A query and the texts to order by similarity to it."""

    query: Text = Field(description="The query.", examples=[QUERY])
    texts: TextList = Field(description="Texts to order.", examples=[TEXTS])
    metric: Metric | None = Field(None, description=METRIC)
    top_k: Count | None = Field(None, description=TOP_K)
    return_texts: StrictBool = Field(False, description="Whether to return the texts.")


class MatrixRequest(ModelChoice, Truncation):
    """Sentences to compare with each other."""

    inputs: TextList = Field(
        description="Sentences to compare.",
        examples=[["A man is eating.", "Someone is having lunch.", "A man is eating food."]],
    )
    metric: Metric | None = Field(None, description=METRIC)
    threshold: Amount | None = Field(
        None,
        description="Smallest score of a returned pair, or its smallest probability or rating: see "
        "`threshold_on`. Default: none.",
        examples=[0.8],
    )
    threshold_on: ThresholdOn = Field(
        "score",
        description="What `threshold` is compared with: the `score`, or the `probability` or "
        "`rating` of the model's `calibration`.",
    )
    top_k: Count | None = Field(None, description=TOP_K)
