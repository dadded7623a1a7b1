"""A server to ask, real or made up."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import pytest

from app.server import create_app
from app.settings import Settings
from lattemix.client import AsyncClient, Client
from tests.conftest import SENTENCES

URL = "http://server"


PAIRS = [(a, b) for a in SENTENCES for b in SENTENCES[:3]]


Kind = Literal["sync", "async"]


both = pytest.mark.parametrize("kind", ["sync", "async"])


def ask(kind: Kind, transport: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of either client; one that streams gives a list."""
    options = {"url": URL} | options
    if kind == "sync":
        with Client(transport=transport, **options) as client:
            found = getattr(client, method)(*arguments)
            return list(found) if isinstance(found, Iterator) else found

    async def asked() -> Any:
        async with AsyncClient(transport=transport, **options) as client:
            found = getattr(client, method)(*arguments)
            return [row async for row in found] if hasattr(found, "__aiter__") else await found

    return asyncio.run(asked())


class Recorder(httpx.AsyncBaseTransport):
    """Passes requests on, and keeps them."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return await self.inner.handle_async_request(request)

    def sent(self, path: str) -> list[bytes]:
        return [request.content for request in self.requests if request.url.path == path]


@pytest.fixture
def server(settings: Settings) -> Iterator[Recorder]:
    """The real service."""
    app = create_app(settings)
    yield Recorder(httpx.ASGITransport(app))
    app.state.service.engine.close()


@pytest.fixture
def info(server: Recorder) -> dict[str, Any]:
    found: dict[str, Any] = ask("sync", server, "info").model_dump(mode="json")
    return found


def in_turn(*answers: httpx.Response | Exception) -> Recorder:
    """Gives these answers, and then fails the test."""
    left = list(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Recorder(httpx.MockTransport(handle))
