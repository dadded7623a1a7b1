"""Error responses: one table of status codes, and the shape that the clients of a path read."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from app.engine.errors import OverloadedError, UnavailableError, UnknownModelError
from app.observe.trace import Trace
from app.schemas.common import LONE_SURROGATE, TAGS
from lattemix.calibrated import CalibrationError
from lattemix.errors import DimensionsError, DTypeError, InferenceError
from lattemix.labelled.pairs import LabelError
from lattemix.similarity import MetricError

ErrorType = Literal[
    "Empty",
    "UnusableLabels",
    "Unauthorized",
    "NotFound",
    "MethodNotAllowed",
    "SlowBody",
    "TooLarge",
    "Validation",
    "Backend",
    "Overloaded",
    "Internal",
    "Unhealthy",
    "Timeout",
]


class ErrorKind(NamedTuple):
    """Status code and documentation of an error type."""

    status: int
    description: str
    example: str = ""


ERRORS: dict[ErrorType, ErrorKind] = {
    "Empty": ErrorKind(
        400,
        "A list is empty, or a text has no words.",
        "inputs[1] is empty: the model finds no words in it.",
    ),
    "UnusableLabels": ErrorKind(
        400,
        "Nothing can be measured on these labels; the message says why.",
        "3 of 40 labels in the request are 1: at least 5 are needed.",
    ),
    "Unauthorized": ErrorKind(
        401,
        "The API key is missing or not valid.",
        "The API key is not valid (see LATTEMIX_API_KEYS).",
    ),
    "NotFound": ErrorKind(
        404,
        "The endpoint or the model does not exist.",
        "There is no model 'large' here: choose default, fast.",
    ),
    "MethodNotAllowed": ErrorKind(405, "The endpoint does not support the method."),
    "SlowBody": ErrorKind(
        408,
        "The body did not arrive in time.",
        "The body did not arrive within the 60 seconds of LATTEMIX_REQUEST_TIMEOUT.",
    ),
    "TooLarge": ErrorKind(
        413,
        "The body, the number of sentences or a sentence exceeds its limit.",
        "inputs holds 2,000 sentences, more than the 1,024 of LATTEMIX_MAX_INPUTS: send several "
        "requests, or raise it.",
    ),
    "Validation": ErrorKind(
        422,
        "A field is missing, unknown or invalid; the message names it.",
        "truncate: Input should be 'error', 'right', 'left', 'window', True or False.",
    ),
    "Backend": ErrorKind(
        424,
        "The model failed on this request, or computed values that are not finite.",
        "The model failed; the server's log says why.",
    ),
    "Overloaded": ErrorKind(
        429,
        "The service is overloaded; retry after the seconds in `Retry-After`.",
        "1.1 seconds of work are queued, and LATTEMIX_MAX_WAIT_SECONDS is 1.0: try again in 2 s.",
    ),
    "Internal": ErrorKind(500, "Internal error."),
    "Unhealthy": ErrorKind(
        503,
        "The model does not respond, or the service is stopping.",
        "The service is stopping.",
    ),
    "Timeout": ErrorKind(
        504,
        "The request took too long.",
        "This took longer than the 60 seconds of LATTEMIX_REQUEST_TIMEOUT: send less at once, or "
        "raise it.",
    ),
}


class ApiError(HTTPException):
    """An error response: its type gives the status code, its message goes to the client."""

    def __init__(
        self,
        error_type: ErrorType,
        message: str,
        headers: dict[str, str] | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(ERRORS[error_type].status, message, headers)
        self.error_type = error_type
        self.field = field  # of the request body, if the error is about one


_MESSAGE = "What is wrong, with the limit and the setting that raises it."
_TYPE = "The type of error, for programs."


class ErrorResponse(BaseModel):
    """The body of an error response."""

    error: str = Field(description=_MESSAGE)
    error_type: ErrorType = Field(description=_TYPE)

    @classmethod
    def of(cls, error: ApiError) -> Self:
        """Return the body of an error."""
        return cls(error=error.detail, error_type=error.error_type)


class OpenAIErrorDetail(BaseModel):
    """An error, as OpenAI's clients read it."""

    message: str = Field(description=_MESSAGE)
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None = Field(description="The field of the request, if the error is about one.")
    code: ErrorType = Field(description=_TYPE)


class OpenAIErrorResponse(BaseModel):
    """The body of an error response under `/v1`."""

    error: OpenAIErrorDetail

    @classmethod
    def of(cls, error: ApiError) -> Self:
        """Return the body of an error."""
        kind: Literal["invalid_request_error", "rate_limit_error", "server_error"]
        kind = "invalid_request_error" if error.status_code < 500 else "server_error"
        if error.error_type == "Overloaded":
            kind = "rate_limit_error"
        detail = OpenAIErrorDetail(
            message=error.detail, type=kind, param=error.field, code=error.error_type
        )
        return cls(error=detail)


class CohereErrorResponse(BaseModel):
    """The body of an error response under `/v2`."""

    message: str = Field(description=_MESSAGE)

    @classmethod
    def of(cls, error: ApiError) -> Self:
        """Return the body of an error."""
        return cls(message=error.detail)


