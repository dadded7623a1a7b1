"""The API's requests and answers; their descriptions and examples are its documentation."""

from typing import Annotated, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from model_store import Metric
from model_store.manifest import Backbone, Parity


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _unicode(text: str) -> str:
    """JSON can spell half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds a lone surrogate, which is not valid Unicode") from None
    return text


# Lists stop at the first wrong item: a body of a million of them must not make a million errors.
Text = Annotated[str, AfterValidator(_unicode)]
Texts = Annotated[
    list[Text], FailFast(), BeforeValidator(_as_list, json_schema_input_type=str | list[str])
]
Pairs = Annotated[list[tuple[Text, Text]], FailFast()]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SimilarityRequest(_Request):
    """Sentence pairs to score."""

    pairs: Pairs = Field(
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


class PairSimilarity(BaseModel):
    """One pair's similarities: only the metrics asked for are present."""

    cosine: float | None = Field(None, description="Cosine of the flattened mixtures, in [0, 1].")
    js: float | None = Field(None, description="1 - Jensen-Shannon divergence (bits), in [0, 1].")
    l2: float | None = Field(None, description="Minus the Euclidean distance of the mixtures.")
    bhattacharyya: float | None = Field(None, description="Bhattacharyya coefficient, in [0, 1].")
    centred: float | None = Field(
        None, description="Cosine of sqrt(mixture) less the corpus mean, in [-1, 1]."
    )
    truncated: tuple[bool, bool] = Field(
        description="Whether each sentence was longer than the model reads, and so was cut."
    )


class SimilarityResponse(BaseModel):
    """Similarities in the order of the pairs."""

    model: str = Field(examples=["default"])
    similarities: list[PairSimilarity]


class EmbedRequest(_Request):
    """Sentences to turn into mixtures."""

    inputs: Texts = Field(
        description="One sentence, or a list of them.",
        examples=[["A man is eating.", "Someone is having lunch."]],
    )


class EmbedResponse(BaseModel):
    """Mixtures in the order of the inputs."""

    model: str = Field(examples=["default"])
    shape: tuple[int, int] = Field(description="[L latent dims, C classes] of every embedding.")
    embeddings: list[list[list[float]]] = Field(
        description="Per sentence, L distributions over C classes; each sums to 1."
    )
    tokens: list[int] = Field(description="Tokens read of each sentence, special ones included.")
    truncated: list[bool] = Field(description="Whether each sentence was cut.")


class HealthResponse(BaseModel):
    """The server is alive."""

    status: str = Field("ok", examples=["ok"])


class InfoResponse(BaseModel):
    """What is being served, and within which limits."""

    model: str = Field(examples=["default"])
    precision: str = Field(examples=["int8"])
    precision_reason: str = Field(
        description="Why this precision is served.",
        examples=["int8 loses 0.09 points on STSb dev, at most 0.3"],
    )
    provider: str = Field(description="The device really in use.", examples=["cpu"])
    latent_dims: int
    classes: int
    temperature: float
    metrics: list[Metric] = Field(description="What `/similarity` can return for this model.")
    recommended_metric: Metric
    max_input_length: int = Field(description="Tokens read of a sentence; longer ones are cut.")
    max_client_batch_size: int = Field(description="Most sentences in one request.")
    max_body_bytes: int
    backbone: Backbone
    corpus: str = Field(description="What the head was trained on.")
    parity: Parity | None = Field(description="Agreement with the reference, measured at assembly.")
    evaluation: dict[str, float] = Field(description="Spearman x100 by `set/metric`.")
    version: str = Field(description="Of Latte-Mix.")
