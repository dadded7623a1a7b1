"""Limits on concurrent requests, on the size of a body and on the time it takes to arrive."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine import Host
from app.engine.errors import OverloadedError
from app.errors import ApiError, overloaded, respond
from app.settings import Settings

_WRITE_BUFFER = 65_536  # bytes that uvicorn buffers per connection before `send` waits


class Admission:
    """Admits POST requests, and counts each until its response is sent."""

    def __init__(self, app: ASGIApp, host: Host, settings: Settings) -> None:
        self.app = app
        self.host = host
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 429 or, when the service stops, 503."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        started = False  # the response

        async def send_and_wait(message: Message) -> None:
            nonlocal started
            started = True
            if len(message.get("body", b"")) > _WRITE_BUFFER and not message.get("more_body"):
                # uvicorn's `send` waits for the client to read only before a further message, so
                # the end of a large body is sent as one.
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}
            await send(message)

        try:
            with self.host.admitted(scope["state"]["trace"]):
                await self.app(scope, self._limited(receive), send_and_wait)
        except OverloadedError as error:
            await respond(overloaded(error), scope)(scope, receive, send)
        except asyncio.CancelledError:
            if started or not self.host.draining:
                raise
            message = "The service stopped before this was done: send it again."
            stopped = ApiError("Unhealthy", message, {"Retry-After": "1"})
            await respond(stopped, scope)(scope, receive, send)

    def _limited(self, receive: Receive) -> Receive:
        """Wrap `receive`: raise once the body exceeds its size limit or deadline.

        Content-Length is not trusted.
        """
        size, complete = 0, False
        max_bytes, seconds = self.settings.max_body_bytes, self.settings.request_timeout
        deadline = asyncio.get_running_loop().time() + seconds

        async def receive_limited() -> Message:
            nonlocal size, complete
            if complete:  # only a disconnect can follow
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    "SlowBody",
                    f"The body did not arrive within the {seconds:g} seconds of "
                    "LATTEMIX_REQUEST_TIMEOUT.",
                ) from None
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > max_bytes:
                raise ApiError(
                    "TooLarge",
                    f"The body is larger than the {max_bytes:,} bytes of LATTEMIX_MAX_BODY_BYTES: "
                    "send several requests, or raise it.",
                )
            return message

        return receive_limited
