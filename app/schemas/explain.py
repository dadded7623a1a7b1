"""Body of `/explain`."""

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, WithJsonSchema

from app.schemas.common import METRIC, ModelChoice, Text, TruncateOption, Truncation, number
from lattemix.responses import Two
from model_store import Metric


def _one_window(value: object) -> object:
    if value == "window":
        raise ValueError(
            'an explanation needs all tokens in one window; choose "right", "left" or "error"'
        )
    return value


_ONE_WINDOW = [
    {"type": "string", "enum": ["error", "right", "left"]},
    {"type": "boolean"},
    {"type": "null"},
]


class ExplainRequest(ModelChoice, Truncation):
    """A pair of sentences whose similarity is to be explained."""

    pair: Two[Text] = Field(
        description="Two sentences.", examples=[["A man is eating.", "Someone is having lunch."]]
    )
    metric: Metric | None = Field(None, description=METRIC)
    truncate: Annotated[
        TruncateOption | None,
        BeforeValidator(_one_window),
        WithJsonSchema({"anyOf": _ONE_WINDOW}),
    ] = Field(
        None,
        description="How to handle a text over the model's maximum length: `right` and `left` "
        "remove tokens from that side, `error` or `false` rejects the request with 413. Default: "
        "the server's `LATTEMIX_TRUNCATE`, but `right` if that is `window`.",
    )
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
