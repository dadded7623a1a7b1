"""Body of `/explain`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool

from app.schemas.common import METRIC, ModelChoice, Text, Truncation, number
from lattemix.responses import Two
from model_store import Metric


class ExplainRequest(ModelChoice, Truncation):
    """A pair of sentences whose similarity is to be explained."""

    pair: Two[Text] = Field(
        description="Two sentences.", examples=[["A man is eating.", "Someone is having lunch."]]
    )
    metric: Metric | None = Field(None, description=METRIC)
    latents: Annotated[int, BeforeValidator(number)] = Field(
        5,
        ge=0,
        description="Number of latent dims to return with the largest contributions, and with the "
        "smallest.",
    )
    token_alignment: StrictBool = Field(
        True, description="Whether to return the similarities between all tokens."
    )
    token_mixtures: StrictBool = Field(
        False, description="Whether to return the mixture [L, C] of every token."
    )
