"""Servers for the clients: the real service in this process, or scripted responses."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix.client import AsyncClient, Client
from tests.tiny import SENTENCES

URL = "http://server"
PAIRS = [(a, b) for a in SENTENCES for b in SENTENCES[:3]]

Kind = Literal["sync", "async"]

both = pytest.mark.parametrize("kind", ["sync", "async"])


def call(kind: Kind, transport: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of either client; an iterator becomes a list."""
    return call_with({}, kind, transport, method, *arguments, **options)


def call_with(
    settings: dict[str, Any], kind: Kind, transport: Any, method: str, *args: Any, **options: Any
) -> Any:
    """Call a method of a client with constructor arguments."""
    settings = {"url": URL, "transport": transport} | settings
    if kind == "sync":
        with Client(**settings) as client:
            result = getattr(client, method)(*args, **options)
            return list(result) if isinstance(result, Iterator) else result

    async def run() -> Any:
        async with AsyncClient(**settings) as client:
            result = getattr(client, method)(*args, **options)
            return [row async for row in result] if hasattr(result, "__aiter__") else await result

    return asyncio.run(run())


class Recorder(httpx.AsyncBaseTransport):
    """Forwards requests and records them."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return await self.inner.handle_async_request(request)

    def bodies(self, path: str) -> list[bytes]:
        return [request.content for request in self.requests if request.url.path == path]


@pytest.fixture
def server(settings: Settings) -> Iterator[Recorder]:
    """The real service."""
    app = create_app(settings)
    with TestClient(app):
        yield Recorder(httpx.ASGITransport(app))


@pytest.fixture
def info(server: Recorder) -> dict[str, Any]:
    response: dict[str, Any] = call("sync", server, "info").model_dump(mode="json")
    return response


def responses(*script: httpx.Response | Exception) -> Recorder:
    """Respond with these in turn; a further request fails the test."""
    unsent = list(script)

    def handle(request: httpx.Request) -> httpx.Response:
        response = unsent.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    return Recorder(httpx.MockTransport(handle))
