"""Types and base classes of the request bodies."""

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    WithJsonSchema,
    model_validator,
)

from lattemix.settings import Truncate

# Tags of alternative bodies or fields, in error locations; no field has such a name.
TAGS = {"(pairs)", "(source)", "(texts)", "(token ids)", "(documents)"}
LONE_SURROGATE = "holds a lone surrogate, which is not valid Unicode"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_unicode(text: str) -> str:
    """Reject half of a surrogate pair, which JSON can spell."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(LONE_SURROGATE) from None
    return text


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _no_number(value: object) -> object:
    """Reject 1 and 0, which pydantic would take for booleans."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("should be a string or a boolean")
    return value


def number(value: object) -> object:
    """Reject `"1"` and `true`, which pydantic would convert to a number."""
    if isinstance(value, str | bool):
        raise ValueError("should be a number")
    return value


def _no_prompt(value: object) -> object:
    if value is not None:
        raise ValueError("models have no prompts; leave it out")
    return value


# Empty texts and lists are documented here but rejected later, with 400 instead of 422.
_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}
Text = Annotated[str, AfterValidator(_check_unicode), WithJsonSchema(_TEXT)]
# Lists stop at the first invalid item: a body of a million of them must not make a million errors.
TextList = Annotated[list[Text], FailFast(), WithJsonSchema(_TEXTS)]
Texts = Annotated[
    list[Text],
    FailFast(),
    BeforeValidator(_as_list),
    WithJsonSchema({"anyOf": [_TEXT, _TEXTS]}),
]
Count = Annotated[int, Field(ge=1), BeforeValidator(number)]
Amount = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(number)]

# One literal, so that an error names the field alone. Booleans: Hugging Face's `truncate`.
TruncateOption = Annotated[
    Literal[Truncate, True, False],
    BeforeValidator(_no_number),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "enum": list(get_args(Truncate))}, {"type": "boolean"}]}
    ),
]
# text-embeddings-inference spells it `Right` and `Left`.
Direction = Annotated[
    Literal["right", "left"],
    BeforeValidator(_lower, json_schema_input_type=Literal["right", "left", "Right", "Left"]),
]

# Of text-embeddings-inference.
PromptName = Annotated[
    None,
    BeforeValidator(_no_prompt),
    Field(description="Not supported, because models have no prompts: leave it out."),
]

MODEL = "Name of the model, as `/v1/models` lists it. Default: the server's default model."
METRIC = "Similarity metric. Default: the model's `recommended_metric`."
METRICS = "Similarity metrics. Default: the model's `recommended_metric`."
TOP_K = "Maximum number of results, most similar first. Default: all."


class RequestBody(BaseModel):
    """Unknown fields are rejected: a misspelt option would otherwise be ignored silently."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _one_unknown_field(cls, body: Any) -> Any:
        """Keep only the first unknown field: a million of them must not make a million errors."""
        ignored = cls.model_config.get("extra") == "ignore"
        if ignored or not isinstance(body, dict) or len(body) <= len(cls.model_fields):
            return body
        unknown = next(name for name in body if name not in cls.model_fields)
        known = {name: body[name] for name in cls.model_fields if name in body}
        return known | {unknown: body[unknown]}


class ModelChoice(RequestBody):
    """A request that may choose one of the served models."""

    model: str | None = Field(None, description=MODEL, examples=["default"])


class CompatibleRequest(ModelChoice):
    """The body of another service's API, whose clients send fields that have no meaning here.

    The last base class of a body, whose configuration is the one that counts.
    """

    model_config = ConfigDict(extra="ignore")


class Truncation(RequestBody):
    """A request whose texts may be longer than the model's maximum length."""

    truncate: TruncateOption | None = Field(
        None,
        description="How to handle a text over the model's maximum length (`max_input_length`): "
        "`window` averages overlapping windows, `right` and `left` remove tokens from that side, "
        "`error` rejects the request with 413. `true`: the default, or `right` if that is `error`; "
        "`false`: `error`. Default: the server's `LATTEMIX_TRUNCATE`.",
    )


class DirectedTruncation(Truncation):
    """The truncation options of text-embeddings-inference."""

    truncation_direction: Direction | None = Field(
        None,
        description="Side to remove tokens from: overrides `truncate`, unless that rejects long "
        "texts.",
    )
