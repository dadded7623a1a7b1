"""One error shape, `{"error", "error_type"}`, and one table of status codes."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.engine.errors import OverloadedError, UnavailableError
from app.observe.trace import Trace
from app.schemas.common import LONE_SURROGATE
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


class Kind(NamedTuple):
    """What a kind of error is answered with."""

    status: int
    when: str
    example: str = ""


ERRORS: dict[ErrorType, Kind] = {
    "Empty": Kind(
        400,
        "There is nothing to work on: an empty list, or a text without content.",
        "inputs[1] is empty: the model finds no words in it.",
    ),
    "Unauthorized": Kind(
        401,
        "A key is needed, and none that the service takes was sent.",
        "The key sent is not one this service takes (LATTEMIX_API_KEYS).",
    ),
    "NotFound": Kind(404, "There is no such endpoint."),
    "MethodNotAllowed": Kind(405, "The endpoint does not take this method."),
    "SlowBody": Kind(
        408,
        "The headers or the body did not arrive in time.",
        "The body did not arrive within the 60 seconds of LATTEMIX_REQUEST_TIMEOUT.",
    ),
    "TooLarge": Kind(
        413,
        "The body, the number of sentences or one of them is over its limit.",
        "inputs holds 2,000 sentences, more than the 1,024 of LATTEMIX_MAX_INPUTS: send several "
        "requests, or raise it.",
    ),
    "Validation": Kind(
        422,
        "A field is missing, unknown or of the wrong kind; the message names it.",
        "truncate: Input should be a valid boolean.",
    ),
    "Backend": Kind(
        424,
        "The model failed on this request, or computed values that are not finite.",
        "The model failed; the server's log says why.",
    ),
    "Overloaded": Kind(
        429,
        "Too much is waiting; `Retry-After` says when to try again.",
        "1.1 seconds of work are waiting already, and LATTEMIX_MAX_WAIT_SECONDS is 1.0: try again "
        "in 2 s.",
    ),
    "Internal": Kind(500, "A fault of the service's own."),
    "Unhealthy": Kind(
        503,
        "The model does not answer, or the service is stopping.",
        "The service is stopping.",
    ),
    "Timeout": Kind(
        504,
        "The model was not done in time.",
        "This took longer than the 60 seconds of LATTEMIX_REQUEST_TIMEOUT: send less at once, or "
        "raise it.",
    ),
}


class ErrorResponse(BaseModel):
    """What every failed request is answered with."""

    error: str = Field(description="What is wrong, and which limit or setting moves it.")
    error_type: ErrorType = Field(description="The kind of failure, for programs.")


class ApiError(HTTPException):
    """A failed request: its kind gives the status code, its message goes to the client."""

    def __init__(self, error_type: ErrorType, message: str, headers: dict[str, str] | None = None):
        super().__init__(ERRORS[error_type].status, message, headers)
        self.error_type = error_type


MODEL_ERRORS: tuple[ErrorType, ...] = (
    "Empty",
    "Unauthorized",
    "SlowBody",
    "TooLarge",
    "Validation",
    "Backend",
    "Overloaded",
    "Unhealthy",
    "Timeout",
)


def documented(*error_types: ErrorType) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` for an endpoint that can fail in these ways."""
    return {ERRORS[kind].status: _document(kind) for kind in error_types}


def _document(error_type: ErrorType) -> dict[str, Any]:
    _, when, example = ERRORS[error_type]
    body = {"error": example, "error_type": error_type}
    document: dict[str, Any] = {
        "model": ErrorResponse,
        "description": when,
        "content": {"application/json": {"example": body}},
    }
    if error_type in ("Overloaded", "Unhealthy"):
        seconds = {"type": "integer", "minimum": 1}
        document["headers"] = {"Retry-After": {"description": "In seconds.", "schema": seconds}}
    return document


def install(app: FastAPI) -> None:
    """Give every failure the one shape."""

    async def handle(request: Request, error: Exception) -> Response:
        return answer_to(request, error)

    kinds: list[type[Exception]] = [ClientDisconnect, *_TRANSLATIONS]
    for kind in kinds:
        app.add_exception_handler(kind, handle)
    app.add_exception_handler(Exception, _internal)


def answer_to(request: Request, error: Exception) -> Response:
    """The response to a request that failed so; what is a fault of our own is raised again."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)  # nobody reads it; the log does
    for kind, translate in _TRANSLATIONS.items():
        if isinstance(error, kind):
            return _noted(request, translate(request, error))
    raise error


def answer(error: ApiError) -> JSONResponse:
    """The response to a failed request."""
    body = ErrorResponse(error=error.detail, error_type=error.error_type)
    return JSONResponse(body.model_dump(), error.status_code, error.headers)


async def refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that does not get as far as the application."""
    trace: Trace | None = scope.get("state", {}).get("trace")
    if trace is not None:
        trace.error_type = error.error_type
    await answer(error)(scope, receive, send)


def _noted(request: Request, error: ApiError) -> Response:
    request.state.trace.error_type = error.error_type
    return answer(error)


def _http(request: Request, error: HTTPException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    path = request.url.path
    if error.status_code == 404:
        return ApiError("NotFound", f"There is nothing at {path}: see /docs.")
    if error.status_code == 405:
        headers = cast(dict[str, str], error.headers)
        return ApiError(
            "MethodNotAllowed", f"{path} does not take {request.method}: see /docs.", headers
        )
    return ApiError("Validation", str(error.detail))  # whatever else FastAPI may find wrong


def _validation(request: Request, error: RequestValidationError) -> ApiError:
    first, *rest = error.errors()
    more = f" (and {len(rest)} more)" if rest else ""
    return ApiError("Validation", f"{_sentence(first)}{more}.")


def _metric(request: Request, error: MetricError) -> ApiError:
    return ApiError("Validation", str(error))


def overloaded(request: Request | None, error: OverloadedError) -> ApiError:
    """429, and when to come back."""
    return ApiError("Overloaded", str(error), {"Retry-After": str(error.retry_after)})


def _inference(request: Request, error: InferenceError) -> ApiError:
    return ApiError("Backend", str(error))


def _unavailable(request: Request, error: UnavailableError) -> ApiError:
    return ApiError("Unhealthy", str(error), {"Retry-After": "1"})


async def _internal(request: Request, error: Exception) -> Response:
    # This answer is made outside the layer that gives the others theirs.
    headers = {"x-request-id": request.state.trace.request_id}
    message = "The service failed; its log says why."
    return _noted(request, ApiError("Internal", message, headers))


_TRANSLATIONS: dict[type[Exception], Callable[[Request, Any], ApiError]] = {
    HTTPException: _http,
    RequestValidationError: _validation,
    MetricError: _metric,
    OverloadedError: overloaded,
    InferenceError: _inference,
    UnavailableError: _unavailable,
}


def _sentence(problem: dict[str, object]) -> str:
    """`pairs[3][0]: Input should be a valid string`, never echoing a value."""
    place = ""
    parts = cast(tuple[str | int, ...], problem["loc"])[1:]
    if parts[:1] in (("(pairs)",), ("(source)",)):
        parts = parts[1:]  # which of two bodies it was taken for
    for part in parts:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    if problem["type"] == "string_unicode":  # pydantic itself speaks of raw data
        return f"{place}: {LONE_SURROGATE}" if place else f"A field name {LONE_SURROGATE}"
    if not place:
        return "The body should be a JSON object, sent with content-type: application/json"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place if len(place) <= 80 else place[:80] + '…'}: {message}"
