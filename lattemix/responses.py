"""Response bodies of the service; the library returns the same types."""

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from model_store import Metric, Precision
from model_store.calibration import Calibration
from model_store.manifest import BackboneOrigin, Parity

T = TypeVar("T")

Two = Annotated[list[T], Field(min_length=2, max_length=2)]

FINGERPRINT = "Short hash of the weights: only mixtures of the same fingerprint are comparable."
_METRIC = "Similarity metric of the scores."
_TRUNCATED = "Whether each sentence was truncated."
_TOKENS = "Token count of each sentence before truncation, including special tokens."


class ModelResponse(BaseModel):
    """A response, and the model that computed it."""

    model: str = Field(examples=["default"])
    fingerprint: str = Field(description=FINGERPRINT, examples=["3f9a61c0b2d4"])


class EncodedText(NamedTuple):
    """The mixture of one text."""

    mixture: NDArray[np.float32]  # [L, C]
    tokens: int  # before truncation
    truncated: bool


@dataclass(frozen=True)
class Rejection:
    """Takes the place of an item that cannot be encoded."""

    index: int  # position of the item
    reason: str


class Calibrated(BaseModel):
    """What a score means, if the model has a calibration of its metric."""

    probability: float | None = Field(
        None, description="Probability that the pair is a match, if the model is calibrated for it."
    )
    rating: float | None = Field(
        None,
        description="Similarity as people would rate it, on the scale of the model's "
        "`calibration`, if it has one.",
    )


class Similarities(Calibrated):
    """Similarities of one pair; only the requested metrics are present."""

    cosine: float | None = Field(None, description="Cosine of the flattened mixtures, in [0, 1].")
    js: float | None = Field(None, description="1 - Jensen-Shannon divergence (bits), in [0, 1].")
    l2: float | None = Field(None, description="Negative Euclidean distance of the mixtures.")
    bhattacharyya: float | None = Field(None, description="Bhattacharyya coefficient, in [0, 1].")
    centred: float | None = Field(
        None, description="Cosine of sqrt(mixture) minus its corpus mean, in [-1, 1]."
    )


class SimilarityResponse(ModelResponse):
    """Similarities in the order of the pairs."""

    metric: Metric = Field(description=f"{_METRIC} Of several, the first in the request.")
    similarities: list[Similarities]
    tokens: list[Two[int]] = Field(description=_TOKENS)
    truncated: list[Two[bool]] = Field(description=_TRUNCATED)


class PairSimilarity(Similarities):
    """Similarities of one pair, as the library yields them."""

    truncated: Two[bool] = Field(description=_TRUNCATED)


class SparseMixture(BaseModel):
    """The large weights of a mixture, in the form that vector databases take."""

    indices: list[int] = Field(description="Positions in the flattened mixture: dim * C + class.")
    values: list[float] = Field(description="The weights at these positions.")


class EmbedResponse(ModelResponse):
    """Mixtures in the order of the inputs."""

    shape: tuple[int, int] = Field(description="[L latent dims, C classes] of every embedding.")
    embeddings: list[list[list[float]]] | list[list[float]] | list[SparseMixture] | list[str] = (
        Field(description="One mixture per sentence, in the requested `format`.")
    )
    tokens: list[int] = Field(description=_TOKENS)
    truncated: list[bool] = Field(description=_TRUNCATED)


class ScoredText(BaseModel):
    """One text's position and score."""

    index: int = Field(description="Position of the text in the request.")
    score: float = Field(description="Similarity to the query.")
    text: str | None = Field(None, description="The text, if it was requested.")


class RankedText(ScoredText, Calibrated):
    """One text's position and score, and what the score means."""


class RankResult(RankedText):
    """One text's position and score, as the library returns them."""

    truncated: bool = Field(description="Whether the text was truncated.")


class RankTokens(BaseModel):
    """Token counts before truncation, including special tokens."""

    query: int
    texts: list[int]


class RankTruncated(BaseModel):
    """Whether each sentence was truncated."""

    query: bool
    texts: list[bool]


class RankResponse(ModelResponse):
    """Texts, most similar first."""

    metric: Metric = Field(description=_METRIC)
    results: list[RankedText]
    tokens: RankTokens
    truncated: RankTruncated


class MatrixResponse(ModelResponse):
    """Pairs of sentences, most similar first."""

    metric: Metric = Field(description=_METRIC)
    count: int = Field(description="Number of pairs that reach the threshold, returned or not.")
    pairs: list[Two[int]] = Field(description="Positions [i, j] of each pair; i < j.")
    scores: list[float] = Field(description="Similarity of each pair.")
    probabilities: list[float] | None = Field(
        None, description="Probability of each pair, if the model is calibrated for it."
    )
    ratings: list[float] | None = Field(
        None, description="Rating of each pair, if the model is calibrated for it."
    )
    tokens: list[int] = Field(description=_TOKENS)
    truncated: list[bool] = Field(description=_TRUNCATED)


class TokenContribution(BaseModel):
    """A token and its contribution to the similarity."""

    token: str = Field(description="The vocabulary entry.", examples=["##ing"])
    start: int = Field(description="Offset of its first character.")
    end: int = Field(description="Offset after its last character; equals `start` if special.")
    special: bool = Field(description="Whether the tokenizer added it.")
    word: int | None = Field(description="Index of its word in `words`.")
    weight: float = Field(description="Its weight in the sentence's mixture; weights sum to 1.")
    contribution: float = Field(description="Its contribution to the similarity.")


