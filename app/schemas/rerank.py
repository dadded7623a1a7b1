"""Bodies of other services' rerankers: text-embeddings-inference, Cohere, Jina, vLLM."""

from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    FailFast,
    Field,
    JsonValue,
    StrictBool,
    Tag,
)

from app.schemas.common import (
    METRIC,
    CompatibleRequest,
    DirectedTruncation,
    Text,
    TextList,
    Texts,
    Truncation,
    number,
)
from app.schemas.openai import Usage
from app.schemas.rank import QUERY, TEXTS
from lattemix.responses import ModelResponse, ScoredText
from model_store import Metric

_TOP_N = "Maximum number of results. Default, or 0: all."

TopN = Annotated[int, Field(ge=0), BeforeValidator(number)]


class TeiRerankRequest(DirectedTruncation, CompatibleRequest):
    """The body of text-embeddings-inference's `/rerank`."""

    query: Text = Field(description="The query.", examples=[QUERY])
    texts: TextList = Field(description="Texts to order.", examples=[TEXTS])
    raw_scores: StrictBool = Field(
        False, description="No effect: scores are similarities, without a sigmoid."
    )
    return_text: StrictBool = Field(False, description="Whether to return the texts.")
    top_n: TopN | None = Field(None, description=_TOP_N)
    metric: Metric | None = Field(None, description=METRIC)


class Document(BaseModel):
    """A document with its text; other fields are ignored."""

    text: Text


def _as_document(value: Any) -> Any:
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        raise ValueError("should be a string or an object with a text")
    return value


_DOCUMENT: JsonValue = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1}},
            "required": ["text"],
        },
    ]
}


class RerankRequest(Truncation, CompatibleRequest):
    """The body of Cohere's, Jina's and vLLM's rerank endpoints."""

    query: Text = Field(description="The query.", examples=[QUERY])
    documents: Annotated[list[Annotated[Document, BeforeValidator(_as_document)]], FailFast()] = (
        Field(
            description="Texts to order, or objects with a field `text`.",
            examples=[TEXTS],
            json_schema_extra={"items": _DOCUMENT, "minItems": 1},
        )
    )
    top_n: TopN | None = Field(None, description=_TOP_N)
    return_documents: StrictBool | None = Field(
        None, description="Whether to return the documents. Default: false."
    )
    metric: Metric | None = Field(None, description=METRIC)


def _tag(body: Any) -> str:
    return "(documents)" if isinstance(body, dict) and "documents" in body else "(texts)"


AnyRerankRequest = Annotated[
    Annotated[TeiRerankRequest, Tag("(texts)")] | Annotated[RerankRequest, Tag("(documents)")],
    Discriminator(_tag),
]


class ScoreRequest(Truncation, CompatibleRequest):
    """The body of vLLM's score endpoint."""

    text_1: Texts = Field(
        validation_alias=AliasChoices("text_1", "queries", "data_1"),
        description="A text, or a list of texts. Also `queries` or `data_1`.",
        examples=[QUERY],
    )
    text_2: Texts = Field(
        validation_alias=AliasChoices("text_2", "documents", "items", "data_2"),
        description="A text, or a list of texts: as many as `text_1` unless that is one text. "
        "Also `documents`, `items` or `data_2`.",
        examples=[TEXTS],
    )
    metric: Metric | None = Field(None, description=METRIC)


class TeiRerankResult(ScoredText):
    """One text's position and score, as text-embeddings-inference names them."""


class DocumentText(BaseModel):
    """The text of a document."""

    text: str


class RerankResult(BaseModel):
    """One document's position and score."""

    index: int = Field(description="Position of the document in the request.")
    relevance_score: float = Field(description="Similarity to the query.")
    document: DocumentText | None = Field(
        None, description="The document, if `return_documents` is set."
    )


class ApiVersion(BaseModel):
    """The version of the API."""

    version: str


class BilledUnits(BaseModel):
    """The units that Cohere would bill."""

    search_units: int


class RerankMeta(BaseModel):
    """What Cohere's clients expect beside the results."""

    api_version: ApiVersion
    billed_units: BilledUnits


class RerankResponse(ModelResponse):
    """Documents, most similar first, in the format of Cohere, Jina and vLLM."""

    id: str = Field(description="The request id.")
    results: list[RerankResult]
    meta: RerankMeta
    usage: Usage


class PairScore(BaseModel):
    """The similarity of one pair."""

    index: int
    object: Literal["score"]
    score: float


class ScoreResponse(ModelResponse):
    """Similarities in the order of the request, in the format of vLLM."""

    id: str = Field(description="The request id.")
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    data: list[PairScore]
    usage: Usage
