"""Bodies of `/embed` and `/v1/embeddings`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from app.schemas.common import (
    METRIC,
    Count,
    DirectedTruncation,
    ModelChoice,
    Texts,
    Truncation,
    number,
)

Format = Literal["dense", "flat", "sparse", "base64"]
DType = Literal["float32", "float16"]
DotMetric = Literal["cosine", "bhattacharyya", "centred"]


class EmbedRequest(ModelChoice, DirectedTruncation):
    """Sentences to encode as mixtures."""

    inputs: Texts = Field(
        description="A sentence, or a list of sentences.",
        examples=[["A man is eating.", "Someone is having lunch."]],
    )
    format: Format = Field(
        "dense",
        description="Format of a mixture. `dense`: nested lists `[L][C]`; `flat`: a list `[L*C]`; "
        "`sparse`: indices and values of the weights of at least `cutoff`; `base64`: the bytes of "
        "`flat`, little-endian. For thousands of sentences, request a numpy array instead of JSON "
        "with the header `Accept: application/x-npy`.",
    )
    cutoff: Annotated[float, Field(ge=0, le=1), BeforeValidator(number)] = Field(
        0.01, description="Smallest weight included in `sparse`; rejected with other formats."
    )
    dtype: DType = Field(
        "float32", description="Number type of `base64` and npy; rejected with other formats."
    )


def _no_token_ids(value: object) -> object:
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, int | list) for item in items[:1]):
        raise ValueError("token ids belong to another model's vocabulary: send texts")
    return value


class OpenAIRequest(ModelChoice, Truncation):
    """The body of OpenAI's embeddings endpoint."""

    input: Annotated[Texts, BeforeValidator(_no_token_ids)] = Field(
        description="A text, or a list of texts.", examples=[["A man is eating."]]
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None,
        description="`float`: lists of numbers; `base64`: the bytes of little-endian float32. "
        "Default: `float`.",
    )
    metric: DotMetric | None = Field(
        None,
        description=f"{METRIC} Dot products of the vectors are this metric. `js` and `l2` are not "
        "dot products: models that recommend one of them return the vectors of `bhattacharyya`, "
        "which `js` follows closely.",
    )
    dimensions: Count | None = Field(
        None, description="Length of the vectors; only the model's own length is accepted."
    )
    user: str | None = Field(None, description="Ignored.")
