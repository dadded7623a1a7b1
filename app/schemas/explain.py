"""Bodies of `/explain` and `/latents`."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, StrictBool

from app.schemas.common import Cuttable, Text, number
from lattemix.responses import Two
from model_store import Metric


class ExplainRequest(Cuttable):
    """A pair whose similarity is to be explained."""

    pair: Two[Text] = Field(
        description="Two sentences.", examples=[["A man is eating.", "Someone is having lunch."]]
    )
    metric: Metric | None = Field(
        None, description="Which similarity; else the model's recommended one."
    )
    latents: Annotated[int, BeforeValidator(number)] = Field(
        5, ge=0, description="How many latent dims to show that agree most, and that disagree most."
    )
    token_alignment: StrictBool = Field(
        True, description="Return how similar every token is to every other; else only words."
    )
    token_mixtures: StrictBool = Field(
        False, description="Return the mixture [L, C] of every token, too."
    )


class WordShare(BaseModel):
    """A word, and how much of it is in a latent class."""

    word: str
    share: float = Field(description="Of the word's tokens in the corpus, smoothed; from 0 to 1.")


class LatentResponse(BaseModel):
    """What a latent class means."""

    model: str = Field(examples=["default"])
    dim: int
    index: int = Field(description="The class.")
    usage: float = Field(description="How much of the training corpus's tokens is in it.")
    words: list[WordShare] = Field(description="The words that are most in it, first the most.")
