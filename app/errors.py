"""Error responses: one shape, `{"error", "error_type"}`, and one table of status codes."""

from typing import Any, Literal, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Scope

from app.engine.errors import OverloadedError, UnavailableError, UnknownModelError
from app.observe.trace import Trace
from app.schemas.common import LONE_SURROGATE
from app.schemas.similarity import PAIRS, SOURCE
from lattemix.errors import InferenceError
from lattemix.similarity import MetricError

ErrorType = Literal[
    "Empty",
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


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: str = Field(description="What is wrong, with the limit and the setting that raises it.")
    error_type: ErrorType = Field(description="The type of error, for programs.")


class ApiError(HTTPException):
    """An error response: its type gives the status code, its message goes to the client."""

    def __init__(self, error_type: ErrorType, message: str, headers: dict[str, str] | None = None):
        super().__init__(ERRORS[error_type].status, message, headers)
        self.error_type = error_type


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


def document(*error_types: ErrorType) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's `responses` of an endpoint that can fail with these errors."""
    return {ERRORS[error_type].status: _document(error_type) for error_type in error_types}


def _document(error_type: ErrorType) -> dict[str, Any]:
    _, description, example = ERRORS[error_type]
    body = {"error": example, "error_type": error_type}
    response: dict[str, Any] = {
        "model": ErrorResponse,
        "description": description,
        "content": {"application/json": {"example": body}},
    }
    if error_type in ("Overloaded", "Unhealthy"):
        seconds = {"type": "integer", "minimum": 1}
        response["headers"] = {"Retry-After": {"description": "In seconds.", "schema": seconds}}
    return response


def install(app: FastAPI) -> None:
    """Register handlers, so that every error response has the same shape."""
    for kind in (
        ClientDisconnect,
        HTTPException,
        RequestValidationError,
        MetricError,
        UnknownModelError,
        OverloadedError,
        InferenceError,
        UnavailableError,
        Exception,
    ):
        app.add_exception_handler(kind, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # only for the log: the client is gone
    return respond(_translate(request, error), request.scope)


def respond(error: ApiError, scope: Scope) -> Response:
    """Return the response to a failed request, and note the error in its trace."""
    trace: Trace | None = scope.get("state", {}).get("trace")
    if trace is not None:
        trace.error_type = error.error_type
    body = ErrorResponse(error=error.detail, error_type=error.error_type)
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
            more = f" (and {len(rest)} more)" if rest else ""
            return ApiError("Validation", f"{_problem_message(first)}{more}.")
        case UnknownModelError():
            return ApiError("NotFound", str(error))
        case MetricError():
            return ApiError("Validation", str(error))
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
    _, *parts = problem["loc"]
    if parts[:1] in ([PAIRS], [SOURCE]):
        del parts[0]
    name = ""
    for part in parts:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    if problem["type"] == "string_unicode":  # pydantic's own message is about raw data
        return f"{name}: {LONE_SURROGATE}" if name else f"A field name {LONE_SURROGATE}"
    if not name:
        return "The body should be a JSON object, sent with content-type: application/json"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{name if len(name) <= 80 else name[:80] + '…'}: {message}"
