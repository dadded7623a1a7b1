"""Clients that are slow, silent, many, or gone."""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import httpx
import numpy as np
import pytest
from fastapi import Response
from numpy.typing import NDArray

from app.run import _Server
from app.settings import Settings
from lattemix.tokenization import Tokens
from tests.reliability.conftest import (
    PATIENCE,
    connect,
    counted,
    eventually,
    posted,
    served,
    similar,
)

HURRIED = 0.5  # seconds that a client has, where its time is to pass
LARGE = 32_000_000  # bytes: more than the system's own buffers for a connection hold


@pytest.fixture
def hurried(open_settings: Settings) -> Iterator[tuple[_Server, str]]:
    """A server that waits for nobody for long."""
    with served(open_settings.model_copy(update={"request_timeout": HURRIED})) as server:
        yield server


def trickle(client: socket.socket, drops: Iterator[bytes]) -> bytes:
    """Send drop by drop until the server has had enough; what it said, if it did."""
    said = b""
    client.settimeout(0.02)  # seconds between drops
    try:
        for drop in drops:
            client.sendall(drop)
            try:
                part = client.recv(4096)
            except TimeoutError:
                continue
            said += part
            if not part:
                return said
    except ConnectionError:  # closed, with a drop on its way
        return said
    raise AssertionError(f"It never had enough, and said {said!r}.")


def drops(drop: bytes, begin: bytes = b"") -> Iterator[bytes]:
    """Enough for any patience that the test has."""
    yield begin
    for _ in range(round(PATIENCE / 0.02)):
        yield drop


@pytest.mark.parametrize(
    ("begin", "drop"),
    [
        (b"GET /", b"x"),
        (b"GET /health HTTP/1.1\r\nx: ", b"y"),
        (b"GET /health HTTP/1.1\r\n", b"a:b\r\n"),
    ],
    ids=["request line", "a header", "headers"],
)
def test_headers_that_come_drop_by_drop_have_their_time(
    hurried: tuple[_Server, str], begin: bytes, drop: bytes
) -> None:
    with connect(hurried[1]) as client:
        said = trickle(client, drops(drop, begin))
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"The headers did not arrive within the 0.5 seconds" in said
    similar(hurried[1])


def test_a_body_that_comes_drop_by_drop_has_its_time(hurried: tuple[_Server, str]) -> None:
    with connect(hurried[1]) as client:
        said = trickle(client, drops(b" ", posted("/embed", b"{", length=10**6)))
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"The body did not arrive within the 0.5 seconds" in said
    eventually(lambda: not hurried[0]._engine._requests)


