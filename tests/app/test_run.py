"""A real server process, or a server in a thread, from its start to its end."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import httpx
import pytest

from app.engine.tokenization import Tokens
from app.run import _listen, _Server
from app.server import create_app
from app.settings import Settings
from model_store import Store
from tests.app.conftest import failure, serving


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_answers_then_stops_cleanly(store: Store, stop: signal.Signals) -> None:
    with serving(store, LATTEMIX_DRAIN_SECONDS="0") as (process, url):
        answer = httpx.post(f"{url}/similarity", json={"pairs": [["a dog", "a dog"]]})
        assert answer.json()["similarities"][0]["cosine"] == pytest.approx(1)
        process.send_signal(stop)
        assert process.wait(10) == 0


def test_after_sigterm_it_is_not_ready_and_still_answers(store: Store) -> None:
    with serving(store, LATTEMIX_DRAIN_SECONDS="60") as (process, url):
        assert httpx.get(f"{url}/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        for _ in range(200):
            ready = httpx.get(f"{url}/ready")
            if ready.status_code == 503:
                break
            time.sleep(0.01)
        assert failure(ready)[1:] == ("Unhealthy", "The service is stopping.")
        assert ready.headers["connection"] == "close"
        assert httpx.post(f"{url}/embed", json={"inputs": "a dog"}).status_code == 200
        process.send_signal(signal.SIGTERM)  # a second one does not wait
        assert process.wait(10) == 0


def test_nothing_accepted_is_lost_at_sigterm(store: Store) -> None:
    words = ["a", "man", "dog", "sea", "park", "ball", "child", "market"]

    async def scenario(url: str, stop: threading.Event) -> list[int | None]:
        # Each request has its own connection: one that is kept alive may be closed between two.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:

            async def ask(number: int) -> int | None:
                texts = [" ".join([word] * (1 + number % 12)) + f" {number}" for word in words]
                try:
                    return (await client.post(f"{url}/embed", json={"inputs": texts})).status_code
                except httpx.ConnectError:
                    return None  # it was no longer accepted
                finally:
                    if number == 20:
                        stop.set()

            return await asyncio.gather(*map(ask, range(300)))

    with serving(store, LATTEMIX_DRAIN_SECONDS="0") as (process, url):
        stop = threading.Event()

        def at_the_twentieth() -> None:
            stop.wait(30)
            process.send_signal(signal.SIGTERM)

        threading.Thread(target=at_the_twentieth).start()
        statuses = asyncio.run(scenario(url, stop))
        assert process.wait(10) == 0
    assert set(statuses) <= {200, None}
    assert statuses.count(200) > 20


def test_what_outlasts_the_grace_is_answered_503(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0.3})
    app, release = create_app(settings), threading.Event()
    encoder = app.state.service.engine.encoder
    run = encoder.run

    def waiting(batch: Sequence[Tokens]) -> object:
        release.wait(10)
        return run(batch)

    encoder.run = waiting
    listener = _listen(settings)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = _Server(app, settings)

    async def scenario() -> httpx.Response:
        async with httpx.AsyncClient(timeout=20) as client:
            asked = asyncio.create_task(client.post(f"{url}/embed", json={"inputs": "a dog"}))
            while not app.state.service.engine._flying:
                await asyncio.sleep(0.01)
            server.should_exit = True
            return await asked

    serving = threading.Thread(target=server.run, args=([listener],))
    serving.start()
    answer = asyncio.run(scenario())
    release.set()
    serving.join(10)
    assert failure(answer)[:2] == (503, "Unhealthy")
    assert not serving.is_alive()


def test_headers_that_do_not_end_are_refused(server: str) -> None:
    address = httpx.URL(server)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        with suppress(ConnectionError):  # closed, with something of ours on its way
            for number in range(2_000):
                client.sendall(b"x-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % number)
            assert client.recv(100).startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"{server}/health").status_code == 200


def test_large_headers_and_many_requests_on_a_connection_are_fine(server: str) -> None:
    with httpx.Client() as client:
        for _ in range(5):
            response = client.get(f"{server}/health", headers={"x-long": "a" * 30_000})
            assert response.status_code == 200
