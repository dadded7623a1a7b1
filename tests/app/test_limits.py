"""Limits on bodies, on concurrent requests and on the time a request takes."""

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


def test_a_body_is_refused_while_it_streams(settings: Settings) -> None:
    app, taken = create_app(settings), 0
    answer: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b" " * 1024, "more_body": taken < 1000}

    async def send(message: dict[str, object]) -> None:
        answer.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}
    asyncio.run(app(scope | {"query_string": b"", "root_path": ""}, receive, send))
    assert answer[0]["status"] == 413
    assert taken == 5  # 5 x 1,024 is the first to exceed 4,096


def test_a_body_that_does_not_come_is_not_waited_for(settings: Settings) -> None:
    app, answer = create_app(settings.model_copy(update={"request_timeout": 0.02})), []

    async def receive() -> dict[str, object]:
        await asyncio.sleep(10)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        answer.append(message)

    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": []}
    asyncio.run(app(scope | {"query_string": b"", "root_path": ""}, receive, send))
    assert answer[0]["status"] == 408
    assert b"the 0.02 seconds of LATTEMIX_REQUEST_TIMEOUT" in answer[1]["body"]
    app.state.service.engine.close()


class Held:
    """A server whose model does one batch at a time, and waits for `release`."""

    def __init__(self, settings: Settings) -> None:
        one_at_a_time = {"threads": os.cpu_count()}
        self.app = create_app(settings.model_copy(update=one_at_a_time))
        self.engine: Engine = self.app.state.service.engine
        self.release = threading.Event()
        self.runs = 0
        run = self.engine.encoder.run

        def waiting(batch: Sequence[Tokens], alone: bool) -> object:
            self.runs += 1
            self.release.wait(10)
            return run(batch, alone)

        self.engine.encoder.run = waiting  # type: ignore[assignment, method-assign]

    def meet(self, scenario: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
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


def test_health_answers_and_work_is_refused_while_the_model_is_busy(settings: Settings) -> None:
    held = Held(settings.model_copy(update={"max_requests": 2}))

    async def scenario(client: httpx.AsyncClient) -> None:
        accepted = [
            asyncio.create_task(client.post("/embed", json={"inputs": text})) for text in "ab"
        ]
        await until(lambda: held.engine._requests == 2)
        assert (await client.get("/health")).status_code == 200
        refused = await client.post("/embed", json={"inputs": "c"})
        assert failure(refused)[:2] == (429, "Overloaded")
        assert "LATTEMIX_MAX_REQUESTS is 2" in refused.json()["error"]
        assert int(refused.headers["retry-after"]) >= 1
        held.release.set()
        assert [(await task).status_code for task in accepted] == [200, 200]
        assert (await client.post("/embed", json={"inputs": "c"})).status_code == 200

    held.meet(scenario)


def test_a_request_that_takes_too_long_is_given_up(settings: Settings) -> None:
    held = Held(settings.model_copy(update={"request_timeout": 0.02}))

    async def scenario(client: httpx.AsyncClient) -> None:
        late = await client.post("/embed", json={"inputs": "a"})
        assert failure(late)[:2] == (504, "Timeout")
        assert "the 0.02 seconds of LATTEMIX_REQUEST_TIMEOUT" in late.json()["error"]

    held.meet(scenario)


def test_what_a_client_left_behind_is_not_computed(settings: Settings) -> None:
    held = Held(settings)
    sent: list[dict[str, object]] = []

    async def leave() -> None:
        """Send a request, and hang up once it waits behind another."""
        body = b'{"inputs": ["a dog"]}'
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, object]:
            if messages:
                return messages.pop()
            await until(lambda: held.engine.queue.sentences == 1)
            return {"type": "http.disconnect"}

        async def send(message: dict[str, object]) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/embed", "headers": headers}
        await held.app(scope | {"query_string": b"", "root_path": ""}, receive, send)

    async def scenario(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post("/embed", json={"inputs": "a man"}))
        await until(lambda: held.runs == 1)
        await leave()
        await until(lambda: held.engine.queue.sentences == 0)
        held.release.set()
        assert (await first).status_code == 200
        metrics = (await client.get("/metrics")).text
        assert 'lattemix_requests_total{method="POST",path="/embed",status="499"} 1.0' in metrics
        assert held.runs == 1

    held.meet(scenario)
    assert [message["status"] for message in sent if "status" in message] == [499]