@pytest.mark.parametrize("begin", [b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_a_line_that_never_becomes_a_request_has_its_time(
    hurried: tuple[_Server, str], begin: bytes
) -> None:
    """Empty lines may come before a request, also before the next one."""
    with connect(hurried[1]) as client:
        said = trickle(client, drops(b"\r\n", begin))
    assert said.count(b"HTTP/1.1") == bool(begin)


def test_a_body_that_nobody_asked_for_has_its_time(hurried: tuple[_Server, str]) -> None:
    begin = b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
    with connect(hurried[1]) as client:
        said = trickle(client, drops(b" ", begin))
    assert said.startswith(b"HTTP/1.1 200 ")


LARGE_REQUEST = posted("/embed", b'{"inputs": "a dog"}').replace(
    b"host:", b"accept: application/x-npy\r\nhost:"
)


@contextmanager
def much_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[_Server, socket.socket]]:
    """A server in a hurry, and a client that has asked for a large answer."""
    settings = settings.model_copy(update={"request_timeout": HURRIED})
    monkeypatch.setattr("app.routes.embed.npy", lambda array: Response(bytes(LARGE)))
    with served(settings) as (server, url), connect(url) as client:
        client.sendall(LARGE_REQUEST)
        yield server, client


def test_a_client_that_never_reads_its_answer_is_let_go(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing its connection would wait for it, with all of the answer in memory."""
    monkeypatch.setattr("app.run._STALLED_SECONDS", HURRIED)
    with much_asked(open_settings, monkeypatch) as (server, _):
        (connection,) = eventually(lambda: server.server_state.connections)
        eventually(lambda: connection.transport.get_write_buffer_size())
        assert server._engine._requests == server._engine._sentences == 1  # until it is read
        eventually(lambda: not server.server_state.connections)
        eventually(lambda: not server._engine._requests)
        assert server._engine._sentences == 0


@pytest.mark.parametrize(
    "rest",
    [b"a: b\r\n" * 5000, b"a: " + b"b" * 80_000, b"".join(b"%d:\r\n" % n for n in range(9000))],
    ids=["trailers", "one without end", "short ones"],
)
def test_trailers_are_bounded_and_not_kept(open_settings: Settings, rest: bytes) -> None:
    begin = b"GET /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    with served(open_settings) as (server, url), connect(url) as client:
        client.sendall(begin)
        (connection,) = eventually(lambda: server.server_state.connections)
        eventually(lambda: connection.headers)
        before = len(connection.headers)
        with suppress(ConnectionError):
            for start in range(0, len(rest), 4000):
                client.sendall(rest[start : start + 4000])
                time.sleep(0.001)
        eventually(lambda: not server.server_state.connections)
        assert len(connection.headers) == before


def test_many_headers_at_once_are_refused(open_settings: Settings) -> None:
    many = b"".join(b"a%d:\r\n" % number for number in range(2000))
    with served(open_settings) as (_, url), connect(url) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n" + many + b"\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 431 ")
        with suppress(ConnectionError):
            assert client.recv(1000) == b""


def test_a_body_in_tiny_chunks_is_taken(open_settings: Settings) -> None:
    body = b'{"inputs": "%s"}' % (b"dog " * 5000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    head = posted("/embed", b"", length=0).replace(
        b"content-length: 0", b"transfer-encoding: chunked"
    )
    with served(open_settings) as (_, url), connect(url) as client:
        client.sendall(head)
        for start in range(0, len(chunks), 5000):
            client.sendall(chunks[start : start + 5000])
        client.sendall(b"0\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_reads_slowly_gets_all_of_its_answer(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with much_asked(open_settings, monkeypatch) as (_, client):
        read, pauses = 0, 0
        while part := client.recv(1_000_000):
            read += len(part)
            if read > pauses * LARGE // 10:
                pauses += 1
                time.sleep(HURRIED / 4)  # in all, several times as long as it has to do something
        assert read > LARGE


def test_steady_downloads_on_one_connection_are_never_cut(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with much_asked(open_settings, monkeypatch) as (_, client):
        for _ in range(5):
            left = LARGE - len(client.recv(65_536).partition(b"\r\n\r\n")[2])
            while left:
                part = client.recv(min(left, 1_000_000))
                assert part, "the server closed the connection within a body"
                left -= len(part)
                time.sleep(HURRIED / 25)
            client.sendall(LARGE_REQUEST)


def test_idle_connections_do_not_keep_others_from_being_served(
    open_settings: Settings,
) -> None:
    with served(open_settings) as (server, url), ExitStack() as idle:
        half = posted("/embed", b"{", length=100)[:40]
        for number in range(600):  # more than the requests that are worked on at once
            client = idle.enter_context(connect(url))
            client.sendall(half if number % 2 else b"")
        eventually(lambda: len(server.server_state.connections) >= 600)
        assert httpx.get(f"{url}/ready").status_code == 200
        similar(url)
        idle.close()
        eventually(lambda: not server.server_state.connections)


@pytest.mark.parametrize("when", ["headers", "body", "waiting"])
def test_clients_that_vanish_leave_nothing_behind(open_settings: Settings, when: str) -> None:
    began, release = threading.Event(), threading.Event()
    with served(open_settings.model_copy(update={"threads": 1})) as (server, url):
        engine = server._engine
        run = engine.encoder.run

        def waiting(batch: Sequence[Tokens], alone: bool) -> NDArray[np.float32]:
            began.set()
            assert release.wait(PATIENCE)
            return run(batch, alone)

        engine.encoder.run = waiting  # type: ignore[method-assign]
        clients = [connect(url) for _ in range(20)]
        for number, client in enumerate(clients):
            whole = posted("/embed", b'{"inputs": "%s"}' % (b"dog " * (number % 7 + 1)))
            client.sendall(whole[: {"headers": 30, "body": -3}.get(when, len(whole))])
            if when == "waiting":  # the first for its batch, the others in the queue
                assert began.wait(PATIENCE)
        arrived = 0 if when == "headers" else len(clients)
        eventually(lambda: engine._requests == arrived)
        eventually(lambda: bool(engine.queue.sentences) == (when == "waiting"))
        for client in clients:
            client.close()
        eventually(lambda: not engine._requests and not server.server_state.connections)
        release.set()
        similar(url)
        eventually(lambda: not engine.batcher.in_flight)
        found = counted(url)
        assert found.total("lattemix_queue_sentences") == found.total("lattemix_queue_tokens") == 0
        assert found.total("lattemix_requests_total", "/embed", "499") == arrived