class WordContribution(BaseModel):
    """A word, of one or several tokens."""

    text: str = Field(description="The word as sent.")
    start: int = Field(description="Offset of its first character.")
    end: int = Field(description="Offset after its last character.")
    tokens: list[int] = Field(description="Indices of its tokens.")
    contribution: float = Field(description="Sum of its tokens' contributions.")


class SentenceExplanation(BaseModel):
    """One of the two sentences."""

    tokens: list[TokenContribution] = Field(
        description="The tokens read, in order. Their contributions sum to the similarity."
    )
    words: list[WordContribution] = Field(description="The words, without special tokens.")
    mixtures: str | None = Field(
        None, description="Mixtures of all tokens [S, L, C], float32 in base64, if requested."
    )


class Link(BaseModel):
    """Two words that are each other's best match."""

    a: int = Field(description="Index in the words of `a`.")
    b: int = Field(description="Index in the words of `b`.")
    similarity: float = Field(description="Similarity of the two words' mixtures.")


class Alignment(BaseModel):
    """Similarities between the tokens and between the words of the two sentences."""

    tokens: list[list[float]] | None = Field(
        None, description="Every token of `a` against every token of `b`, if requested."
    )
    words: list[list[float]] = Field(description="Every word of `a` against every word of `b`.")
    links: list[Link] = Field(description="Mutual best matches between words.")


class DominantClass(BaseModel):
    """The class with the largest share of a sentence in one latent dim."""

    index: int = Field(description="The class; `/latents/{dim}/{class}` describes it.")
    share: float = Field(description="Share of the sentence in this class.")
    words: list[str] | None = Field(
        None, description="Words of the training corpus most typical of the class, if known."
    )


class DimContribution(BaseModel):
    """A latent dim's contribution to the similarity."""

    dim: int
    contribution: float = Field(description="Contributions of all dims sum to the similarity.")
    a: DominantClass
    b: DominantClass


class LatentContributions(BaseModel):
    """The latent dims that contribute most and least."""

    agree: list[DimContribution] = Field(description="Largest contribution first.")
    disagree: list[DimContribution] = Field(description="Smallest contribution first.")


class Explanation(ModelResponse):
    """The similarity of a pair, by token, word and latent dim."""

    metric: Metric = Field(description=_METRIC)
    similarity: float
    tokens: Two[int] = Field(description=_TOKENS)
    truncated: Two[bool] = Field(description=_TRUNCATED)
    a: SentenceExplanation
    b: SentenceExplanation
    alignment: Alignment
    latents: LatentContributions


class WordShare(BaseModel):
    """A word and its share in a latent class."""

    word: str
    share: float = Field(description="Smoothed share of the word's tokens in this class.")


class LatentResponse(ModelResponse):
    """A latent class and its typical words."""

    dim: int = Field(description="The latent dim.")
    index: int = Field(description="The class.")
    usage: float = Field(description="Share of the training corpus's tokens in this class.")
    words: list[WordShare] = Field(description="Words with the largest shares, largest first.")


class EmbeddingModel(BaseModel):
    """The pooling of tokens into a sentence."""

    pooling: str = Field(examples=["mixture"])


class ModelType(BaseModel):
    """The kind of model, as text-embeddings-inference names it."""

    embedding: EmbeddingModel


class ModelInfo(ModelResponse):
    """A loaded model and its origin."""

    precision: Precision = Field(examples=["int8"])
    precision_reason: str = Field(
        description="Why this precision is served.",
        examples=["int8 loses 0.09 points on STSb dev (limit 0.3)"],
    )
    provider: str = Field(description="The device in use.", examples=["cpu"])
    latent_dims: int
    classes: int
    temperature: float
    metrics: list[Metric] = Field(
        description="Metrics this model supports, the recommended one first."
    )
    recommended_metric: Metric = Field(description="Default metric of every endpoint.")
    calibration: Calibration | None = Field(
        None, description="How scores map to probabilities or ratings, and what that was fitted on."
    )
    backbone: BackboneOrigin
    corpus: str = Field(description="Training corpus of the head.")
    parity: Parity | None = Field(description="Agreement with the reference, measured at assembly.")
    evaluation: dict[str, float] = Field(description="Spearman x100 by `set/metric`.")
    # Named as in text-embeddings-inference.
    model_id: str = Field(description="Name and precision.", examples=["default:int8"])
    model_sha: str = Field(description="SHA-256 of the graph.")
    model_dtype: str = Field(examples=["int8"])
    max_input_length: int | None = Field(
        description="Maximum tokens per sentence; `truncate` says how to handle more. Null: no "
        "limit, as static models have none."
    )
    max_batch_tokens: int = Field(description="Tokens per batch, padding included.")
    version: str = Field(description="Version of Latte-Mix.")


class InfoResponse(ModelInfo):
    """A served model and the limits on requests."""

    models: list[str] = Field(description="Names of the served models, the default first.")
    max_characters: int = Field(description="Maximum characters per sentence.")
    max_body_bytes: int = Field(description="Maximum request body, in bytes.")
    # Named as in text-embeddings-inference.
    model_type: ModelType
    max_client_batch_size: int = Field(description="Maximum sentences per request.")
    max_concurrent_requests: int = Field(description="Maximum concurrent requests.")
    tokenization_workers: int
    served_model_name: str = Field(description="Same as `model`.", examples=["default"])
    max_batch_requests: None = Field(description="Batches are limited by tokens only.")
    sha: None
    docker_label: None
    auto_truncate: bool = Field(
        description="Whether texts over `max_input_length` are accepted by default, truncated or "
        "in windows."
    )


class HealthResponse(BaseModel):
    """The server is alive."""

    status: Literal["ok"]


class ReadyResponse(BaseModel):
    """The model is loaded and answers."""

    status: Literal["ready"]
