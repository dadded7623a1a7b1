"""Clients that are slow, idle or disconnect."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest
from fastapi import Response
from numpy.typing import NDArray

from app.run import Server
from app.settings import Settings
from lattemix.tokenization import Tokens
from tests.app.conftest import PATIENCE, eventually, serve_in_thread
from tests.reliability.conftest import connect, metric_values, post_similarity, raw_post

TIMEOUT = 0.5  # seconds
LARGE = 32_000_000  # bytes: more than the system's socket buffers hold


def test_rejects_a_body_that_arrives_too_slowly(open_settings: Settings) -> None:
    settings = open_settings.model_copy(update={"request_timeout": TIMEOUT})
    with serve_in_thread(settings) as (server, url), connect(url) as client:
        client.sendall(raw_post("/embed", b"{", length=10**6))
        client.settimeout(0.02)  # between two bytes
        end, response = time.monotonic() + PATIENCE, b""
        while not response and time.monotonic() < end:
            client.sendall(b" ")
            try:
                response = client.recv(4096)
            except TimeoutError:
                continue
        assert response.startswith(b"HTTP/1.1 408 ")
        assert b"The body did not arrive within the 0.5 seconds" in response
        eventually(lambda: not server._host.requests)


@contextmanager
def large_response(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Server, socket.socket]]:
    """Run a server; yield it and a client that has requested a large response."""
    monkeypatch.setattr("app.routes.embed.npy_response", lambda array: Response(bytes(LARGE)))
    request = raw_post("/embed", b'{"inputs": "a dog"}')
    request = request.replace(b"host:", b"accept: application/x-npy\r\nhost:")
    with serve_in_thread(settings) as (server, url), connect(url) as client:
        client.sendall(request)
        yield server, client


def test_closes_the_connection_of_a_client_that_never_reads(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would hold its response in memory for ever."""
    monkeypatch.setattr("app.run._USER_TIMEOUT_SECONDS", TIMEOUT)
    with large_response(open_settings, monkeypatch) as (server, _):
        engine = server._models.default.engine
        eventually(lambda: engine.host.requests == engine.host._sentences == 1)
        time.sleep(TIMEOUT / 2)
        assert engine.host.requests == engine.host._sentences == 1  # metric_values until it is sent
        eventually(lambda: not engine.host.requests)
        assert engine.host._sentences == 0


def test_slow_reader_gets_the_complete_response(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = open_settings.model_copy(update={"request_timeout": TIMEOUT})
    with large_response(settings, monkeypatch) as (_, client):
        size, pauses = 0, 0
        while size < LARGE and (chunk := client.recv(1_000_000)):
            size += len(chunk)
            if size > pauses * LARGE // 10:
                pauses += 1
                time.sleep(TIMEOUT / 4)  # in total, several times the timeout
        assert size >= LARGE


def test_serves_requests_beside_many_idle_connections(open_settings: Settings) -> None:
    with serve_in_thread(open_settings) as (_, url), ExitStack() as idle:
        incomplete = raw_post("/embed", b"{", length=100)[:40]
        for number in range(600):  # more than `max_requests`
            client = idle.enter_context(connect(url))
            client.sendall(incomplete if number % 2 else b"")
        assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        post_similarity(url)


@pytest.mark.parametrize("when", ["headers", "body", "queued"])
def test_disconnected_clients_leave_nothing_behind(open_settings: Settings, when: str) -> None:
    started, release = threading.Event(), threading.Event()
    with serve_in_thread(open_settings.model_copy(update={"threads": 1})) as (server, url):
        engine = server._models.default.engine
        run = engine.encoder.run

        def run_later(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
            started.set()
            assert release.wait(PATIENCE)
            return run(batch, alone)

        engine.encoder.run = run_later  # type: ignore[method-assign]
        clients = [connect(url) for _ in range(20)]
        for number, client in enumerate(clients):
            request = raw_post("/embed", b'{"inputs": "%s"}' % (b"dog " * (number % 7 + 1)))
            client.sendall(request[: {"headers": 30, "body": -3}.get(when, len(request))])
            if when == "queued":  # all but the first
                assert started.wait(PATIENCE)
        requests = 0 if when == "headers" else len(clients)
        eventually(lambda: engine.host.requests == requests)
        eventually(lambda: bool(engine.queue.sentences) == (when == "queued"))
        for client in clients:
            client.close()
        eventually(lambda: not engine.host.requests)
        release.set()
        post_similarity(url)
        eventually(lambda: not engine.batcher.in_flight)
        values = metric_values(url)
        assert values.total("lattemix_queue_sentences") == 0
        assert values.total("lattemix_queue_tokens") == 0
        assert values.total("lattemix_requests_total", "/embed", "499") == requests
