"""Bodies of `/similarity`."""

from typing import Annotated, Any, get_args

from pydantic import Discriminator, FailFast, Field, Tag

from app.schemas.common import Cuttable, Request, Text, TextList, Uncut
from lattemix.responses import Two
from model_store import Metric


class SimilarityRequest(Cuttable):
    """Sentence pairs to score."""

    pairs: Annotated[list[Two[Text]], FailFast(), Field(json_schema_extra={"minItems": 1})] = Field(
        description="Pairs of sentences.",
        examples=[[["A man is eating.", "Someone is having lunch."]]],
    )
    metrics: list[Metric] = Field(
        ["cosine", "js"],
        min_length=1,
        max_length=len(get_args(Metric)),
        description="Which similarities to return for every pair. Higher is always more similar.",
        examples=[["cosine", "js"]],
    )


class SourceAndSentences(Request):
    """One sentence and those to compare it with."""

    source_sentence: Text = Field(examples=["A man is eating."])
    sentences: TextList = Field(examples=[["Someone is having lunch.", "The sea was calm."]])


class SourceParameters(Uncut):
    """How to compare."""

    metric: Metric | None = Field(None, description="Else the model's recommended one.")


class SourceRequest(Request):
    """The sentence-similarity body of Hugging Face clients and text-embeddings-inference."""

    inputs: SourceAndSentences
    parameters: SourceParameters | None = None


def _form(body: Any) -> str:
    return "(source)" if isinstance(body, dict) and "inputs" in body else "(pairs)"


# By the field that tells them apart, so that an error speaks of the one that was meant.
AnySimilarityRequest = Annotated[
    Annotated[SimilarityRequest, Tag("(pairs)")] | Annotated[SourceRequest, Tag("(source)")],
    Discriminator(_form),
]
