"""Start and stop of a server process, or of a server in a thread."""

import asyncio
import errno
import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from app import run
from app.run import Server, _bind, _listen
from app.settings import Settings
from lattemix.build.head import Head
from lattemix.tokenization import Tokens
from model_store import LatteMixError, Store
from tests.app.conftest import eventually, failure, serve_in_thread, serving
from tests.app.engine.test_models import replace_tiny


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_serves_then_exits_with_status_0(store: Store, stop: signal.Signals) -> None:
    with serving(store, LATTEMIX_DRAIN_SECONDS="0") as (process, url):
        response = httpx.post(f"{url}/similarity", json={"pairs": [["a dog", "a dog"]]})
        assert response.json()["similarities"][0]["centred"] == pytest.approx(1)
        process.send_signal(stop)
        assert process.wait(10) == 0


def test_serves_but_is_not_ready_while_draining(store: Store) -> None:
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
        process.send_signal(signal.SIGTERM)  # a second signal ends the drain
        assert process.wait(10) == 0


def test_loses_no_accepted_request_at_sigterm(store: Store) -> None:
    words = ["a", "man", "dog", "sea", "park", "ball", "child", "market"]

    async def scenario(url: str, stop: threading.Event) -> list[int | None]:
        # A connection per request: the server may close a kept-alive one between two.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:

            async def post(number: int) -> int | None:
                texts = [" ".join([word] * (1 + number % 12)) + f" {number}" for word in words]
                try:
                    return (await client.post(f"{url}/embed", json={"inputs": texts})).status_code
                except httpx.ConnectError:
                    return None  # after the server stopped to listen
                finally:
                    if number == 20:
                        stop.set()

            return await asyncio.gather(*map(post, range(300)))

    # The drain is long enough to accept all pending connections.
    with serving(store, LATTEMIX_DRAIN_SECONDS="1") as (process, url):
        stop = threading.Event()

        def terminate() -> None:
            stop.wait(30)
            process.send_signal(signal.SIGTERM)

        threading.Thread(target=terminate).start()
        statuses = asyncio.run(scenario(url, stop))
        assert process.wait(10) == 0
    assert set(statuses) <= {200, None}
    assert statuses.count(200) > 20


def test_sigint_does_not_drain(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "drain_seconds": 60})
    with serve_in_thread(settings) as (server, url):
        assert httpx.get(f"{url}/health").status_code == 200
        server.handle_exit(signal.SIGINT, None)
        assert server.should_exit


def test_sighup_loads_a_replaced_model(private_store: Store, head: Head, backbone: Path) -> None:
    with serving(private_store) as (process, url):

        def fingerprint() -> str:
            response = httpx.post(f"{url}/embed", json={"inputs": "a dog"})
            assert response.status_code == 200
            return response.headers["x-fingerprint"]

        old = fingerprint()
        replace_tiny(private_store, head, backbone)
        assert fingerprint() == old
        process.send_signal(signal.SIGHUP)
        eventually(lambda: fingerprint() != old)
        assert fingerprint() == private_store.open("tiny").manifest.fingerprint


async def blocked_request(
    server: Server, url: str, release: threading.Event
) -> "asyncio.Task[httpx.Response]":
    """Return a request that is being computed, until `release`."""
    engine = server._models.default.engine
    encoder = engine.encoder
    run = encoder.run

    def run_later(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
        release.wait(10)
        return run(batch, alone)

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(timeout=20) as client:
            return await client.post(f"{url}/embed", json={"inputs": "a dog"})

    encoder.run = run_later  # type: ignore[method-assign]
    request = asyncio.create_task(post())
    while not engine.batcher.in_flight:
        await asyncio.sleep(0.01)
    return request


def test_response_to_an_earlier_request_closes_the_connection_while_draining(
    settings: Settings,
) -> None:
    settings = settings.model_copy(update={"port": 0, "drain_seconds": 60})
    release = threading.Event()

    async def scenario(server: Server, url: str) -> httpx.Response:
        request = await blocked_request(server, url, release)
        server.handle_exit(signal.SIGTERM, None)
        while not server._host.draining:
            await asyncio.sleep(0.01)
        release.set()
        return await request

    with serve_in_thread(settings) as (server, url):
        response = asyncio.run(scenario(server, url))
    assert (response.status_code, response.headers["connection"]) == (200, "close")


def test_requests_beyond_the_grace_period_get_503(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0})
    release = threading.Event()

    async def scenario(server: Server, url: str) -> httpx.Response:
        request = await blocked_request(server, url, release)
        server.handle_exit(signal.SIGINT, None)
        return await request

    with serve_in_thread(settings) as (server, url):
        response = asyncio.run(scenario(server, url))
        release.set()
    assert failure(response)[:2] == (503, "Unhealthy")


def test_incomplete_body_does_not_delay_the_shutdown(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0})
    with serve_in_thread(settings) as (server, url):
        assert httpx.get(f"{url}/health").status_code == 200
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(
                b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b'content-length: 100\r\n\r\n{"inputs": '
            )
            while not server._host.requests:
                time.sleep(0.01)
            server.handle_exit(signal.SIGINT, None)
            response = client.recv(2000)
    assert response.startswith(b"HTTP/1.1 503 ")
    assert b"The service stopped before this was done" in response


def test_refuses_connections_until_the_model_is_loaded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    errors: list[int] = []

    def load(settings: Settings) -> None:
        with socket.socket() as client:
            errors.append(client.connect_ex(address))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "create_app", load)
    with pytest.raises(KeyboardInterrupt):
        run.run(settings.model_copy(update={"port": address[1]}))
    assert errors == [errno.ECONNREFUSED]


def test_reports_port_taken_while_model_loads(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0})
    with _bind(settings) as first:
        settings = settings.model_copy(update={"port": first.getsockname()[1]})
        with _bind(settings) as second:
            _listen(first, settings)
            with pytest.raises(LatteMixError, match=r"Cannot listen on .*: Address already in use"):
                _listen(second, settings)
