"""How a request to the model gets from its bytes to its endpoint."""

import codecs
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import ApiError, answer_to
from app.routes.common import Call, call_of

_SMALL_BODY = 16_384  # bytes: parsed on the event loop, in two milliseconds at most
_PIECE = 65_536  # bytes: counted in a millisecond or two
# Limits of a valid body: strings, lists and objects per input, a few more for its options, and for
# each of them some bytes outside of strings.
_ITEMS_PER_INPUT, _OTHER_ITEMS, _BYTES_PER_ITEM = 3, 100, 64


class ModelRoute(APIRoute):
    """An endpoint that takes a `body` and a `call`, and answers with a `Response`.

    FastAPI documents it and knows how its body is validated. Its general way to the arguments,
    which would look each time at what else an endpoint might take, takes as long as all the rest.
    """

    async def respond(self, request: Request) -> Response:
        """The endpoint's answer."""
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":  # so nobody need fear what a small body might become
            raise ApiError(
                "Validation", "The body is compressed: send it without a content-encoding."
            )
        content = await request.body()
        if not content or not _is_json(request.headers):
            raise ApiError(
                "Validation",
                "The body should be a JSON object, sent with content-type: application/json.",
            )
        call = call_of(request)
        if len(content) <= _SMALL_BODY:
            body = self._parse(content)
        else:
            body = await call.off_loop(lambda: self._parse_large(content, call))
        response: Response = await self.endpoint(body=body, call=call)
        return response

    def _parse(self, content: bytes) -> Any:
        """The validated body."""
        assert self.body_field is not None
        try:
            # Not the bytes: they could be UTF-16, whose items `_has_more_items` cannot count.
            text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogatepass")
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ApiError("Validation", "The body is not valid JSON.") from error
        body, problems = self.body_field.validate(parsed, loc=("body",))
        if problems:
            raise RequestValidationError(problems)
        return body

    def _parse_large(self, content: bytes, call: Call) -> Any:
        """The validated body, rejected before it is parsed if it holds too many items."""
        most = call.service.settings.max_inputs
        if _has_more_items(content, most):
            raise ApiError(
                "TooLarge",
                f"The body holds more items than the {most:,} sentences of LATTEMIX_MAX_INPUTS "
                "need: send several requests, or raise it.",
            )
        return self._parse(content)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What FastAPI calls."""
        return self.respond


class Shortcut:
    """Takes requests for the model straight to their endpoints; FastAPI gets the others.

    Its routers would try one route after the other, and each twice.
    """

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter]) -> None:
        self.app = app
        routes = (route for router in routers for route in router.routes)
        self._routes = {route.path: route for route in routes if isinstance(route, ModelRoute)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the model, or pass it on."""
        posted = scope["type"] == "http" and scope["method"] == "POST"
        route = self._routes.get(scope["path"]) if posted else None
        if route is None:
            await self.app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.respond(request)
        except Exception as error:
            response = answer_to(request, error)
        await response(scope, receive, send)


def _has_more_items(content: bytes, inputs: int) -> bool:
    """Whether a JSON text holds more items than a valid body of so many inputs.

    Counted in pieces: parsing the text could hold the GIL for half a second.
    """
    most = _ITEMS_PER_INPUT * inputs + _OTHER_ITEMS
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
        if quotes // 2 + brackets > most or bytes_outside > most * _BYTES_PER_ITEM:
            return True
        start += len(piece)
    return False


def _is_json(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
