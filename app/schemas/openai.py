"""Body of `/v1/embeddings`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, FailFast, Field, Tag, WithJsonSchema

from app.schemas.common import CompatibleRequest, RejectedByDefault, Texts
from app.schemas.embed import VectorOptions

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


Input = Annotated[
    Annotated[Texts, Tag("(texts)")] | Annotated[TokenIdLists, Tag("(token ids)")],
    Discriminator(_tag),
    BeforeValidator(_as_list),
]


class EmbeddingsRequest(CompatibleRequest, VectorOptions, RejectedByDefault):
    """The body of OpenAI's embeddings endpoint."""

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
