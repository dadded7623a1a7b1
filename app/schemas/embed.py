"""Body of `/embed`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool

from app.schemas.common import (
    METRIC,
    Count,
    DirectedTruncation,
    ModelChoice,
    PromptName,
    RequestBody,
    Texts,
    number,
)
from lattemix.quantization import DType

Format = Literal["dense", "flat", "sparse", "base64"]
DotMetric = Literal["cosine", "bhattacharyya", "centred"]


class VectorOptions(RequestBody):
    """Options of vectors: which dot product, how long, and in which number type."""

    metric: DotMetric | None = Field(
        None,
        description=f"{METRIC} Dot products of the vectors are this metric. `js` and `l2` are not "
        "dot products: models that recommend one of them return the vectors of `bhattacharyya`, "
        "which `js` follows closely.",
    )
    dimensions: Count | None = Field(
        None,
        description="Length of the vectors: a multiple of the model's `classes`. They are made of "
        "the first latent dims, which preserve the similarities best. Default: all of them.",
    )
    dtype: DType = Field(
        "float32",
        description="Number type. `int8` scales each vector to its largest number; `binary` packs "
        "the signs of eight numbers into a byte, and needs the metric `centred`. Mixtures are "
        "`float32` or `float16`.",
    )


class EmbedRequest(ModelChoice, VectorOptions, DirectedTruncation):
    """Sentences to encode: as vectors, or as mixtures if `format` is set."""

    inputs: Texts = Field(
        description="A sentence, or a list of sentences.",
        examples=[["A man is eating.", "Someone is having lunch."]],
    )
    format: Format | None = Field(
        None,
        description="Return mixtures in this format, instead of vectors. `dense`: nested lists "
        "`[L][C]`; `flat`: a list `[L*C]`; `sparse`: indices and values of the weights of at least "
        "`cutoff`; `base64`: the bytes of `flat`, little-endian. For thousands of sentences, "
        "request a numpy array instead of JSON with the header `Accept: application/x-npy`.",
        examples=["dense"],
    )
    cutoff: Annotated[float, Field(ge=0, le=1), BeforeValidator(number)] = Field(
        0.01, description="Smallest weight included in `sparse`; rejected with other formats."
    )
    # Of text-embeddings-inference.
    normalize: StrictBool = Field(True, description="No effect: vectors always have unit length.")
    prompt_name: PromptName = None
    # Of `InferenceClient`.
    encoding_format: Literal["float"] | None = Field(
        None, description="No effect: vectors are lists of numbers; `/v1/embeddings` has `base64`."
    )
