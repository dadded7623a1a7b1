"""Bodies of `/embed` and `/v1/embeddings`."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from app.schemas.common import Count, Cuttable, Texts, Uncut, number

Format = Literal["dense", "flat", "sparse", "base64"]
Number = Literal["float32", "float16"]
DotMetric = Literal["cosine", "bhattacharyya", "centred"]


class EmbedRequest(Cuttable):
    """Sentences to turn into mixtures."""

    inputs: Texts = Field(
        description="One sentence, or a list of them.",
        examples=[["A man is eating.", "Someone is having lunch."]],
    )
    format: Format = Field(
        "dense",
        description="`dense`: nested `[L][C]`; `flat`: `[L*C]`; `sparse`: the weights of at least "
        "`cutoff`; `base64`: the bytes of `flat`, little-endian. For thousands of sentences, ask "
        "for `application/x-npy` in the `Accept` header instead of JSON.",
    )
    cutoff: Annotated[float, Field(ge=0, le=1), BeforeValidator(number)] = Field(
        0.01, description="Smallest weight in `sparse`; refused with other formats."
    )
    dtype: Number = Field(
        "float32", description="Type of the numbers in `base64` and npy; JSON has no float16."
    )


def _no_token_ids(value: object) -> object:
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, int | list) for item in items[:1]):
        raise ValueError("token ids are of another model's vocabulary: send texts")
    return value


class OpenAIRequest(Uncut):
    """The body of OpenAI's embeddings endpoint."""

    input: Annotated[Texts, BeforeValidator(_no_token_ids)] = Field(
        description="One text, or a list of them.", examples=[["A man is eating."]]
    )
    model: str | None = Field(None, description="Any: the answer names the model that is served.")
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="Numbers, unless `base64`: the bytes of little-endian float32."
    )
    metric: DotMetric = Field(
        "cosine",
        description="What the dot product of two of the vectors is. `bhattacharyya` vectors are "
        "square roots of the mixtures.",
    )
    dimensions: Count | None = Field(
        None, description="Taken if it is the length the vectors have; they cannot be shortened."
    )
    user: str | None = Field(None, description="Ignored.")


class OpenAIEmbedding(BaseModel):
    """One vector, of unit length."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class OpenAIResponse(BaseModel):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str = Field(examples=["default"])
    usage: OpenAIUsage
