"""One error shape, `{"error", "error_type"}`, and one table of status codes."""

from typing import Literal, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from app.engine.worker import OverloadedError
from app.similarity import MetricError

ErrorType = Literal[
    "Empty",
    "NotFound",
    "MethodNotAllowed",
    "TooLarge",
    "Validation",
    "Backend",
    "Overloaded",
    "Internal",
]

ERRORS: dict[ErrorType, tuple[int, str]] = {
    "Empty": (400, "There is nothing to work on: an empty list, or a text without content."),
    "NotFound": (404, "There is no such endpoint."),
    "MethodNotAllowed": (405, "The endpoint does not take this method."),
    "TooLarge": (413, "The body, or the number of sentences in it, is over its limit."),
    "Validation": (422, "A field is missing, unknown or of the wrong kind; the message names it."),
    "Backend": (424, "The model failed on this request."),
    "Overloaded": (429, "Too many requests are waiting; `Retry-After` says when to try again."),
    "Internal": (500, "A fault of the service's own."),
}


class ErrorResponse(BaseModel):
    """What every failed request is answered with."""

    error: str = Field(description="What is wrong, and which limit or setting moves it.")
    error_type: ErrorType = Field(description="The kind of failure, for programs.")


class ApiError(HTTPException):
    """A failed request: its kind gives the status code, its message goes to the client."""

    def __init__(self, error_type: ErrorType, message: str, headers: dict[str, str] | None = None):
        super().__init__(ERRORS[error_type][0], message, headers)
        self.error_type = error_type


def documented(*error_types: ErrorType) -> dict[int | str, dict[str, object]]:
    """OpenAPI's `responses` for an endpoint that can fail in these ways."""
    described = [ERRORS[kind] for kind in error_types]
    return {code: {"model": ErrorResponse, "description": text} for code, text in described}


def install(app: FastAPI) -> None:
    """Give every failure the one shape."""

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        if isinstance(error, ApiError):
            return _answer(error)
        if error.status_code == 404:
            return _answer(
                ApiError("NotFound", f"There is nothing at {request.url.path}: see /docs.")
            )
        if error.status_code == 405:
            message = f"{request.url.path} does not take {request.method}: see /docs."
            return _answer(
                ApiError("MethodNotAllowed", message, cast(dict[str, str], error.headers))
            )
        return _answer(ApiError("Validation", "The body is not valid JSON."))  # FastAPI's 400

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> JSONResponse:
        first, *rest = error.errors()
        more = f" (and {len(rest)} more)" if rest else ""
        return _answer(ApiError("Validation", f"{_sentence(first)}{more}."))

    @app.exception_handler(MetricError)
    async def metric(request: Request, error: MetricError) -> JSONResponse:
        return _answer(ApiError("Validation", f"metrics: {error}"))

    @app.exception_handler(OverloadedError)
    async def overloaded(request: Request, error: OverloadedError) -> JSONResponse:
        return _answer(ApiError("Overloaded", str(error), {"Retry-After": "1"}))

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> JSONResponse:
        return _answer(ApiError("Internal", "The service failed; its log says why."))


def _answer(error: ApiError) -> JSONResponse:
    body = ErrorResponse(error=error.detail, error_type=error.error_type)
    return JSONResponse(body.model_dump(), error.status_code, error.headers)


def _sentence(problem: dict[str, object]) -> str:
    """`pairs[3][0]: Input should be a valid string`, never echoing a value."""
    place = ""
    for part in cast(tuple[str | int, ...], problem["loc"])[1:]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else part
    if problem["type"] == "json_invalid":
        return "The body is not valid JSON"
    if not place:
        return "The body should be a JSON object, sent with content-type: application/json"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{place if len(place) <= 80 else place[:80] + '…'}: {message}"
