"""Who is let in to the model: so many at once, with bodies of bounded size, in bounded time."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.engine import Engine
from app.engine.errors import OverloadedError
from app.errors import ApiError, overloaded, refuse
from app.settings import Settings

_MUCH = 65_536  # bytes: about as much as a connection takes without waiting


class Admission:
    """Counts a request from before its body is read until after it is answered."""

    def __init__(self, app: ASGIApp, engine: Engine, settings: Settings) -> None:
        self.app = app
        self.engine = engine
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if there is a place for it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        begun = False  # the answer

        async def until_read(message: Message) -> None:
            nonlocal begun
            begun = True
            if len(message.get("body", b"")) > _MUCH and not message.get("more_body"):
                # The server would only take it, and send it when the client reads: before the end,
                # which follows, it waits until not much is left.
                await send({**message, "more_body": True})
                message = {"type": "http.response.body"}
            await send(message)

        try:
            with self.engine.admitted(scope["state"]["trace"]):
                await self.app(scope, self._bounded(receive), until_read)
        except OverloadedError as error:
            await refuse(overloaded(None, error), scope, receive, send)
        except asyncio.CancelledError:
            if begun or not self.engine.stopped:
                raise
            message = "The service stopped before this was done: send it again."
            await refuse(ApiError("Unhealthy", message, {"Retry-After": "1"}), scope, receive, send)

    def _bounded(self, receive: Receive) -> Receive:
        """Refuse a body as soon as it is too large, whatever its headers claim, or too late."""
        received, complete = 0, False
        most, seconds = self.settings.max_body_bytes, self.settings.request_timeout
        deadline = asyncio.get_running_loop().time() + seconds

        async def bounded() -> Message:
            nonlocal received, complete
            if complete:  # what comes now is only that the client leaves
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
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > most:
                raise ApiError(
                    "TooLarge",
                    f"The body is larger than the {most:,} bytes of LATTEMIX_MAX_BODY_BYTES: send "
                    "several requests, or raise it.",
                )
            return message

        return bounded
