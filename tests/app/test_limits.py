"""Limits on bodies, concurrent requests and request times."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence

import httpx

from app.engine import Engine
from app.server import create_app
from app.settings import Settings
from lattemix.tokenization import Tokens
from tests.app.conftest import failure


def test_rejects_a_large_body_while_it_streams(settings: Settings) -> None:
    app, messages = create_app(settings), 0
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        nonlocal messages
        messages += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": messages < 1000}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}
    asyncio.run(app(scope | {"query_string": b"", "root_path": ""}, receive, send))
    assert sent[0]["status"] == 413
    assert messages == 5  # 5 x 1,024 is the first to exceed 4,096


def test_rejects_a_slow_body_with_408(settings: Settings) -> None:
    app, sent = create_app(settings.model_copy(update={"request_timeout": 0.02})), []

    async def receive() -> dict[str, object]:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": []}
    asyncio.run(app(scope | {"query_string": b"", "root_path": ""}, receive, send))
    assert sent[0]["status"] == 408
    assert b"the 0.02 seconds of LATTEMIX_REQUEST_TIMEOUT" in sent[1]["body"]
    app.state.service.models.close()


class BlockedService:
    """A service whose model runs one batch at a time, and only after `release`."""

    def __init__(self, settings: Settings) -> None:
        one_at_a_time = {"threads": os.cpu_count()}
        self.app = create_app(settings.model_copy(update=one_at_a_time))
        self.engine: Engine = self.app.state.service.models.default.engine
        self.release = threading.Event()
        self.runs = 0
        run = self.engine.encoder.run

        def run_later(batch: Sequence[Tokens], alone: bool) -> object:
            self.runs += 1
            self.release.wait(10)
            return run(batch, alone)

        self.engine.encoder.run = run_later  # type: ignore[assignment, method-assign]

    def run(self, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async def main() -> None:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                await scenario(client)

        asyncio.run(main())
        self.release.set()
        self.engine.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_rejects_with_429_above_max_requests_while_health_responds(settings: Settings) -> None:
    blocked = BlockedService(settings.model_copy(update={"max_requests": 2}))

    async def scenario(client: httpx.AsyncClient) -> None:
        accepted = [
            asyncio.create_task(client.post("/embed", json={"inputs": text})) for text in "ab"
        ]
        await until(lambda: blocked.engine.host.requests == 2)
        assert (await client.get("/health")).status_code == 200
        rejected = await client.post("/embed", json={"inputs": "c"})
        assert failure(rejected)[:2] == (429, "Overloaded")
        assert "LATTEMIX_MAX_REQUESTS is 2" in rejected.json()["error"]
        assert int(rejected.headers["retry-after"]) >= 1
        blocked.release.set()
        assert [(await task).status_code for task in accepted] == [200, 200]
        assert (await client.post("/embed", json={"inputs": "c"})).status_code == 200

    blocked.run(scenario)


def test_rejects_with_504_after_the_timeout(settings: Settings) -> None:
    blocked = BlockedService(settings.model_copy(update={"request_timeout": 0.02}))

    async def scenario(client: httpx.AsyncClient) -> None:
        response = await client.post("/embed", json={"inputs": "a"})
        assert failure(response)[:2] == (504, "Timeout")
        assert "the 0.02 seconds of LATTEMIX_REQUEST_TIMEOUT" in response.json()["error"]

    blocked.run(scenario)


def test_drops_queued_sentences_when_the_client_disconnects(settings: Settings) -> None:
    blocked = BlockedService(settings)
    sent: list[dict[str, object]] = []

    async def disconnect() -> None:
        """Send a request, and disconnect while it is queued."""
        body = b'{"inputs": ["a dog"]}'
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, object]:
            if messages:
                return messages.pop()
            await until(lambda: blocked.engine.queue.sentences == 1)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}
        await blocked.app(scope | {"query_string": b"", "root_path": ""}, receive, send)

    async def scenario(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post("/embed", json={"inputs": "a man"}))
        await until(lambda: blocked.runs == 1)
        await disconnect()
        await until(lambda: blocked.engine.queue.sentences == 0)
        blocked.release.set()
        assert (await first).status_code == 200
        metrics = (await client.get("/metrics")).text
        assert 'lattemix_requests_total{method="POST",path="/embed",status="499"} 1.0' in metrics
        assert blocked.runs == 1

    blocked.run(scenario)
    assert [message["status"] for message in sent if "status" in message] == [499]
