"""A real server process, or a server in a thread, from its start to its end."""

import asyncio
import errno
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from app import run
from app.run import _bind, _listen, _Server
from app.server import create_app
from app.settings import Settings
from lattemix.tokenization import Tokens
from model_store import LatteMixError, Store
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


@contextmanager
def in_a_thread(settings: Settings) -> Iterator[tuple[_Server, str]]:
    """A server that can be told to stop, and its URL."""
    app, listener = create_app(settings), _bind(settings)
    _listen(listener, settings)
    server = _Server(app, settings)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    assert not thread.is_alive()


async def held(
    server: _Server, url: str, release: threading.Event
) -> "asyncio.Task[httpx.Response]":
    """A request whose answer waits for `release`, once it is being computed."""
    encoder = server._engine.encoder
    run = encoder.run

    def waiting(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
        release.wait(10)
        return run(batch, alone)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(timeout=20) as client:
            return await client.post(f"{url}/embed", json={"inputs": "a dog"})

    encoder.run = waiting  # type: ignore[method-assign]
    asked = asyncio.create_task(ask())
    while not server._engine.batcher.in_flight:
        await asyncio.sleep(0.01)
    return asked


def test_who_asked_before_the_signal_is_told_to_connect_anew(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "drain_seconds": 60})
    release = threading.Event()

    async def scenario(server: _Server, url: str) -> httpx.Response:
        asked = await held(server, url, release)
        server.handle_exit(signal.SIGTERM, None)
        while not server._engine.draining:
            await asyncio.sleep(0.01)
        release.set()
        return await asked

    with in_a_thread(settings) as (server, url):
        answer = asyncio.run(scenario(server, url))
        server._captured_signals.clear()  # or it would be raised again, here
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")


def test_what_outlasts_the_grace_is_answered_503(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0.3})
    release = threading.Event()

    async def scenario(server: _Server, url: str) -> httpx.Response:
        asked = await held(server, url, release)
        server.should_exit = True
        return await asked

    with in_a_thread(settings) as (server, url):
        answer = asyncio.run(scenario(server, url))
        release.set()
    assert failure(answer)[:2] == (503, "Unhealthy")


def test_half_a_body_does_not_hold_up_the_end(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0, "grace_seconds": 0})
    with in_a_thread(settings) as (server, url):
        assert httpx.get(f"{url}/health").status_code == 200
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=10) as client:
            client.sendall(
                b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
                b'content-length: 100\r\n\r\n{"inputs": '
            )
            while not server._engine._requests:
                time.sleep(0.01)
            server.should_exit = True
            answer = client.recv(2000)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"The service stopped before this was done" in answer


def test_nobody_can_connect_before_there_is_a_model(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    reached: list[int] = []

    def loading(settings: Settings) -> None:
        with socket.socket() as client:
            reached.append(client.connect_ex(address))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "create_app", loading)
    with pytest.raises(KeyboardInterrupt):
        run.run(settings.model_copy(update={"port": address[1]}))
    assert reached == [errno.ECONNREFUSED]


def test_a_port_that_another_takes_meanwhile_is_named(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": 0})
    with _bind(settings) as first:
        settings = settings.model_copy(update={"port": first.getsockname()[1]})
        with _bind(settings) as second:
            _listen(first, settings)
            with pytest.raises(LatteMixError, match=r"Cannot listen on .*: Address already in use"):
                _listen(second, settings)


def test_headers_that_do_not_end_are_refused(server: str) -> None:
    address = httpx.URL(server)
    with socket.create_connection((address.host, address.port or 80), timeout=10) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
        with suppress(ConnectionError):  # closed, with something of ours on its way
            for number in range(20_000):
                client.sendall(b"x-%d: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" % number)
            assert client.recv(100).startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"{server}/health").status_code == 200


def test_large_headers_and_many_requests_on_a_connection_are_fine(server: str) -> None:
    with httpx.Client() as client:
        for _ in range(5):
            response = client.get(f"{server}/health", headers={"x-long": "a" * 30_000})
            assert response.status_code == 200
