"""The body limit, enforced while the body arrives."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import ApiError


class BodyLimit:
    """Refuse a request body as soon as it exceeds the limit, whatever its headers claim."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what the application receives."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise ApiError(
                    "TooLarge",
                    f"The body is larger than the {self.max_bytes:,} bytes of "
                    "LATTEMIX_MAX_BODY_BYTES: send several requests, or raise it.",
                )
            return message

        await self.app(scope, counted if scope["type"] == "http" else receive, send)
