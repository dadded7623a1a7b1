"""Bodies of `/v1/embeddings` and `/v1/models`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, FailFast, Field, Tag, WithJsonSchema
from typing_extensions import TypeAliasType

from app.schemas.common import CompatibleRequest, Texts, Truncation
from app.schemas.embed import VectorOptions
from lattemix.responses import FINGERPRINT, ModelResponse

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
TokenIds = Annotated[list[Annotated[int, Field(ge=0, strict=True)]], FailFast()]
TokenIdLists = Annotated[
    list[TokenIds],
    FailFast(),
    WithJsonSchema({"anyOf": [_IDS, {"type": "array", "items": _IDS, "minItems": 1}]}),
]


def _as_list(value: Any) -> Any:
    """Return a list of one for a text, or for the token ids of one text."""
    if isinstance(value, str) or (isinstance(value, list) and _is_id(value[:1])):
        return [value]
    return value


def _is_id(first: list[Any]) -> bool:
    return bool(first) and isinstance(first[0], int)


def _tag(value: Any) -> str:
    ids = isinstance(value, list) and value and isinstance(value[0], list)
    return "(token ids)" if ids else "(texts)"


# Aliases: `|` needs hashable types, which annotated ones may not be.
_Texts = TypeAliasType("_Texts", Texts)
_TokenIdLists = TypeAliasType("_TokenIdLists", TokenIdLists)
Input = Annotated[
    Annotated[_Texts, Tag("(texts)")] | Annotated[_TokenIdLists, Tag("(token ids)")],
    Discriminator(_tag),
    BeforeValidator(_as_list),
]


def _no_messages(value: object) -> object:
    if value is not None:
        raise ValueError(
            "chat templates are not supported: send input (mteb: use_chat_template=False)"
        )
    return value


class EmbeddingsRequest(VectorOptions, Truncation, CompatibleRequest):
    """The body of OpenAI's embeddings endpoint."""

    # Before `input`, so that it is the first error of a body without one.
    messages: Annotated[None, BeforeValidator(_no_messages)] = Field(
        None, description="Not supported: send `input`."
    )
    input: Input = Field(
        description="A text, or a list of texts; or token ids, if their text can be recovered "
        "exactly.",
        examples=[["A man is eating."]],
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None,
        description="`float`: lists of numbers; `base64`: the bytes of little-endian float32. "
        "Default: `float`.",
    )


class Embedding(BaseModel):
    """One vector, of unit length."""

    object: Literal["embedding"]
    index: int = Field(description="Position of the text in the request.")
    embedding: list[float] | str = Field(description="Numbers, or little-endian float32 in base64.")


class Usage(BaseModel):
    """Number of tokens read."""

    prompt_tokens: int
    total_tokens: int


class ModelEntry(BaseModel):
    """A served model."""

    id: str = Field(examples=["default"])
    object: Literal["model"]
    created: int = Field(description="When the model was assembled, in seconds since 1970.")
    owned_by: str
    max_model_len: int | None = Field(description="Maximum tokens per text. Null: no limit.")
    fingerprint: str = Field(description=FINGERPRINT, examples=["3f9a61c0b2d4"])


class ModelList(BaseModel):
    """The served models, the default first."""

    object: Literal["list"]
    data: list[ModelEntry]


class EmbeddingsResponse(ModelResponse):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    usage: Usage
