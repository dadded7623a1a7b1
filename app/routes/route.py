"""The route class of the model's endpoints: it reads and validates JSON bodies."""

import codecs
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app import errors
from app.errors import ApiError
from app.routes.context import RequestContext

_SMALL_BODY = 16_384  # bytes: parsed on the event loop, in two milliseconds at most
_PIECE = 65_536  # bytes: counted in a millisecond or two
# Limits of a valid body: strings, lists and objects per input, a few more for its options, and for
# each of them some bytes outside of strings.
_ITEMS_PER_INPUT, _OTHER_ITEMS, _BYTES_PER_ITEM = 3, 100, 64


class ModelRoute(APIRoute):
    """An endpoint with the parameters `body` and `context`, which returns a `Response`.

    The body has a field `model`, which chooses the model of the context.

    FastAPI's own handler, which supports any parameters, takes half as much time again per request
    and parses large bodies on the event loop.
    """

    numbers = False  # whether a body may hold any number of numbers

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the coroutine function that answers a request."""
        hints = get_type_hints(self.endpoint, include_extras=True)
        adapter: TypeAdapter[Any] = TypeAdapter(hints["body"])

        async def handle(request: Request) -> Response:
            context = RequestContext.of(request)
            content = await _read(request)
            async with context.time_limit():
                if len(content) <= _SMALL_BODY:
                    body = _parse(content, adapter)
                else:
                    limit = context.settings.max_inputs
                    body = await context.off_loop(
                        lambda: self._parse_large(content, adapter, limit)
                    )
                with context.lease_model(body.model):
                    response: Response = await self.endpoint(body=body, context=context)
            return response

        return handle

    def _parse_large(self, content: bytes, adapter: TypeAdapter[Any], max_inputs: int) -> Any:
        """Return the validated body; reject it before parsing if it has too many items."""
        if _has_more_items(content, max_inputs, self.numbers):
            raise ApiError(
                "TooLarge",
                f"The body holds more items than the {max_inputs:,} sentences of "
                "LATTEMIX_MAX_INPUTS need: send several requests, or raise it.",
            )
        return _parse(content, adapter)


class NumbersRoute(ModelRoute):
    """An endpoint whose bodies hold lists of numbers: token ids, or scores."""

    numbers = True


class ModelEndpoints:
    """Middleware that calls the endpoints of `ModelRoute`s.

    FastAPI, which serves everything else, takes a fifth of the time of a cached sentence to find
    the route and to call it.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[ModelRoute]) -> None:
        self.app = app
        self._endpoints = {route.path: (route, route.get_route_handler()) for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to a model, or pass it on."""
        is_post = scope["type"] == "http" and scope["method"] == "POST" and not scope["root_path"]
        endpoint = self._endpoints.get(scope["path"]) if is_post else None
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        scope["route"], answer = endpoint
        request = Request(scope, receive, send)
        try:
            response = await answer(request)
        except errors.EXPECTED as error:
            response = await errors.handle(request, error)
        await response(scope, receive, send)


async def _read(request: Request) -> bytes:
    """Return the body of a request, which must be uncompressed JSON."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":  # a small compressed body could become a huge one
        raise ApiError("Validation", "The body is compressed: send it without a content-encoding.")
    content = await request.body()
    if not content or not _is_json(request.headers):
        raise ApiError(
            "Validation",
            "The body should be a JSON object, sent with content-type: application/json.",
        )
    return content


def _is_json(headers: Headers) -> bool:
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def _parse(content: bytes, adapter: TypeAdapter[Any]) -> Any:
    """Return the validated body."""
    try:
        # Not the bytes: they could be UTF-16, whose items `_has_more_items` cannot count.
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiError("Validation", "The body is not valid JSON.") from error
    try:
        return adapter.validate_python(parsed)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
        ) from None


def _has_more_items(content: bytes, inputs: int, numbers: bool = False) -> bool:
    """Whether a JSON body has more values than a valid request with this many inputs.

    With `numbers`, any number of them is valid.
    Counts piece by piece: parsing all of it could hold the GIL for half a second.
    """
    limit = _ITEMS_PER_INPUT * inputs + _OTHER_ITEMS
    start = quotes = brackets = bytes_outside = 0
    while start < len(content):
        piece = content[start : start + _PIECE]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        piece = content[start : start + len(piece) + backslashes % 2]  # ends after an escape
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])  # of strings
        quotes += len(parts) - 1
        brackets += outside.count(b"[") + outside.count(b"{")
        bytes_outside += len(outside)
        too_many_bytes = not numbers and bytes_outside > limit * _BYTES_PER_ITEM
        if quotes // 2 + brackets > limit or too_many_bytes:
            return True
        start += len(piece)
    return False
