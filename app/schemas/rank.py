"""Bodies of `/rank`, `/rerank` and `/matrix`."""

from pydantic import BaseModel, Field, StrictBool

from app.schemas.common import Amount, Count, Cuttable, Text, TextList, Uncut
from model_store import Metric

_METRIC = "Which similarity; else the model's recommended one."


class RankRequest(Cuttable):
    """A query, and candidates to be put in order."""

    query: Text = Field(examples=["How do I reset my password?"])
    candidates: TextList = Field(
        examples=[["The cat sat by the window.", "I forgot my password and cannot log in."]]
    )
    metric: Metric | None = Field(None, description=_METRIC)
    top_k: Count | None = Field(None, description="Return only so many, the most similar.")
    return_texts: StrictBool = Field(False, description="Repeat each candidate beside its score.")


class RerankRequest(Uncut):
    """The body of text-embeddings-inference's `/rerank`."""

    query: Text = Field(examples=["How do I reset my password?"])
    texts: TextList = Field(
        examples=[["The cat sat by the window.", "I forgot my password and cannot log in."]]
    )
    raw_scores: StrictBool = Field(
        False, description="Without effect: scores are similarities, never put through a sigmoid."
    )
    return_text: StrictBool = Field(False, description="Repeat each text beside its score.")
    metric: Metric | None = Field(None, description=_METRIC)


class Reranked(BaseModel):
    """A text's place in the order."""

    index: int = Field(description="Of the text, in the request.")
    score: float = Field(description="Its similarity to the query.")
    text: str | None = Field(None, description="The text, if asked for.")


class MatrixRequest(Cuttable):
    """Sentences to compare, each with each."""

    inputs: TextList = Field(
        examples=[["A man is eating.", "Someone is having lunch.", "A man is eating food."]]
    )
    metric: Metric | None = Field(None, description=_METRIC)
    threshold: Amount | None = Field(
        None, description="Return only pairs at least so similar.", examples=[0.8]
    )
    top_k: Count | None = Field(None, description="Return only so many, the most similar.")
