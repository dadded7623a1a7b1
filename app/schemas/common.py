"""What the requests have in common."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

LONE_SURROGATE = "holds a lone surrogate, which is not valid Unicode"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _unicode(text: str) -> str:
    """JSON can spell half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(LONE_SURROGATE) from None
    return text


def _error_is_false(value: object) -> object:
    return False if value == "error" else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def number(value: object) -> object:
    """JSON has numbers; pydantic would take `"1"` and `true` for one, too."""
    if isinstance(value, str | bool):
        raise ValueError("should be a number")
    return value


# Nothing at all is refused with a code of its own, 400, so only the documentation says it here.
_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}
Text = Annotated[str, AfterValidator(_unicode), WithJsonSchema(_TEXT)]
# Lists stop at the first wrong item: a body of a million of them must not make a million errors.
TextList = Annotated[list[Text], FailFast(), WithJsonSchema(_TEXTS)]
Texts = Annotated[
    list[Text],
    FailFast(),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [_TEXT, _TEXTS]}),
]
Count = Annotated[int, Field(ge=1), BeforeValidator(number)]
Amount = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(number)]

Truncate = Annotated[
    StrictBool, BeforeValidator(_error_is_false, json_schema_input_type=bool | Literal["error"])
]
TRUNCATE = (
    "What happens to a text longer than the model reads: `true` cuts it; `false`, or `error`, "
    "refuses the request."
)
# text-embeddings-inference spells it `Right` and `Left`.
Direction = Annotated[
    Literal["right", "left"],
    BeforeValidator(_lower, json_schema_input_type=Literal["right", "left", "Right", "Left"]),
]


class Request(BaseModel):
    """Unknown fields are refused: a misspelt one would otherwise be ignored without a word."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_field(cls, body: Any) -> Any:
        """Leave only the first unknown field: a million of them must not make a million errors."""
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields):
            return body
        unknown = next(name for name in body if name not in cls.model_fields)
        known = {name: body[name] for name in cls.model_fields if name in body}
        return known | {unknown: body[unknown]}


class _Directed(Request):
    truncation_direction: Direction = Field("right", description="The side that is cut off.")


class Cuttable(_Directed):
    """A request that says what becomes of long texts. Its answer says which were cut."""

    truncate: Truncate = Field(True, description=TRUNCATE)


class Uncut(_Directed):
    """The same, where the answer has no place to say so: long texts are refused, unless asked."""

    # Clients of the APIs whose bodies these are may send null for what they leave out.
    truncate: Truncate | None = Field(None, description=TRUNCATE + " Unless said, it is refused.")
