"""What the service says of itself."""

from typing import Literal

from pydantic import BaseModel, Field

from model_store import Metric, Precision
from model_store.manifest import Backbone, Parity


class HealthResponse(BaseModel):
    """The server is alive."""

    status: Literal["ok"]


class ReadyResponse(BaseModel):
    """The model is loaded and answers."""

    status: Literal["ready"]


class EmbeddingModel(BaseModel):
    """How tokens become a sentence."""

    pooling: str = Field(examples=["mixture"])


class ModelType(BaseModel):
    """The kind of model."""

    embedding: EmbeddingModel


class InfoResponse(BaseModel):
    """What is being served, and within which limits."""

    model: str = Field(examples=["default"])
    precision: Precision = Field(examples=["int8"])
    precision_reason: str = Field(
        description="Why this precision is served.",
        examples=["int8 loses 0.09 points on STSb dev, at most 0.3"],
    )
    provider: str = Field(description="The device really in use.", examples=["cpu"])
    latent_dims: int
    classes: int
    temperature: float
    metrics: list[Metric] = Field(description="What this model's sentences can be compared by.")
    recommended_metric: Metric
    max_characters: int = Field(description="Most characters in one sentence.")
    max_body_bytes: int = Field(description="Largest request body, in bytes.")
    backbone: Backbone
    corpus: str = Field(description="What the head was trained on.")
    parity: Parity | None = Field(description="Agreement with the reference, measured at assembly.")
    evaluation: dict[str, float] = Field(description="Spearman x100 by `set/metric`.")
    # As text-embeddings-inference names them.
    model_id: str = Field(description="Name and precision.", examples=["default:int8"])
    model_sha: str = Field(description="SHA-256 of the graph.")
    model_dtype: str = Field(examples=["int8"])
    model_type: ModelType
    max_input_length: int = Field(description="Tokens read of a sentence; longer ones are cut.")
    max_batch_tokens: int = Field(description="Tokens in one batch, padding included.")
    max_client_batch_size: int = Field(description="Most sentences in one request.")
    max_concurrent_requests: int = Field(description="Most requests being worked on at once.")
    tokenization_workers: int
    auto_truncate: bool = Field(
        description="Whether long sentences are cut unless told not to, where the answer says so."
    )
    version: str = Field(description="Of Latte-Mix.")