ErrorBody = type[ErrorResponse] | type[OpenAIErrorResponse] | type[CohereErrorResponse]


def _error_body(path: str) -> ErrorBody:
    """Return the shape of errors at a path."""
    if path.startswith("/v1/"):
        return OpenAIErrorResponse
    return CohereErrorResponse if path.startswith("/v2/") else ErrorResponse


MODEL_ERRORS: tuple[ErrorType, ...] = (
    "Empty",
    "Unauthorized",
    "NotFound",
    "SlowBody",
    "TooLarge",
    "Validation",
    "Backend",
    "Overloaded",
    "Unhealthy",
    "Timeout",
)


def document(*error_types: ErrorType, path: str = "/") -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's `responses` of an endpoint that can fail with these errors."""
    body = _error_body(path)
    return {ERRORS[error_type].status: _document(error_type, body) for error_type in error_types}


def _document(error_type: ErrorType, body: ErrorBody) -> dict[str, Any]:
    _, description, example = ERRORS[error_type]
    content = body.of(ApiError(error_type, example)).model_dump()
    response: dict[str, Any] = {
        "model": body,
        "description": description,
        "content": {"application/json": {"example": content}},
    }
    if error_type in ("Overloaded", "Unhealthy"):
        seconds = {"type": "integer", "minimum": 1}
        response["headers"] = {"Retry-After": {"description": "In seconds.", "schema": seconds}}
    return response


# Errors of an endpoint that have a response of their own.
EXPECTED = (
    ClientDisconnect,
    HTTPException,
    RequestValidationError,
    MetricError,
    CalibrationError,
    LabelError,
    DimensionsError,
    DTypeError,
    UnknownModelError,
    OverloadedError,
    InferenceError,
    UnavailableError,
)


def install(app: FastAPI) -> None:
    """Register handlers for all errors."""
    for kind in (*EXPECTED, Exception):
        app.add_exception_handler(kind, handle)


async def handle(request: Request, error: Exception) -> Response:
    """Return the response of an error."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # only for the log: the client is gone
    return respond(_translate(request, error), request.scope)


def respond(error: ApiError, scope: Scope) -> Response:
    """Return the response to a failed request, and note the error in its trace."""
    trace: Trace | None = scope.get("state", {}).get("trace")
    if trace is not None:
        trace.error_type = error.error_type
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    body = _error_body(path).of(error)
    return JSONResponse(body.model_dump(), error.status_code, error.headers)


def overloaded(error: OverloadedError) -> ApiError:
    """Return the 429 of an overload."""
    return ApiError("Overloaded", str(error), {"Retry-After": str(error.retry_after)})


def _translate(request: Request, error: Exception) -> ApiError:
    """Return the error response of an exception."""
    path = request.url.path
    match error:
        case ApiError():
            return error
        case HTTPException(status_code=404):
            return ApiError("NotFound", f"There is nothing at {path}: see /docs.")
        case HTTPException(status_code=405):
            message = f"{path} does not support {request.method}: see /docs."
            return ApiError("MethodNotAllowed", message, dict(error.headers or {}))
        case HTTPException():
            return ApiError("Validation", str(error.detail))
        case RequestValidationError():
            first, *rest = error.errors()
            message = _problem_message(first)
            # A misspelt field is two problems: one missing, one unknown.
            unknown = next((other for other in rest if other["type"] == "extra_forbidden"), None)
            if first["type"] == "missing" and unknown:
                message = f"{message}; {_problem_message(unknown)}"
                rest.remove(unknown)
            more = f" (and {len(rest)} more)" if rest else ""
            field = _field_name(first["loc"]) or None
            return ApiError("Validation", f"{message}{more}.", field=field)
        case UnknownModelError():
            return ApiError("NotFound", str(error), field="model")
        case LabelError():
            return ApiError("UnusableLabels", str(error), field="labels")
        case MetricError() | CalibrationError() | DimensionsError() | DTypeError():
            field = str(error).partition(" ")[0].lower()
            return ApiError("Validation", str(error), field=field)
        case OverloadedError():
            return overloaded(error)
        case InferenceError():
            return ApiError("Backend", str(error))
        case UnavailableError():
            return ApiError("Unhealthy", str(error), {"Retry-After": "1"})
    # Starlette makes this response outside of `Observe`, which adds the header to the others.
    headers = {"x-request-id": request.state.trace.request_id}
    return ApiError("Internal", "The service failed; its log says why.", headers)


def _problem_message(problem: dict[str, Any]) -> str:
    """Return `pairs[3][0]: Input should be a valid string`, never with an input value."""
    name = _field_name(problem["loc"])
    if problem["type"] == "string_unicode":  # pydantic's own message is about raw data
        return f"{name}: {LONE_SURROGATE}" if name else f"A field name {LONE_SURROGATE}"
    if not name:
        return "The body should be a JSON object, sent with content-type: application/json"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{name if len(name) <= 80 else name[:80] + '…'}: {message}"


def _field_name(location: Sequence[int | str]) -> str:
    """Return `pairs[3][0]` for a location in the body; tags of unions are left out."""
    name = ""
    for part in location[1:]:
        if part not in TAGS:
            name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name
