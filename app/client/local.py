"""The service in this process, so that one client serves with and without a server."""

from typing import Any

import httpx

from app.server import create_app
from app.settings import Settings


class Local(httpx.ASGITransport):
    """Carries requests to a service that lives as long as the client; raise if it cannot start."""

    def __init__(self, settings: Settings) -> None:
        # Keys guard a port; nobody else can come in here.
        unlocked = {"api_keys": (), "api_keys_file": None, "key_rate": 0}
        app = create_app(settings.model_copy(update=unlocked))
        super().__init__(app)
        self._life = app.router.lifespan_context(app)

    async def __aenter__(self) -> "Local":
        await self._life.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._life.__aexit__(None, None, None)  # whatever happened, it is to end in order
