"""Bodies of `/similarity`."""

from typing import Annotated, Any, get_args

from pydantic import BaseModel, Discriminator, FailFast, Field, Tag

from app.schemas.common import Cuttable, Request, Text, TextList, Two, Uncut
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


class PairSimilarity(BaseModel):
    """One pair's similarities: only the metrics asked for are present."""

    cosine: float | None = Field(None, description="Cosine of the flattened mixtures, in [0, 1].")
    js: float | None = Field(None, description="1 - Jensen-Shannon divergence (bits), in [0, 1].")
    l2: float | None = Field(None, description="Minus the Euclidean distance of the mixtures.")
    bhattacharyya: float | None = Field(None, description="Bhattacharyya coefficient, in [0, 1].")
    centred: float | None = Field(
        None, description="Cosine of sqrt(mixture) less the corpus mean, in [-1, 1]."
    )
    truncated: Two[bool] = Field(
        description="Whether each sentence was longer than the model reads, and so was cut."
    )


class SimilarityResponse(BaseModel):
    """Similarities in the order of the pairs."""

    model: str = Field(examples=["default"])
    similarities: list[PairSimilarity]
    tokens: list[Two[int]] = Field(
        description="Tokens of each sentence, special ones included; of one that was cut, only "
        "`max_input_length` (see `/info`) were read."
    )
