"""The load generator, against a server of a few lines."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from benchmarks import load
from benchmarks.load import FAILED, LoadError, arriving, closed, head_of, post

Answer = Callable[[int], tuple[bytes, float]]  # of the request's number: bytes, after seconds


@contextmanager
def serving(answer: Answer) -> Iterator[tuple[int, list[int]]]:
    """A port, and how many requests came over each of its connections."""
    loop = asyncio.new_event_loop()
    counts: list[int] = []
    number = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        connection = len(counts)
        counts.append(0)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                counts[connection] += 1
                number += 1
                content, seconds = answer(number - 1)
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

    server = loop.run_until_complete(asyncio.start_server(talk, "127.0.0.1", 0))
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


def test_clients_keep_their_connections_and_every_request_is_answered() -> None:
    with serving(lambda number: (response(body=b"x" * number), 0.001)) as (port, counts):
        answers = closed(port, REQUESTS, clients=4).check()
    assert len(counts) == 4
    assert sum(counts) == len(REQUESTS)
    assert answers.rate == pytest.approx(len(REQUESTS) / answers.elapsed)
    assert (answers.seconds >= 0.001).all()
    assert answers.seconds.max() <= answers.elapsed
    assert 0 < answers.cpu < answers.elapsed + 1
    assert (np.diff(answers.due) >= 0).all()


def test_statuses_are_told_apart() -> None:
    refusal = response(429, more="Retry-After: 2\r\n")
    with serving(lambda number: (refusal if number % 4 == 0 else response(), 0)) as (port, _):
        answers = closed(port, REQUESTS, clients=1)
    assert answers.others(429) == {}
    assert answers.others() == {429: 10}
    assert answers.good.sum() == 30
    with pytest.raises(LoadError, match="429: 10"):
        answers.check()


def test_an_answer_without_a_length_is_refused() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    with serving(lambda _: (chunked, 0)) as (port, _), pytest.raises(LoadError, match="length"):
        closed(port, REQUESTS, clients=2)


def test_a_connection_that_the_server_closes_is_opened_anew() -> None:
    with serving(lambda _: (response(more="Connection: close\r\n"), 0)) as (port, counts):
        closed(port, REQUESTS, clients=2).check()
    assert counts == [1] * len(REQUESTS)


def test_a_lost_connection_is_an_error_and_not_the_end() -> None:
    with serving(lambda number: (b"" if number == 3 else response(), 0)) as (port, _):
        answers = closed(port, REQUESTS, clients=1)
    assert answers.others() == {FAILED: 1}
    assert not answers.good[3]


def test_nobody_listening_is_an_error_of_every_request() -> None:
    with serving(lambda _: (response(), 0)) as (port, _):
        pass
    assert closed(port, REQUESTS, clients=8).others() == {FAILED: len(REQUESTS)}


def test_arrivals_do_not_wait_for_answers_and_count_from_when_they_were_due() -> None:
    due = np.linspace(0, 0.2, len(REQUESTS))
    with serving(lambda _: (response(), 0.1)) as (port, counts):
        answers = arriving(port, REQUESTS, due).check()
    assert 0.3 <= answers.elapsed < 0.1 * len(REQUESTS)  # as one after the other would take
    assert (answers.seconds >= 0.1).all()
    assert len(counts) > 8  # about 20 are under way at once
    assert sum(counts) == len(REQUESTS)


def test_a_late_answer_makes_its_request_late_and_not_the_schedule() -> None:
    with serving(lambda number: (response(), 0.3 if number == 0 else 0)) as (port, _):
        answers = arriving(port, REQUESTS[:5], np.array([0, 0.05, 0.1, 0.15, 0.2])).check()
    assert answers.seconds[0] >= 0.3
    assert (answers.due + answers.seconds)[1] < answers.seconds[0]


def test_what_is_never_answered_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_PATIENCE_SECONDS", 0.2)
    with serving(lambda number: (response(), 1.0 if number == 2 else 0)) as (port, _):
        answers = closed(port, REQUESTS[:3], clients=1)
    assert answers.status.tolist() == [200, 200, FAILED]


def test_reading_a_head() -> None:
    refused = b"HTTP/1.1 429 Too Many\r\ncontent-length: 12"
    assert head_of(refused + b"\r\nRetry-After: 3") == (429, 12, True)
    with pytest.raises(LoadError, match="for how long"):
        head_of(refused)
    assert head_of(b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH:0\r\nConnection: Close") == (200, 0, False)
    with pytest.raises(LoadError):
        head_of(b"HTTP/1.1 200 OK")
