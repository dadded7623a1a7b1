"""The load generator, against a minimal HTTP server."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks import load_generator
from benchmarks.load_generator import FAILED, LoadError, closed_loop, open_loop, post

Respond = Callable[[int], tuple[bytes, float]]  # request's number -> response, seconds until then


@contextmanager
def serving(respond: Respond) -> Iterator[tuple[int, list[int]]]:
    """Yield a port, and the number of requests over each connection."""
    loop = asyncio.new_event_loop()
    counts: list[int] = []
    number = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        connection = len(counts)
        counts.append(0)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                counts[connection] += 1
                number += 1
                content, seconds = respond(number - 1)
                await asyncio.sleep(seconds)
                half = len(content) // 2
                writer.write(content[:half])
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(content[half:])
                if not content or b"connection: close" in content.lower():
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(handle, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1], counts
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        server.close()
        loop.close()


def response(status: int = 200, body: bytes = b"hello", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Some Reason\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


REQUESTS = [post("/embed", {"inputs": [f"text {number}"]}) for number in range(40)]


def test_closed_loop_answers_every_request_over_keep_alive_connections() -> None:
    with serving(lambda number: (response(body=b"x" * number), 0.001)) as (port, counts):
        responses = closed_loop(port, REQUESTS, clients=4).check()
    assert len(counts) == 4
    assert sum(counts) == len(REQUESTS)
    assert responses.rate == pytest.approx(len(REQUESTS) / responses.elapsed)
    assert (responses.seconds >= 0.001).all()
    assert responses.seconds.max() <= responses.elapsed
    assert 0 < responses.cpu < responses.elapsed + 1
    assert (np.diff(responses.due) >= 0).all()


def test_counts_statuses_and_rejects_unexpected_ones() -> None:
    rejection = response(429, more="Retry-After: 2\r\n")
    with serving(lambda number: (rejection if number % 4 == 0 else response(), 0)) as (port, _):
        responses = closed_loop(port, REQUESTS, clients=1)
    assert responses.check(429).count(429) == 10
    assert responses.errors() == {429: 10}
    assert responses.ok.sum() == 30
    with pytest.raises(LoadError, match="429: 10"):
        responses.check()


def test_429_without_retry_after_is_an_error() -> None:
    rejection = response(429)
    with serving(lambda _: (rejection, 0)) as (port, _), pytest.raises(LoadError, match="Retry-Af"):
        closed_loop(port, REQUESTS, clients=2)


def test_reads_chunked_responses() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    with serving(lambda _: (chunked, 0)) as (port, counts):
        closed_loop(port, REQUESTS, clients=2).check()
    assert len(counts) == 2


def test_invalid_http_is_an_error() -> None:
    invalid = b"What?\r\n\r\n"
    with serving(lambda _: (invalid, 0)) as (port, _), pytest.raises(LoadError, match="Invalid"):
        closed_loop(port, REQUESTS, clients=2)


def test_reconnects_after_connection_close() -> None:
    with serving(lambda _: (response(more="Connection: close\r\n"), 0)) as (port, counts):
        closed_loop(port, REQUESTS, clients=2).check()
    assert counts == [1] * len(REQUESTS)


def test_lost_connection_fails_only_its_request() -> None:
    with serving(lambda number: (b"" if number == 3 else response(), 0)) as (port, _):
        responses = closed_loop(port, REQUESTS, clients=1)
    assert responses.errors() == {FAILED: 1}
    assert not responses.ok[3]


def test_every_request_fails_without_a_server() -> None:
    with serving(lambda _: (response(), 0)) as (port, _):
        pass
    assert closed_loop(port, REQUESTS, clients=8).errors() == {FAILED: len(REQUESTS)}


def test_open_loop_does_not_wait_for_responses() -> None:
    due = np.linspace(0, 0.2, len(REQUESTS))
    with serving(lambda _: (response(), 0.1)) as (port, counts):
        responses = open_loop(port, REQUESTS, due).check()
    assert 0.3 <= responses.elapsed < 0.1 * len(REQUESTS)  # the latter if sent in sequence
    assert (responses.seconds >= 0.1).all()
    assert len(counts) > 8  # about 20 are in flight
    assert sum(counts) == len(REQUESTS)


def test_open_loop_latency_counts_from_the_due_time() -> None:
    with serving(lambda number: (response(), 0.3 if number == 0 else 0)) as (port, _):
        responses = open_loop(port, REQUESTS[:5], np.array([0, 0.05, 0.1, 0.15, 0.2])).check()
    assert responses.seconds[0] >= 0.3
    assert (responses.due + responses.seconds)[1] < responses.seconds[0]


def test_request_fails_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_generator, "TIMEOUT_SECONDS", 0.2)
    with serving(lambda number: (response(), 1.0 if number == 2 else 0)) as (port, _):
        responses = closed_loop(port, REQUESTS[:3], clients=1)
    assert responses.status.tolist() == [200, 200, FAILED]
