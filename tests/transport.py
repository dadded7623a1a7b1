"""An httpx transport to a service in this process."""

from typing import Any

import httpx

from app.server import create_app
from app.settings import Settings


class AppTransport(httpx.ASGITransport):
    """Sends requests to an application that starts and stops with the client."""

    def __init__(self, settings: Settings) -> None:
        app = create_app(settings)
        super().__init__(app)
        self._lifespan = app.router.lifespan_context(app)

    async def __aenter__(self) -> "AppTransport":
        await self._lifespan.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._lifespan.__aexit__(None, None, None)  # end in order, whatever the error
