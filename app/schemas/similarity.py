"""Bodies of `/similarity`."""

from typing import Annotated, Any, get_args

from pydantic import Discriminator, FailFast, Field, Tag

from app.schemas.common import (
    METRIC,
    METRICS,
    DirectedTruncation,
    ModelChoice,
    PromptName,
    RequestBody,
    Text,
    TextList,
    Truncation,
)
from lattemix.responses import Two
from model_store import Metric

_Metrics = Annotated[list[Metric], Field(min_length=1, max_length=len(get_args(Metric)))]


class SimilarityRequest(ModelChoice, Truncation):
    """Sentence pairs to compare."""

    pairs: Annotated[list[Two[Text]], FailFast(), Field(json_schema_extra={"minItems": 1})] = Field(
        description="Pairs of sentences.",
        examples=[[["A man is eating.", "Someone is having lunch."]]],
    )
    metrics: _Metrics | None = Field(None, description=METRICS, examples=[["cosine", "js"]])


class SourceAndSentences(RequestBody):
    """A sentence and the sentences to compare with it."""

    source_sentence: Text = Field(
        description="The sentence to compare with.", examples=["A man is eating."]
    )
    sentences: TextList = Field(
        description="Sentences to compare.",
        examples=[["Someone is having lunch.", "The sea was calm."]],
    )


class SourceParameters(DirectedTruncation):
    """Options of the comparison."""

    metric: Metric | None = Field(None, description=METRIC)
    prompt_name: PromptName = None


class SourceRequest(ModelChoice):
    """The body of Hugging Face's sentence-similarity task and text-embeddings-inference."""

    inputs: SourceAndSentences
    parameters: SourceParameters | None = None


def _tag(body: Any) -> str:
    return "(source)" if isinstance(body, dict) and "inputs" in body else "(pairs)"


# Discriminated by a field, so that an error is about the body that was meant.
AnySimilarityRequest = Annotated[
    Annotated[SimilarityRequest, Tag("(pairs)")] | Annotated[SourceRequest, Tag("(source)")],
    Discriminator(_tag),
]
